"""Ranking, recommendation, embedding health: functions on arrays and Scorers. Nothing here trains."""
