"""Predicted links: the tails with the best scores for a head, with ranks, probabilities and supporting paths for each.

These are functions of graphs, arrays and Scorers. :mod:`graphmill.usage.links` applies them to a run.
"""
