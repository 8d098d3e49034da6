"""Labels of nodes from a file, as texts by id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.evaluation.probe import LabelSettings
from graphmill.ingest.aliases import read_aliases, renamed
from graphmill.ingest.id_columns import label_columns, text_columns
from graphmill.ingest.id_coverage import Coverage, coverage, nearest
from graphmill.ingest.source_files import located

SEPARATOR = "|"


def read_labels(settings: LabelSettings, root: Path = Path()) -> tuple[str, dict[str, list[str]]]:
    """The column of the labels, and the labels of each id. ``root``: the folder of a relative file.

    Raises :class:`InputError` if the file cannot be used.
    """
    file = located(settings.file, root)
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
