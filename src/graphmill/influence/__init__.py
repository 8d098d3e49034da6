"""TracIn, which finds the training triples that made the model score a triple as it does.

Written against per-example gradients in factors.
"""
