"""Finds a run's graph, even after the project was renamed, copied or mounted elsewhere.

A manifest holds the graph's path, relative to the project's root, and its content hash. A graph is accepted only if its
hash is the same; the path only says where to look first.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graphmill.errors import InputError
from graphmill.graph.storage import read_manifest
from graphmill.graph.typed_graph import TypedGraph
from graphmill.verified_files import Verify

SNAPSHOTS = "snapshots"
"""The folder of a dataset's snapshots, ``<dataset>/snapshots/<name>``: their graphs and feature tables."""
_ROOT_FILES = ("workspace.yaml", "pyproject.toml")
_LEVELS = 8
"""Number of folders above a run that are searched."""
_GIT_SECONDS = 5


def snapshot_of(graph: Path) -> str:
    """The name of the snapshot whose graph is in this folder; "" for the graph of a dataset without snapshots."""
    return graph.parent.name if graph.parent.parent.name == SNAPSHOTS else ""


def stored_path(path: Path, run: Path) -> str:
    """``path`` as a run's manifest stores it: relative to the project's root, or to the closest folder above both.

    It is absolute if that folder is the root of the file system.
    """
    path, run = path.resolve(), run.resolve()
    for root in run.parents:
        if path.is_relative_to(root) and any((root / name).is_file() for name in _ROOT_FILES):
            return str(path.relative_to(root))
    common = Path(os.path.commonpath([path, run]))
    return str(path) if common == Path(common.anchor) else str(path.relative_to(common))


def commit_of(folder: Path) -> dict[str, str]:
    """``{"commit": …}`` of the git repository that contains ``folder``, with ``-dirty`` if it has changes; {} if there
    is none."""
    while not folder.exists():
        folder = folder.parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": described.stdout.strip()} if described.returncode == 0 and described.stdout.strip() else {}


def open_graph_of(run: Path, data: Mapping[str, Any], verify: Verify = "changed") -> TypedGraph:
    """The graph that a run was trained on; ``data``: ``path`` and ``content_hash`` of its manifest.

    It looks at the manifest's path, then at the same relative path below each folder above the run and above the
    working directory, then among the graphs beside the run.

    Raises:
        InputError: it was not found; the message says where it was, and whether another graph is there now.
    """
    wanted, replaced = str(data["content_hash"]), None
    above = (*run.resolve().parents[:_LEVELS], Path.cwd(), *Path.cwd().parents[:_LEVELS])
    # Only the path itself, if it is absolute.
    stored = list(dict.fromkeys(folder / str(data["path"]) for folder in above))
    for place in (*stored, *_beside(run.resolve())):
        try:
            content = str(read_manifest(place)["content_hash"])
        except InputError:
            continue
        if content == wanted:
            return TypedGraph.open(place, verify)
        replaced = replaced or (place if place in stored else None)
    if replaced is not None:
        raise InputError(
            f"{replaced} is no longer the graph that {run} was trained on; rebuild that graph, or train again"
        )
    raise InputError(
        f"the graph that {run} was trained on is not here: it was {data['path']} (content hash {wanted[:16]}…); copy it to "
        "that place below the project's folder, or build it again from the same files"
    )


def _beside(run: Path) -> Iterator[Path]:
    for folder in run.parents[:3]:
        try:
            yield from sorted(path.parent for path in folder.glob("*/manifest.json") if path.parent != run)
        except OSError:
            continue
