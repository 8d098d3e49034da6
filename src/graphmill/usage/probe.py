"""Labels of nodes, from a file or a stored attribute: as classes of a graph's nodes, and for a probe of a run's vectors,
beside degrees, spectral vectors and the nodes' given features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.evaluation.embedding_files import Embeddings, read_embeddings
from graphmill.evaluation.probe import LEAST, VECTORS, LabelSettings, labels_of, probe
from graphmill.evaluation.ranking.parts import NodeLabels
from graphmill.export.manifests import export_folder, read_manifest
from graphmill.graph.attributes import SET as ATTRIBUTES
from graphmill.graph.spectral import SpectralVectors, neighbourhoods
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.id_columns import Coverage, coverage, label_columns, nearest, read_aliases, renamed, text_columns
from graphmill.ingest.sources import located
from graphmill.reports.validation import PROBE, graph_of, of_export
from graphmill.systems.neighbours.settings import SpectralModel
from graphmill.training.run_directory import RunDirectory

SEPARATOR = "|"
QUARTERS = (0.25, 0.5, 0.75)


def read_labels(
    settings: LabelSettings, root: Path = Path(), graph: TypedGraph | None = None
) -> tuple[str, dict[str, list[str]]]:
    """The column of the labels, and the labels of each id. ``root``: the folder of a relative file.

    An attribute of the ``graph`` with the name ``settings.file`` takes the place of a file that is not there. Raises
    :class:`InputError` if neither can be used.
    """
    file = located(settings.file, root)
    if graph is not None and not Path(file).exists() and (stored := _stored(graph, settings)):
        return settings.file, stored
    key, column = label_columns(file, settings.id, settings.column)
    table = text_columns(file, (key, column), "Labels are", optional=(column,))
    table = table.filter(pc.not_equal(pc.utf8_trim_whitespace(table[column]), ""))
    aliases = read_aliases(located(settings.aliases, root) if settings.aliases else "", settings.repair_ids)
    ids = renamed(table[key].combine_chunks(), aliases).to_pylist()
    labels: dict[str, dict[str, None]] = {}
    for node, text in zip(ids, table[column].to_pylist(), strict=True):
        parts = text.split(SEPARATOR) if settings.kind in ("auto", "classes") else [text]
        labels.setdefault(node, {}).update(dict.fromkeys(part.strip() for part in parts if part.strip()))
    return column, {node: list(texts) for node, texts in labels.items()}


def _stored(graph: TypedGraph, settings: LabelSettings) -> dict[str, list[str]]:
    """The values of an attribute by id, from its encoded columns; {} if the graph has no such attribute.

    Raises :class:`InputError` if they cannot be read back: a text, or more values than have a column each.
    """
    by_id: dict[str, list[str]] = {}
    for kind in [each for each in graph.node_types if settings.node_type in ("", each.name)]:
        ids = graph.node_table().slice(kind.offset, kind.count)["id"].to_pylist()
        first = 0
        for encoder in graph.attribute_encoders(kind.name):
            columns, first = slice(first, first + encoder.width), first + encoder.width
            if encoder.name != settings.file:
                continue
            values = encoder.parameters.get("values", [])
            if encoder.kind not in ("number", "date") and not values:
                raise InputError(
                    f"the attribute {encoder.name} is a text, or has too many values to be a label; give a table of labels"
                )
            every = np.asarray(graph.features(kind.name, ATTRIBUTES))
            encoded, known = every[:, columns], np.any(every, axis=1)  # a node without attributes has a row of zeros
            if values:
                texts = [[values[place] for place in np.flatnonzero(row)] for row in encoded]
            else:
                numbers = (
                    encoded[:, 0].astype(np.float64) * encoder.parameters["deviation"] + encoder.parameters["mean"]
                )
                known = known & (encoded[:, 1] == 0)
                texts = [[_number_text(number, encoder.kind)] for number in numbers]
            by_id |= {node: text for node, text, has in zip(ids, texts, known, strict=True) if has and text}
    return by_id


def _number_text(number: float, kind: str) -> str:
    """Six digits; of a date (milliseconds since 1970) its year."""
    return str(np.datetime64(round(number), "ms").astype("datetime64[Y]")) if kind == "date" else f"{number:.6g}"


def labelled_type(
    settings: LabelSettings, wanted: Sequence[str], ids: np.ndarray, types: np.ndarray, names: Sequence[str]
) -> tuple[str, Coverage]:
    """The node type of the labels, that of the settings, else the one that has most of the ``wanted`` ids; and how they
    match its ids.

    ``ids``, ``types`` [N]: all nodes, with numbers of ``names``. Raises :class:`InputError` if none of the ids match, two
    types have as many, or there is no such type.
    """
    if settings.node_type and settings.node_type not in names:
        raise InputError(f"there are no nodes of type {settings.node_type!r}; there are of {', '.join(names)}")
    chosen = [settings.node_type] if settings.node_type else list(names)
    texts, given = ids.astype(str), np.array(list(wanted), dtype=str)
    of_types = {kind: texts[types == names.index(kind)] for kind in chosen}
    counts = np.array([np.isin(each, given).sum() for each in of_types.values()])
    best = [kind for kind, count in zip(chosen, counts, strict=True) if count == counts.max()]
    arrays = {kind: pa.array(each.tolist(), pa.string()) for kind, each in of_types.items()}
    if not counts.max():
        near = nearest("the labels", pa.array(given.tolist(), pa.string()), arrays)
        samples = "" if near.repair else f"; {chosen[0]} ids are such as {str(of_types[chosen[0]][0])!r}"
        raise InputError(f"{settings.file}: {near.sentence}{samples}")
    if len(best) > 1:
        raise InputError(
            f"{settings.file}: its ids are those of several node types ({', '.join(best)}); name one as node_type"
        )
    return best[0], coverage(
        "the labels", pa.array(given.tolist(), pa.string()), f"the {best[0]} nodes", arrays[best[0]]
    )


def node_labels(graph: TypedGraph, settings: LabelSettings) -> NodeLabels:
    """The classes of a graph's nodes; quarters of a number's values.

    Raises :class:`InputError` if the labels cannot be used, if none is of a node of the graph, or if all classes are small.
    """
    column, texts = read_labels(settings, graph=graph)
    names = [each.name for each in graph.node_types]
    ids = np.array(graph.node_table()["id"].to_pylist(), dtype=str)
    types = np.repeat(np.arange(len(names)), [each.count for each in graph.node_types])
    kind, matches = labelled_type(settings, list(texts), ids, types, names)
    of = graph.node_type(kind)
    ids_of_type = ids[of.offset : of.offset + of.count].tolist()
    kept = [place for place, node in enumerate(ids_of_type) if node in texts]
    labels = labels_of([texts[ids_of_type[place]] for place in kept], settings.kind)
    classes, values = labels.classes, labels.values > 0
    if not classes and labels.kind != "number":
        raise InputError(f"{settings.file}: no class of {column} has {LEAST} nodes or more")
    if not classes:  # numbers
        bounds = np.quantile(labels.values[:, 0], QUARTERS)
        number = np.searchsorted(bounds, labels.values[:, 0], side="right")
        classes = (f"below {bounds[0]:g}", *(f"from {bound:g}" for bound in bounds))
        values = number[:, None] == np.arange(len(classes))
    member = np.zeros((len(ids), len(classes)), bool)
    member[np.array(kept) + of.offset] = values
    return NodeLabels(column, classes, member, matches.to_dict())


def probe_run(path: Path, settings: LabelSettings) -> dict[str, Any]:
    """Probe the vectors of a run or an export (:func:`probe_embeddings`). A run keeps the result for its card.

    Without the graph, the vectors are compared with chance alone, and ``notes`` says so.
    """
    path = path.resolve() if path.is_symlink() else path  # `current` is a link to a version
    folder = export_folder(path)
    read_manifest(folder)  # without one, an export is not finished
    result = probe_embeddings(read_embeddings(folder), graph_of(path), settings)
    if (path / "report.json").is_file():
        keep_probe(path, result)
    return result


def keep_probe(run_dir: Path, result: Mapping[str, Any]) -> None:
    """Write the result as ``validation/probe.json``, with the hashes of the exported files that it is of."""
    RunDirectory(run_dir).write_json(PROBE, {**result, "of": of_export(run_dir)})


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
