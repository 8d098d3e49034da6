"""Metrics of rankings, recommendations, embeddings and drift, as functions of arrays and Scorers.

Nothing here trains a model.
"""
