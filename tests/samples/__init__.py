"""Generators of the synthetic samples, seeded, one module per chain; the files in ``data/01_raw`` are what they write."""
