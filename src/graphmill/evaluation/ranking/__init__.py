"""Ranks held-out links, triples and items exactly and computes metrics from the ranks."""
