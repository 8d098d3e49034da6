"""Predicted links: which tails a model scores best for a head, and what is to be known of each of them.

Functions on graphs, arrays and Scorers; what is made of a run is :mod:`graphmill.runs.links`.
"""
