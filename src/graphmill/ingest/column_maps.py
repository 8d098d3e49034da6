"""Column maps: which column of a node file or an edge file has which role, and the settings of ``kg_csv`` that say so.

A format of graphs is a set of such maps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator, model_validator

from graphmill.ingest.cells import Column
from graphmill.ingest.tables import KEEP_NEGATED, MIN_CONFIDENCE
from graphmill.settings import Settings, setting


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


_PARTS = ("index", "id", "type", "name", "source")
PRIMEKG = ("relation", "display_relation", *(f"{end}_{part}" for end in ("x", "y") for part in _PARTS))
"""The columns of PrimeKG's ``kg.csv``, in its order."""


def checked_delimiter(value: str) -> str:
    """``auto``, or the delimiter as one character. Raises ``ValueError`` for an invalid delimiter."""
    value = {"tab": "\t", "\\t": "\t", "space": " "}.get(value, value)
    if value in ("auto", "::"):
        return value
    if len(value) != 1 or not value.isascii() or value.isalnum() or value in '"\r\n\0':
        raise ValueError(
            "the delimiter must be one ASCII character, such as , or ; or |, ::, the words tab or space, or auto"
        )
    return value


Delimiter = Annotated[str, AfterValidator(checked_delimiter)]
DELIMITER: Any = setting(
    "auto", "one ASCII character between fields, ::, the words tab or space (any white space), or auto: what fits"
)
HEADER: Any = setting(True, "whether the first line has column names; if not, the columns are named 0, 1, ...")
"""The fields ``delimiter`` and ``header`` of the settings of tables."""


class EdgeColumns(Settings):
    """The name of the column for each role in a table of edges."""

    relation: str = setting("", "column with the relation's name")
    display_relation: str = setting("", "column with the relation as shown to people; empty: the relation itself")
    head_id: str = setting("", "column with the head's id")
    head_type: str = setting("", "column with the head's node type")
    head_name: str = setting("", "column with the head's name; empty: the id")
    head_source: str = setting("", "column with the vocabulary from which the head's id comes")
    tail_id: str = setting("", "column with the tail's id")
    tail_type: str = setting("", "column with the tail's node type")
    tail_name: str = setting("", "column with the tail's name; empty: the id")
    tail_source: str = setting("", "column with the vocabulary from which the tail's id comes")
    timestamp: str = setting(
        "",
        "column with the edge's time, for split.method: by_time: a number (year, seconds, milliseconds) or an ISO "
        "8601 date; a blank cell means no time",
    )
    weight: str = setting("", "column with the edge's weight, a number; blank: 1")
    confidence: str = setting("", "column with how sure the edge is, a number; blank: not known")
    evidence: str = setting("", "column with what the edge rests on, a text that explanations show; blank: none")


class KgColumns(EdgeColumns):
    """The name of the column for each role; all empty means PrimeKG's twelve columns."""

    head_index: str = setting(
        "", "column with the head's number, unique over all types; empty: nodes are keyed by (type, id)"
    )
    tail_index: str = setting("", "column with the tail's number; set both this and head_index, or neither")
    relation_constant: str = setting("", "one relation for all rows, if no column has it")
    head_type_constant: str = setting("", "one node type for all heads, if no column has it")
    tail_type_constant: str = setting("", "one node type for all tails, if no column has it")

    @model_validator(mode="after")
    def _complete(self) -> KgColumns:
        if not any(getattr(self, name) for name in KgColumns.model_fields):
            return self
        for part in ("relation", "head_type", "tail_type"):
            column, constant = getattr(self, part), getattr(self, f"{part}_constant")
            if not column and not constant:
                raise ValueError(f"the column map lacks {part}: name its column, or set {part}_constant")
            if column and constant:
                raise ValueError(f"both {part} and {part}_constant are set; remove one")
        for part in ("head_id", "tail_id"):
            if not getattr(self, part):
                raise ValueError(f"the column map lacks {part}: name the column")
        if bool(self.head_index) != bool(self.tail_index):
            raise ValueError("set both head_index and tail_index, or neither")
        for index in {self.head_index, self.tail_index} - {""}:
            if index in [getattr(self, name) for name in KgColumns.model_fields if not name.endswith("_index")]:
                raise ValueError(f"column {index} cannot be the index and something else; leave the index empty")
        return self

    def or_primekg(self) -> KgColumns:
        """The map; PrimeKG's columns if it is empty."""
        if self != KgColumns():
            return self
        primekg = {f"{end}_{part}": f"{xy}_{part}" for end, xy in (("head", "x"), ("tail", "y")) for part in _PARTS}
        return KgColumns(relation="relation", display_relation="display_relation", **primekg)

    def of_file(self, path: str, delimiter: str, header: bool = True) -> EdgeSource:
        """The map as that of the file ``path``."""
        columns = self.or_primekg()
        head, tail = (
            EdgeEnd(**{part: getattr(columns, f"{end}_{part}") for part in _PARTS},
                    constant=getattr(columns, f"{end}_type_constant")) for end in ("head", "tail")
        )  # fmt: skip
        return EdgeSource(
            path, head, tail, columns.relation, columns.relation_constant, columns.display_relation, columns.timestamp,
            delimiter, header, types_required=True, weight=columns.weight, confidence=columns.confidence,
            evidence=columns.evidence,
        )  # fmt: skip


class KgCsvSettings(Settings):
    """How a ``kg_csv`` source is read."""

    columns: KgColumns = setting(KgColumns(), "column map; empty: PrimeKG's twelve columns")
    delimiter: Delimiter = DELIMITER
    header: bool = HEADER
    limit_nodes: int = setting(0, "keep the first N nodes of the file and the edges among them; 0: all", ge=0)
    keep_negated: bool = KEEP_NEGATED
    min_confidence: float = MIN_CONFIDENCE
