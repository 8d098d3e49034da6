"""Adapters to Dagster: run config, resources, IO managers, launchers, metadata.

Its modules do not import torch at module level.
"""
