"""The systems: model, settings, batches, system and cost, one folder per system."""
