"""See ``translation.cpu``."""
