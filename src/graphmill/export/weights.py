"""Writes the weights of a model without vectors of nodes, the table of its relations, and the manifest last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from graphmill.arrays import save_safetensors
from graphmill.atomic_files import only_writer, replacing, write_atomically, writing
from graphmill.export.manifests import FORMAT_NUMBER, SCORER_FORMAT, read_manifest, require_number
from graphmill.parquet import write_parquet
from graphmill.verified_files import MANIFEST, REMEDIES, describe_file, read_sealed, sealed, verified_file

if TYPE_CHECKING:
    from torch import nn

    from graphmill.graph.typed_graph import Relation

SCORER, WEIGHTS, RELATIONS = "scorer", "weights.safetensors", "relations.parquet"


def export_weights(
    model: nn.Module, relations: Sequence[Relation], directory: Path, about: dict[str, Any]
) -> dict[str, Any]:
    """Write ``weights.safetensors`` (parameters and buffers by name), ``relations.parquet`` (index, source, relation,
    target, as the graph numbers them) and the manifest with their sizes and SHA-256; returns the manifest.

    Without a manifest, the files are not complete.

    Raises:
        ResourceError: the disk is full or read-only.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with only_writer(directory):
            (directory / MANIFEST).unlink(missing_ok=True)
            tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
            save_safetensors(directory / WEIGHTS, tensors, "torch")
            columns = zip(*((each.index, *each.key, each.edges) for each in relations), strict=True)
            names = ("index", "source", "relation", "target", "edges")
            table = pa.table({n: list(c) for n, c in zip(names, columns, strict=True)})
            with replacing(directory / RELATIONS) as part:
                write_parquet(table, part.file)
            files = {name: describe_file(directory / name) for name in (WEIGHTS, RELATIONS)}
            manifest = {"format": SCORER_FORMAT, "version": FORMAT_NUMBER, "files": files, **about}
            write_atomically(
                directory / MANIFEST, (json.dumps(sealed(manifest), indent=2, sort_keys=True) + "\n").encode()
            )
    return manifest


def whole_export(path: Path) -> tuple[Path, dict[str, Any]]:
    """The export of a run, or in ``path`` itself: its folder and its manifest, which has no ``rows`` if it is of weights.

    Raises:
        InputError: there is no complete export, or a file that is read from it differs from the manifest.
    """
    directory = path / SCORER
    if (directory / MANIFEST).is_file():
        remedy = REMEDIES[SCORER_FORMAT]
        manifest = read_sealed(directory / MANIFEST, f"{path} holds no finished export", remedy)
        require_number(directory / MANIFEST, manifest, "export")
        for name in (WEIGHTS, RELATIONS):
            verified_file(directory, name)
        return directory, manifest
    directory = path / "embeddings" if (path / "embeddings").is_dir() else path
    return directory, read_manifest(directory)
