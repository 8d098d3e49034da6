"""The training suite's tiny graph and settings."""

from tests.runs.conftest import graph, values

__all__ = ["graph", "values"]
