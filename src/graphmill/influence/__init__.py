"""TracIn: finds the training triples that raised or lowered the score of a triple most.

It uses per-example gradients as factors.
"""
