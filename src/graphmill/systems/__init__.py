"""How each system is trained: model, settings, batches, recipe and cost, one folder a system."""
