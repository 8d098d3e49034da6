"""Column maps: which column of a node file or an edge file has which role. A format of graphs is a set of such maps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from graphmill.ingest.cells import Column


@dataclass(frozen=True)
class EdgeEnd:
    """The columns of one end of the edges, empty if there is none. ``constant``: the type or ID space of all rows, if no
    column has it."""

    id: str
    type: str = ""
    name: str = ""
    source: str = ""
    index: str = ""
    constant: str = ""


@dataclass(frozen=True)
class NodeSource:
    """One node file: its columns (empty: none), or values that hold for all rows.

    ``space``: the ID space of its ids; empty: their type. ``only_where``: rows with a blank in this column are of
    another kind and are skipped. ``negated``: columns that say that a node is withdrawn (deprecated, obsolete).
    """

    path: str
    id: str
    type: str = ""
    name: str = ""
    source: str = ""
    constant: str = ""
    space: str = ""
    delimiter: str = "auto"
    header: bool = True
    only_where: str = ""
    names: tuple[str, ...] = ()
    quoted: bool = True
    negated: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns to read."""
        names = (self.id, self.type, self.name, self.source)
        texts = [
            Column(name, required=name == self.id and not self.only_where, names=name in (self.id, self.type))
            for name in names
        ]
        return merged_columns([*texts, *(Column(name, "category") for name in self.negated)])


@dataclass(frozen=True)
class EdgeSource:
    """One edge file: its columns (empty: none), or one relation for all rows.

    ``prefix``: removed from relations. ``only_where``: as for nodes. ``types_required``: a blank type is a reject; else
    the type of such an end is looked up among the nodes. ``split``: that of all rows. ``names``, ``quoted``: as of
    :class:`graphmill.ingest.row_files.RowFile`. ``trimmed``: white space around ids and relations is taken off.
    ``listed_only``: a file with all ids; a row with another one is a reject. ``relations``: all relations, and their file.
    ``negated``: columns that say that a statement does not hold (any more).
    """

    path: str
    head: EdgeEnd
    tail: EdgeEnd
    relation: str = ""
    relation_constant: str = ""
    display_relation: str = ""
    timestamp: str = ""
    delimiter: str = "auto"
    header: bool = True
    prefix: str = ""
    only_where: str = ""
    types_required: bool = False
    split: int | None = None
    names: tuple[str, ...] = ()
    quoted: bool = True
    trimmed: bool = False
    listed_only: str = ""
    relations: tuple[pa.Array | None, str] = None, ""
    negated: tuple[str, ...] = ()
    weight: str = ""
    confidence: str = ""
    evidence: str = ""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns to read."""
        required, ends = not self.only_where, (self.head, self.tail)
        return merged_columns(
            [
                Column(self.relation, "category", required=required, names=True),
                Column(self.display_relation, "category", names=True),
                *(Column(end.index, "whole", required=True) for end in ends),
                *(Column(end.id, required=required, names=True) for end in ends),
                *(Column(end.type, required=self.types_required, names=True) for end in ends),
                *(Column(name) for end in ends for name in (end.name, end.source)),
                Column(self.timestamp, "category"),
                *(Column(name, "category") for name in (self.weight, self.confidence, self.evidence)),
                *(Column(name, "category") for name in self.negated),
            ]
        )


def merged_columns(wanted: Iterable[Column]) -> tuple[Column, ...]:
    """The columns that have a name, each once. A column with two roles (such as id and name) is required if either is."""
    merged: dict[str, Column] = {}
    for column in wanted:
        if column.name:
            known = merged.setdefault(column.name, column)
            required, names = known.required or column.required, known.names or column.names
            merged[column.name] = replace(known, required=required, names=names)
    return tuple(merged.values())
