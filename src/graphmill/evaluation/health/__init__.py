"""The health of an embedding: figures, verdicts with remedies, and the name of what is wrong."""
