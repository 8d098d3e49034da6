"""Trains a system into a run directory, and exports, ranks and describes runs; the worker process runs this."""
