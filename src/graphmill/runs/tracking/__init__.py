"""Sends a run's parameters, curves and results to MLflow, in addition to the run's own files."""
