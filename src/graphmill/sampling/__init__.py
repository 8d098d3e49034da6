"""Samplers of neighbours, negatives and sequences: vectorised, with keyed random numbers.

There are no loops over rows.
"""
