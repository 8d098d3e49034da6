"""The components' default resources, with which they work in any Dagster project, and how a project overrides them.

A project overrides a resource by one with the same key in a Python file below its ``defs/`` folder.
"""

import re
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg

from graphmill.errors import SettingsError
from graphmill.orchestration.home import OUTPUTS
from graphmill.orchestration.io_managers import ArtifactStore
from graphmill.orchestration.pipes import WorkerClient
from graphmill.orchestration.resources import AcceleratorResource

STORE = "graphmill_store"
"""Key of the IO manager of graphmill's assets. It is not ``io_manager``, which belongs to the project and may be of
another kind."""

_CLASSES: dict[str, type] = {"accelerator": AcceleratorResource, "worker": WorkerClient, STORE: ArtifactStore}
_NAMED = re.compile("|".join(rf"""["']{key}["']""" for key in _CLASSES))
# Files that are being loaded. A file that builds one of graphmill's components must not be loaded again for its
# resources.
_BUILDING: ContextVar[frozenset[Path]] = ContextVar("building", default=frozenset())


def shared_resources(context: dg.ComponentLoadContext) -> dict[str, Any]:
    """The resources that a component returns with its assets: the default of each one that the project does not define.

    All components of a project get the same objects, so that their definitions can be merged. If a component is built
    without a project's ``component_tree``, it returns only the store, and its caller defines the others.

    Raises:
        SettingsError: the project has a resource of another kind with one of the keys.
    """
    if getattr(context, "component_tree", None) is None:
        return {STORE: _default(STORE, context.project_root)}
    given: dict[str, Any] = {}
    for file, resources in _given(context):
        for key, kind in _CLASSES.items():
            if key in resources and not isinstance(resources[key], kind):
                raise SettingsError(
                    f"{file} has a resource '{key}' that is no {kind.__name__}: graphmill's assets use this key; give "
                    "yours another one"
                )
        given |= resources
    return _defaults(context.project_root, without=frozenset(given))


def _given(context: dg.ComponentLoadContext) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The resources with these keys in Python files below ``defs/``."""
    tree = context.component_tree
    for file in sorted(tree.defs_module_path.rglob("*.py")):
        building = _BUILDING.get()
        if file in building or not _NAMED.search(file.read_text(encoding="utf-8", errors="replace")):
            continue
        try:
            tree.find_decl_at_path(file)
        except Exception:  # Dagster's only error for a module without definitions
            continue
        reset = _BUILDING.set(building | {file})
        try:
            yield file.relative_to(tree.defs_module_path.parent), dict(tree.build_defs_at_path(file).resources or {})
        finally:
            _BUILDING.reset(reset)


@cache
def _default(key: str, root: Path) -> Any:
    if key == STORE:
        return ArtifactStore(base_path=str(root / OUTPUTS))
    return _CLASSES[key]()


def _defaults(root: Path, without: frozenset[str]) -> dict[str, Any]:
    return {key: _default(key, root) for key in _CLASSES if key not in without}
