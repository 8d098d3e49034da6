"""Exact rankings of held-out links, triples and items, and the figures that come of them."""
