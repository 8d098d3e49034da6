"""Finds the project, and the folder of Dagster's history for it (``DAGSTER_HOME``)."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

from graphmill.errors import InputError
from graphmill.project.existing import dg_project

OUTPUTS = "data/06_models"
"""The folder of all outputs, below the project's root: tables and references of assets, typed graphs, run directories."""
PROMOTED = "data/07_promoted"
"""The folder of promoted versions, below the project's root."""


@dataclass(frozen=True)
class CodeLocation:
    """The module with a project's definitions, their name in it, the folder from which it is imported, and the name
    that the UI gives it."""

    module: str
    attribute: str
    folder: Path
    name: str


def project_root() -> Path:
    """The Dagster project that contains the working directory (the closest one), or else this checkout.

    A Dagster project has a workspace.yaml, or a ``[tool.dg.project]`` in its pyproject.toml, or a dg.toml.

    Raises :class:`InputError` if there is none.
    """
    here = Path.cwd()
    for directory in (here, *here.parents):
        if (directory / "workspace.yaml").is_file() or dg_project(directory):
            return directory
    for directory in Path(__file__).resolve().parents:
        if (directory / "workspace.yaml").is_file():
            return directory
    raise InputError(
        f"{here} is in no Dagster project: run this in the project's directory, or make one with `graphmill init NAME`"
    )


def code_location(root: Path) -> CodeLocation:
    """The code location of the project in ``root``, from its workspace.yaml, or else its pyproject.toml or dg.toml.

    Raises :class:`InputError` if none of them names a module.
    """
    workspace = root / "workspace.yaml"
    for entry in (yaml.safe_load(workspace.read_text()) or {}).get("load_from", ()) if workspace.is_file() else ():
        if isinstance(entry, dict) and isinstance(named := entry.get("python_module"), dict):
            folder = root / str(named.get("working_directory", "."))
            module = str(named["module_name"])
            name = str(named.get("location_name") or module)
            return CodeLocation(module, str(named.get("attribute") or "defs"), folder, name)
    if project := dg_project(root):
        return CodeLocation(project.module, "defs", project.source, project.module)
    raise InputError(f"{root}: neither workspace.yaml nor pyproject.toml names the module of its definitions")


def dagster_home(root: Path) -> Path:
    """``$DAGSTER_HOME``, or ``.dagster_home`` in ``root``. It is created if needed, with the project's dagster.yaml.

    Sets the variable for this process and its children.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or root / ".dagster_home").resolve()
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists() and (root / "dagster.yaml").exists():
        shutil.copy(root / "dagster.yaml", home / "dagster.yaml")
    os.environ["DAGSTER_HOME"] = str(home)
    return home
