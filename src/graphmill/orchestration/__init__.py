"""Adapters to Dagster: run config, resources, IO managers, launchers, metadata.

Imports no torch at module level.
"""
