"""The search for settings: a space of values, trials by Optuna, a leaderboard chosen on validation.

A trial is a training.
"""
