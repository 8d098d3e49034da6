"""See ``combination.cpu``."""
