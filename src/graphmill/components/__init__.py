"""The Dagster component types that a ``defs.yaml`` names: a dataset and a model."""
