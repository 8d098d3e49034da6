"""What a trained model has to beat, written against the same scorers and queries."""
