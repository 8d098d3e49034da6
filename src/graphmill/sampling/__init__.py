"""Samplers of neighbours, negatives and sequences: vectorised, with random numbers keyed by what they are for.

No loops over rows.
"""
