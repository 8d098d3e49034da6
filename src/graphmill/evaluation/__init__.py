"""Figures of rankings, recommendations, embeddings and drift: functions on arrays and Scorers.

Nothing here trains.
"""
