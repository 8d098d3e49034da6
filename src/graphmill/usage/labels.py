"""Labels of nodes from a file: as texts by id, and as classes of a graph's nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.evaluation.probe import LabelSettings, labels_of
from graphmill.evaluation.ranking.parts import NodeLabels
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.aliases import read_aliases, renamed
from graphmill.ingest.id_columns import label_columns, text_columns
from graphmill.ingest.id_coverage import coverage
from graphmill.ingest.source_files import located

SEPARATOR = "|"
QUARTERS = (0.25, 0.5, 0.75)


def read_labels(settings: LabelSettings, root: Path = Path()) -> tuple[str, dict[str, list[str]]]:
    """The column of the labels, and the labels of each id. ``root``: the folder of a relative file.

    Raises :class:`InputError` if the file cannot be used.
    """
    file = located(settings.file, root)
    key, column = label_columns(file, settings.id, settings.column)
    table = text_columns(file, (key, column), "Labels are", optional=(column,))
    table = table.filter(pc.not_equal(pc.utf8_trim_whitespace(table[column]), ""))
    aliases = read_aliases(located(settings.aliases, root) if settings.aliases else "")
    ids = renamed(table[key].combine_chunks(), aliases).to_pylist()
    found: dict[str, dict[str, None]] = {}
    for node, text in zip(ids, table[column].to_pylist(), strict=True):
        parts = text.split(SEPARATOR) if settings.kind in ("auto", "classes") else [text]
        found.setdefault(node, {}).update(dict.fromkeys(part.strip() for part in parts if part.strip()))
    return column, {node: list(texts) for node, texts in found.items()}


def labelled_type(
    settings: LabelSettings, wanted: Sequence[str], ids: np.ndarray, types: np.ndarray, names: Sequence[str]
) -> str:
    """The node type of the labels: that of the settings, else the one that has most of the ``wanted`` ids.

    ``ids``, ``types`` [N]: all nodes, with numbers of ``names``. Raises :class:`InputError` if two types have as many, or
    there is no such type.
    """
    if settings.node_type:
        if settings.node_type not in names:
            raise InputError(f"there are no nodes of type {settings.node_type!r}; there are of {', '.join(names)}")
        return settings.node_type
    listed = np.isin(ids.astype(str), np.array(list(wanted), dtype=str))
    counts = np.bincount(types[listed], minlength=len(names))
    best = np.flatnonzero(counts == counts.max())
    if len(best) > 1 and counts.max():
        kinds = ", ".join(names[int(number)] for number in best)
        raise InputError(f"{settings.file}: its ids are those of several node types ({kinds}); name one as node_type")
    return names[int(best[0])]


def node_labels(graph: TypedGraph, settings: LabelSettings, root: Path = Path()) -> NodeLabels:
    """The classes of a graph's nodes; quarters of a number's values.

    Raises :class:`InputError` if the labels cannot be used, or if none is of a node of the graph.
    """
    column, texts = read_labels(settings, root)
    names = [each.name for each in graph.node_types]
    ids = np.array(graph.node_table()["id"].to_pylist(), dtype=str)
    types = np.repeat(np.arange(len(names)), [each.count for each in graph.node_types])
    of = graph.node_type(labelled_type(settings, list(texts), ids, types, names))
    own = ids[of.offset : of.offset + of.count].tolist()
    kept = [place for place, node in enumerate(own) if node in texts]
    if not kept:
        matches = coverage(
            "the labels", pa.array(texts, pa.string()), f"the {of.name} nodes", pa.array(own, pa.string())
        )
        raise InputError(f"{settings.file}: {matches.sentence}; {of.name} ids are such as {own[0]!r}")
    labels = labels_of([texts[own[place]] for place in kept], settings.kind)
    classes, values = labels.classes, labels.values > 0
    if not classes:  # numbers
        bounds = np.quantile(labels.values[:, 0], QUARTERS)
        number = np.searchsorted(bounds, labels.values[:, 0], side="right")
        classes = (f"below {bounds[0]:g}", *(f"from {bound:g}" for bound in bounds))
        values = number[:, None] == np.arange(len(classes))
    member = np.zeros((len(ids), len(classes)), bool)
    member[np.array(kept) + of.offset] = values
    return NodeLabels(column, classes, member)
