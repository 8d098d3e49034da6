"""Writes the weights of a model without vectors of nodes, the tables of its relations and nodes, and the manifest last."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from graphmill.arrays import save_safetensors
from graphmill.atomic_files import only_writer, replacing
from graphmill.export.manifests import SCORER_FORMAT, write_manifest
from graphmill.parquet import write_parquet
from graphmill.verified_files import MANIFEST

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
        about = {"relations": [list(relation.key) for relation in graph.relations], **about}
        return write_manifest(directory, SCORER_FORMAT, (nodes.num_rows, 0), (WEIGHTS, RELATIONS, NODES), about)
