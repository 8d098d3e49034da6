"""Tables become a typed graph on disk: memory-mapped, immutable, hashed; with splits and the leakage audit."""
