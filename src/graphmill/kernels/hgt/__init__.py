"""See ``hgt.attention``."""
