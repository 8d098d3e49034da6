"""TracIn: which training triples made the model say so. Written against per-example gradients in factors."""
