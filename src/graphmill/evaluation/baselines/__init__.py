"""Baselines that a trained model has to beat, measured with the same scorers and queries."""
