"""The code location: everything that ``defs/`` holds. ``workspace.yaml`` and ``dg`` load it."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """All components, resources and automation below ``defs/``."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
