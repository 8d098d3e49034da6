"""Tensor functions, each with its plain reference beside it, delicate losses included.

Nothing of graphmill is imported here, and nothing here knows what a node type, a recipe or a file is.
"""
