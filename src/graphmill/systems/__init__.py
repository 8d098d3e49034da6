"""The systems: model, settings, batches, recipe and cost, one folder per system."""
