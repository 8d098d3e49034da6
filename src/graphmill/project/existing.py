"""Reads the settings of an existing Dagster project in its ``pyproject.toml`` or ``dg.toml``."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmill.errors import InputError


@dataclass(frozen=True)
class DgProject:
    """A Dagster project: its root, the module of its definitions, and the folder that has both."""

    root: Path
    module: str
    source: Path
    defs: Path


def dg_project(root: Path) -> DgProject | None:
    """The Dagster project in ``root``, or None.

    Raises :class:`InputError` for a settings file that is not TOML or has no ``root_module``.
    """
    for file, sections in (("dg.toml", ()), ("pyproject.toml", ("tool", "dg"))):
        if not (root / file).is_file():
            continue
        result: Any = _toml(root / file)
        for section in sections:
            result = result.get(section, {})
        project = result.get("project")
        if not isinstance(project, dict) or (sections and result.get("directory_type", "project") != "project"):
            continue
        package = project.get("root_module")
        if not isinstance(package, str) or not package:
            raise InputError(f"{root / file} belongs to a Dagster project but has no root_module; add it")
        # In the order in which dg looks for it.
        source = root / "src" if (root / "src").is_dir() else root
        module = str(project.get("code_location_target_module") or f"{package}.definitions")
        defs = str(project.get("defs_module") or f"{package}.defs")
        return DgProject(root, module, source, source / Path(*defs.split(".")))
    return None


def enclosing_project(folder: Path) -> DgProject | None:
    """The Dagster project that has ``folder`` (which need not exist) inside it, or None."""
    for directory in (folder, *folder.resolve().parents):
        if project := dg_project(directory):
            return project
    return None


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
