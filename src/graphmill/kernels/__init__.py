"""Tensor functions, delicate losses included, each with a plain form in torch or NumPy for where no compiled form runs.

HGT's attention and attention over sequences are also judged by their formulas: ``hgt/reference.py`` and in the tests.
Nothing of graphmill is imported here, and nothing here knows what a node type, a recipe or a file is.
"""
