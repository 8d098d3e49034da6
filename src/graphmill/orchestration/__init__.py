"""Dagster adapters: run config, resources, IO managers, launcher, metadata. Imports no torch at module level."""
