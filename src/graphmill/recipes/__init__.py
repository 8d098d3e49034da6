"""How each system is trained: one folder a system with its settings, batches, terms and recipe."""
