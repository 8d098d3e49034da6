"""Tensor functions and stable losses, each also in plain torch or NumPy for machines without the compiled form.

The tests also compare HGT's attention and the attention over sequences with their formulas. This package imports
nothing else of graphmill, and knows no node types, systems or files.
"""
