"""See ``hgt.cpu``."""
