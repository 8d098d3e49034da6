"""Vectors of nodes and relations whose score by itself is the model: ComplEx, DistMult, RotatE and TransE by name."""
