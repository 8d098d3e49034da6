"""A run's parameters, curves and results in a tracker such as MLflow, beside its own files, which need none."""
