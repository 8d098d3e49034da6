"""Probes a run's vectors for labels of nodes, beside degrees, spectral vectors and the nodes' given features."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.atomic_files import write_atomically, writing
from graphmill.errors import InputError
from graphmill.evaluation.embedding_files import Embeddings
from graphmill.evaluation.probe import VECTORS, LabelSettings, labels_of, probe
from graphmill.graph.attributes import SET as ATTRIBUTES
from graphmill.graph.graph_location import open_graph_of
from graphmill.graph.spectral import SpectralVectors, neighbourhoods
from graphmill.graph.typed_graph import TypedGraph
from graphmill.reports.validation import PROBE, of_export
from graphmill.systems.neighbours.settings import SpectralModel
from graphmill.usage.exported import Run
from graphmill.usage.labels import labelled_type, read_labels


def probe_run(path: Path, settings: LabelSettings) -> dict[str, Any]:
    """Probe the vectors of a run or an export (:func:`probe_embeddings`). A run keeps the result for its card.

    Without the graph, the vectors are compared with chance alone, and ``notes`` says so.
    """
    run = Run(path)
    try:
        graph = open_graph_of(run.path, run.manifest["data"])
    except (InputError, KeyError):
        graph = None
    result = probe_embeddings(run.embeddings, graph, settings)
    if (run.path / "report.json").is_file():
        keep_probe(run.path, result)
    return result


def keep_probe(run_dir: Path, result: Mapping[str, Any]) -> None:
    """Write the result as ``validation/probe.json``, with the hashes of the exported files that it is of."""
    with writing(run_dir / PROBE):
        (run_dir / PROBE).parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**result, "of": of_export(run_dir)}, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(run_dir / PROBE, f"{text}\n".encode())


def probe_embeddings(
    embeddings: Embeddings, graph: TypedGraph | None, settings: LabelSettings, root: Path = Path()
) -> dict[str, Any]:
    """Probe vectors for the labels of a file, beside other spaces of the graph; returns the figures as plain values.

    ``root``: the folder of a relative label file. Raises :class:`InputError` if the labels cannot be used, or if none is
    of a node with a vector.
    """
    column, texts = read_labels(settings, root, graph)
    ids = list(texts)
    kind, matches = labelled_type(settings, ids, embeddings.ids, embeddings.types, embeddings.type_names)
    rows = embeddings.rows_of([kind] * len(ids), ids)
    kept = np.flatnonzero(rows >= 0)
    labels = labels_of([texts[ids[place]] for place in kept], settings.kind)
    spaces, notes = {VECTORS: embeddings.vectors[rows[kept]]}, list[str]()
    if len(kept) < len(ids):
        notes.append(matches.sentence)
    if graph is None:
        notes.append("the graph is not here, so the vectors are compared with chance alone")
    else:
        spaces |= _other_spaces(graph, kind, [ids[place] for place in kept])
    result = probe(labels, spaces)
    return {
        "label": column,
        "file": settings.file,
        "node_type": kind,
        **result.to_dict(),
        "notes": notes,
        "coverage": [matches.to_dict()],
    }


def _other_spaces(graph: TypedGraph, kind: str, ids: list[str]) -> dict[str, np.ndarray]:
    """Spaces of the nodes with these ids: degrees (log(1 + training edges) by relation and end), spectral, features."""
    of_type = graph.node_type(kind)
    rows = graph.numbers_of(kind, ids)
    degrees = []
    for relation in graph.relations:
        for end, nodes in zip((relation.source, relation.target), graph.training_edges(relation), strict=True):
            if end == kind:
                degrees.append(np.log1p(np.bincount(nodes, minlength=of_type.count)))
    spectral = SpectralVectors.of(neighbourhoods(graph), SpectralModel().embedding_dim, seed=0).all()
    spaces = {"degree": np.stack(degrees, axis=1).astype(np.float32)} if degrees else {}
    spaces["spectral"] = spectral[of_type.offset : of_type.offset + of_type.count]
    for name in graph.feature_sets(kind):
        features = graph.features(kind, name)
        assert features is not None
        spaces["given attributes" if name == ATTRIBUTES else f"features {name}".strip()] = features
    return {name: np.asarray(space)[rows] for name, space in spaces.items()}
