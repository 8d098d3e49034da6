"""See ``bi_interaction.cpu``."""
