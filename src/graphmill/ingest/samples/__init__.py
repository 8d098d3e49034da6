"""Generators of synthetic inputs, seeded, in the formats of the readers: one module per chain.

``catalog`` writes them.
"""
