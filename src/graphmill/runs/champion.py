"""Finds the live version of a model. Its runs are in ``06_models/D/M``, its versions in ``07_promoted/D/M``.

The runs on a snapshot S of the dataset are in ``06_models/D/snapshots/S/M``.

The package ``promotion`` makes versions. This module only finds them.
"""

from __future__ import annotations

from pathlib import Path

from graphmill.evaluation.embedding_files import read_embeddings
from graphmill.export.alignment import Reference, aligned_file
from graphmill.export.manifests import read_manifest, read_version
from graphmill.graph.graph_location import SNAPSHOTS

MODELS, PROMOTED = "06_models", "07_promoted"


def promoted_folder(runs: Path) -> Path | None:
    """The folder of the versions of a model whose runs are in ``runs``; None if ``runs`` is not below ``06_models``.

    The trials of a search, in ``06_models/D/M/search-…/runs``, are runs of ``D/M``.
    """
    runs = runs.resolve()
    for folder in runs.parents:
        if folder.name == MODELS:
            return folder.parent.joinpath(PROMOTED, *model_of(runs))
    return None


def model_of(runs: Path) -> tuple[str, str]:
    """The names of the dataset and the model whose runs are in ``runs``."""
    model = runs.parents[1] if is_of_a_search(runs) else runs
    snapshot = model.parent.parent.name == SNAPSHOTS
    return model.parents[2 if snapshot else 0].name, model.name


def is_of_a_search(runs: Path) -> bool:
    """Whether ``runs`` holds the trials of a search."""
    return runs.name == "runs" and runs.parent.name.startswith("search-")


def champion_folder(runs: Path) -> Path | None:
    """The folder of the live version, with the link resolved; None if nothing is live."""
    versions = promoted_folder(runs)
    if versions is None or not (versions / "current").exists():
        return None
    return (versions / "current").resolve()


def champion_reference(run: Path, system: str, fingerprint: str, epoch: int) -> Reference | None:
    """Return the live version's vectors, to which an export of ``system`` is aligned; None if nothing is live, or a
    version of another system is.

    The run of the live version itself is aligned to its own vectors, and its space keeps its name. So exporting it
    again changes nothing.
    """
    folder = champion_folder(run.parent)
    if folder is None:
        return None
    about = read_version(folder)
    if about["system"] != system:
        return None
    space = folder.name
    if (about["fingerprint"], about["epoch"]) == (fingerprint, epoch):
        before = read_manifest(folder).get("alignment", {})
        if not before or "problem" in before:
            return None
        space = before["to"]
    return Reference(space, read_embeddings(aligned_file(folder)))
