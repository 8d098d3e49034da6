"""``graphmill init``: creates a Dagster project from templates.

It imports neither dagster nor torch.
"""
