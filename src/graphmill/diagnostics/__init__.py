"""Looks at the machine: ``graphmill doctor``."""
