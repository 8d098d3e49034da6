"""Held-out links, triples and items ranked exactly, and the figures that come of it."""
