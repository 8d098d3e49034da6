"""Counts what is unusual but valid in edges and nodes. Readers report it."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def edge_oddities(relation: np.ndarray, head: np.ndarray, tail: np.ndarray, nodes: int) -> dict[str, int]:
    """``duplicate_rows``: rows with the (relation, head, tail) of an earlier row; ``self_loops``: rows with head = tail.

    The edges are three int32 arrays; ``nodes`` is the number of nodes. It sorts one 64-bit key a row, relation by relation.
    """
    kinds = int(relation.max(initial=0)) + 1
    order = np.argsort(relation.astype(np.uint16) if kinds < 2**16 else relation, kind="stable")
    starts, duplicates = np.flatnonzero(np.diff(relation[order], prepend=-1)), 0
    for rows in np.split(order, starts[1:]):
        key = np.sort(head[rows].astype(np.int64) * nodes + tail[rows])
        duplicates += int(np.count_nonzero(key[1:] == key[:-1]))
    return {"duplicate_rows": duplicates, "self_loops": int(np.count_nonzero(head == tail))}


@dataclass(frozen=True)
class NodeOddities:
    """Counts over the nodes of one file.

    ``ids_in_two_types``: ids of
    nodes of several types (normal, and the reason why an id alone is not a key). ``ids_with_two_indices``: (type, id)
    with several indices. ``spaced_ids``: ids that start or end with white space. ``lookalike_ids``: ids that differ
    from another one of their type only in their writing (:func:`one_writing`). ``ids_of_no_value``: NaN and the like.
    """

    ids_in_two_types: int = 0
    ids_with_two_indices: int = 0
    spaced_ids: int = 0
    lookalike_ids: int = 0
    ids_of_no_value: int = 0


def one_writing(ids: pa.Array) -> pa.Array:
    """Ids in one writing: composed Unicode, no white space around them, ``7`` for ``7.0`` and ``007``."""
    if not pc.all(pc.string_is_ascii(ids)).as_py():
        ids = pc.utf8_normalize(ids, "NFC")
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(ids), r"^([+-]?)0*([0-9]+?)(\.0+)?$", r"\1\2")


_UNSEEN = ("Zs", "Cc", "Cf")
"""Unicode categories of blanks and of invisible characters."""
_JOINT = re.compile(r"(?<=[^\W\d_])[-_]+(?=[^\W\d_])")
"""Marks between words, not between numbers."""


def spellings(names: Iterable[str]) -> list[tuple[str, ...]]:
    """The names that differ only by case, Unicode form, or blanks and marks between words, in groups."""
    groups: dict[str, list[str]] = {}
    for name in names:
        visible = [c for c in unicodedata.normalize("NFKC", name).casefold() if unicodedata.category(c) not in _UNSEEN]
        groups.setdefault(_JOINT.sub("", "".join(visible)), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def node_oddities(nodes: pa.Table) -> NodeOddities:
    """Count over a ``nodes`` table."""
    if nodes.num_rows == 0:
        return NodeOddities()
    ids, types = nodes["id"].combine_chunks(), nodes["type"].combine_chunks()
    by_type = pa.table({"id": ids, "type": types.indices})
    distinct = by_type.group_by(["id", "type"]).aggregate([([], "count_all")])
    several = distinct.group_by("id").aggregate([([], "count_all")])
    composed = pa.table({"id": one_writing(distinct["id"]), "type": distinct["type"]})
    composed = composed.group_by(["id", "type"]).aggregate([])
    return NodeOddities(
        pc.sum(pc.greater(several["count_all"], 1)).as_py(),
        pc.sum(pc.greater(distinct["count_all"], 1)).as_py(),
        pc.sum(pc.not_equal(pc.utf8_trim_whitespace(ids), ids)).as_py(),
        distinct.num_rows - composed.num_rows,
        pc.sum(pc.is_in(pc.utf8_lower(ids), pa.array(("nan", "none", "null", "<na>", "nat")))).as_py(),
    )
