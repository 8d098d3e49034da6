"""Tensor functions and numerically stable losses.

Each has a plain form in torch or NumPy, for machines without the compiled one.

The tests also compare HGT's attention and the attention over sequences with their formulas (``hgt/reference.py``, and
references in the tests). This package imports nothing else of graphmill, and knows no node types, recipes or files.
"""
