"""Where the project is, and where Dagster keeps its history for it (``DAGSTER_HOME``)."""

import os
import shutil
from pathlib import Path

from graphmill.errors import InputError

OUTPUTS = "data/06_models"
"""Where all outputs go, below the project's root: tables and references of assets, typed graphs, run directories."""
PROMOTED = "data/07_promoted"
"""Where promoted versions are, below the project's root."""


def project_root() -> Path:
    """The working directory, or else the nearest directory above this file, that has a workspace.yaml.

    Raises :class:`InputError` where there is none.
    """
    for directory in (Path.cwd(), *Path(__file__).resolve().parents):
        if (directory / "workspace.yaml").is_file():
            return directory
    raise InputError("no workspace.yaml here: run this in the project's directory")


def dagster_home(root: Path) -> Path:
    """``$DAGSTER_HOME``, or ``.dagster_home`` in ``root``; created, with the project's dagster.yaml if it has none.

    Sets the variable for this process and its children.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or root / ".dagster_home").resolve()
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists() and (root / "dagster.yaml").exists():
        shutil.copy(root / "dagster.yaml", home / "dagster.yaml")
    os.environ["DAGSTER_HOME"] = str(home)
    return home
