"""Pictures of embeddings and trainings as small PNGs."""
