"""Sends a run's parameters, curves and results to a tracker such as MLflow, in addition to the run's own files."""
