"""The resources that the components bring, so that they work in any Dagster project, and how a project gives its own.

A project overrides one by a resource under the same key in a Python file below its ``defs/`` folder.
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
"""Key of the IO manager of our assets; not ``io_manager``, which is the project's own and may be of another kind."""

_CLASSES: dict[str, type] = {"accelerator": AcceleratorResource, "worker": WorkerClient, STORE: ArtifactStore}
_OF_BEFORE = "io_manager"
"""Where projects of earlier releases gave their store, in place of :data:`STORE`."""
_NAMED = re.compile("|".join(rf"""["']{key}["']""" for key in (*_CLASSES, _OF_BEFORE)))
# Files that are being built: a file that builds one of our components must not be asked by it for its resources.
_BUILDING: ContextVar[frozenset[Path]] = ContextVar("building", default=frozenset())


def shared_resources(context: dg.ComponentLoadContext) -> dict[str, Any]:
    """What a component returns beside its assets: the default of each resource that the project does not give.

    The same objects for all components of a project, so that their definitions merge. The store alone where a component
    is built without a project's ``component_tree``: its caller gives the others.

    Raises:
        SettingsError: the project has a resource of another kind under one of the keys.
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
    if STORE not in given and isinstance(given.get(_OF_BEFORE), ArtifactStore):
        return {**_defaults(context.project_root, without=frozenset(given)), STORE: given[_OF_BEFORE]}
    return _defaults(context.project_root, without=frozenset(given))


def _given(context: dg.ComponentLoadContext) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The resources of Python files below ``defs/`` that name one of the keys."""
    tree = context.component_tree
    for file in sorted(tree.defs_module_path.rglob("*.py")):
        building = _BUILDING.get()
        if file in building or not _NAMED.search(file.read_text(encoding="utf-8", errors="replace")):
            continue
        try:
            tree.find_decl_at_path(file)
        except Exception:  # Dagster's only word for a module that is no definitions of its own
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
