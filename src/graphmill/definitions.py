"""The code location that ``workspace.yaml`` and ``dg`` load: everything in ``defs/``."""

from pathlib import Path

import dagster as dg

from graphmill.orchestration.loading import load_project


@dg.definitions
def defs() -> dg.Definitions:
    """All components, resources and automation below ``defs/``."""
    return load_project(Path(__file__).parent)
