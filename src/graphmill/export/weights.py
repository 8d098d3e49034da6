"""Writes the weights of a model without vectors of nodes, the tables of its relations and nodes, and the manifest last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from graphmill.arrays import save_safetensors
from graphmill.atomic_files import only_writer, replacing, write_atomically, writing
from graphmill.export.manifests import FORMAT_NUMBER, SCORER_FORMAT
from graphmill.parquet import write_parquet
from graphmill.verified_files import MANIFEST, describe_file, sealed

if TYPE_CHECKING:
    from torch import nn

    from graphmill.graph.typed_graph import TypedGraph

WEIGHTS, RELATIONS, NODES = "weights.safetensors", "relations.parquet", "nodes.parquet"


def export_weights(model: nn.Module, graph: TypedGraph, directory: Path, about: dict[str, Any]) -> dict[str, Any]:
    """Write ``weights.safetensors`` (parameters and buffers by name), ``relations.parquet`` (index, source, relation,
    target, edges, as the graph numbers them), ``nodes.parquet`` (node_index, node_id, node_name, node_type, in the graph's
    order) and the manifest with their sizes and SHA-256; returns the manifest.

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
            columns = zip(*((each.index, *each.key, each.edges) for each in graph.relations), strict=True)
            names = ("index", "source", "relation", "target", "edges")
            relations = pa.table({n: list(c) for n, c in zip(names, columns, strict=True)})
            nodes = graph.node_table().select(["index", "id", "name", "type"])
            nodes = nodes.rename_columns([f"node_{name}" for name in nodes.column_names])
            for name, table in ((RELATIONS, relations), (NODES, nodes)):
                with replacing(directory / name) as part:
                    write_parquet(table, part.file)
            manifest = {
                "format": SCORER_FORMAT,
                "version": FORMAT_NUMBER,
                "rows": nodes.num_rows,
                "dim": 0,
                "files": {name: describe_file(directory / name) for name in (WEIGHTS, RELATIONS, NODES)},
                "relations": [list(relation.key) for relation in graph.relations],
                **about,
            }
            write_atomically(
                directory / MANIFEST, (json.dumps(sealed(manifest), indent=2, sort_keys=True) + "\n").encode()
            )
    return manifest
