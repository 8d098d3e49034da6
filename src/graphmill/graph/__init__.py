"""Turns tables into a typed graph on disk: memory-mapped, immutable and hashed, with splits and a leakage audit."""
