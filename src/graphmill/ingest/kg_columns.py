"""The column map of ``kg_csv``: the role of each column of a CSV file in an edge.

It is resolved once per file against the header, before any row is read.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pydantic import field_validator, model_validator

from graphmill.errors import InputError, listed
from graphmill.ingest.csv_parsers import Column
from graphmill.ingest.engine import Engine, engine_setting
from graphmill.ingest.rejects import max_rejects_setting
from graphmill.settings import Settings, setting

_PARTS = ("index", "id", "type", "name", "source")
PRIMEKG = ("relation", "display_relation", *(f"{end}_{part}" for end in ("x", "y") for part in _PARTS))
"""The columns of PrimeKG's ``kg.csv``, in its order."""


def checked_delimiter(value: str) -> str:
    """``auto``, or the delimiter as one character. Raises ``ValueError`` for an invalid delimiter."""
    if value in ("tab", "\\t"):
        return "\t"
    if value == "auto":
        return value
    if len(value) != 1 or not value.isascii() or value.isalnum() or value in '"\r\n\0':
        raise ValueError("the delimiter must be one ASCII character, such as , or ; or |, the word tab, or auto")
    return value


class KgColumns(Settings):
    """The name of the column for each role; all empty means PrimeKG's twelve columns."""

    relation: str = setting("", "column with the relation's name")
    display_relation: str = setting("", "column with the relation as shown to people; empty: the relation itself")
    head_index: str = setting(
        "", "column with the head's number, unique over all types; empty: nodes are keyed by (type, id)"
    )
    head_id: str = setting("", "column with the head's id")
    head_type: str = setting("", "column with the head's node type")
    head_name: str = setting("", "column with the head's name; empty: the id")
    head_source: str = setting("", "column with the vocabulary from which the head's id comes")
    tail_index: str = setting("", "column with the tail's number; set both this and head_index, or neither")
    tail_id: str = setting("", "column with the tail's id")
    tail_type: str = setting("", "column with the tail's node type")
    tail_name: str = setting("", "column with the tail's name; empty: the id")
    tail_source: str = setting("", "column with the vocabulary from which the tail's id comes")
    timestamp: str = setting(
        "",
        "column with the edge's time, for split.method: by_time: a number (year, seconds, milliseconds) or an ISO "
        "8601 date; a blank cell means no time",
    )
    relation_constant: str = setting("", "one relation for all rows, if no column has it")
    head_type_constant: str = setting("", "one node type for all heads, if no column has it")
    tail_type_constant: str = setting("", "one node type for all tails, if no column has it")

    @model_validator(mode="after")
    def _complete(self) -> "KgColumns":
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


class KgCsvSettings(Settings):
    """How a ``kg_csv`` source is read."""

    columns: KgColumns = setting(KgColumns(), "column map; empty: PrimeKG's twelve columns")
    delimiter: str = setting("auto", "one ASCII character between fields, the word tab, or auto: what fits the columns")
    limit_nodes: int = setting(0, "keep the first N nodes of the file and the edges among them; 0: all", ge=0)
    strict: bool = setting(False, "refuse the file if a row is rejected or anything unusual is found")
    max_rejects: int = max_rejects_setting("the file as soon as")
    engine: Engine = engine_setting()

    _delimiter = field_validator("delimiter")(checked_delimiter)


@dataclass(frozen=True)
class Side:
    """The columns of one end of the edges, empty if there is none. ``constant``: the type if no column has it."""

    index: str
    id: str
    type: str
    name: str
    source: str
    constant: str


@dataclass(frozen=True)
class KgLayout:
    """A column map resolved against a header."""

    relation: str
    relation_constant: str
    display_relation: str
    head: Side
    tail: Side
    timestamp: str
    columns: tuple[Column, ...]
    ignored: tuple[str, ...] = ()

    @property
    def indexed(self) -> bool:
        """Whether nodes are keyed by an index column."""
        return bool(self.head.index)


def merged_columns(wanted: Iterable[Column]) -> tuple[Column, ...]:
    """The columns that have a name, each once. A column with two roles (such as id and name) is required if either is."""
    found: dict[str, Column] = {}
    for column in wanted:
        if column.name:
            known = found.setdefault(column.name, column)
            found[column.name] = replace(known, required=known.required or column.required)
    return tuple(found.values())


def column_names(columns: KgColumns) -> list[str]:
    """The columns named in a map; PrimeKG's for an empty map."""
    named = [value for part, value in columns.model_dump().items() if value and not part.endswith("_constant")]
    return named or list(PRIMEKG)


def resolve(columns: KgColumns, header: tuple[str, ...], delimiter: str, file: str) -> KgLayout:
    """Resolve the layout of ``file`` with these column names.

    Raises :class:`InputError` if a mapped column is missing or occurs twice in the header. The message lists the
    columns and, if another delimiter would explain it, names that delimiter.
    """
    if columns == KgColumns():
        primekg = {f"{end}_{part}": f"{xy}_{part}" for end, xy in (("head", "x"), ("tail", "y")) for part in _PARTS}
        columns = KgColumns(relation="relation", display_relation="display_relation", **primekg)
    head, tail = (
        Side(*(getattr(columns, f"{end}_{part}") for part in (*_PARTS, "type_constant"))) for end in ("head", "tail")
    )
    wanted = [Column(columns.relation, "category", required=True), Column(columns.display_relation, "category")]
    for side in (head, tail):
        wanted += [Column(side.index, "whole", required=True)]
        wanted += [Column(name, "text", required=True) for name in (side.id, side.type)]
        wanted += [Column(name, "text") for name in (side.name, side.source)]
    wanted += [Column(columns.timestamp, "category")]
    found = merged_columns(wanted)
    names = [column.name for column in found]
    _check_header(names, header, delimiter, file)
    ignored = tuple(name for name in header if name not in names)
    parts = columns.relation, columns.relation_constant, columns.display_relation, head, tail, columns.timestamp
    return KgLayout(*parts, found, ignored)


def _check_header(wanted: list[str], header: tuple[str, ...], delimiter: str, file: str) -> None:
    missing = [name for name in wanted if name not in header]
    if missing:
        for other, word in ((",", ","), ("\t", "tab"), (";", ";"), ("|", "|")):
            if other != delimiter and len(header) == 1 and all(n in header[0].split(other) for n in wanted):
                raise InputError(f"{file}: the fields are separated by '{word}'; set delimiter: '{word}'")
        raise InputError(
            f"{file}: column {', '.join(missing)} is missing; the header has {listed(header)}. "
            "Name your columns in the source's column map (`graphmill ingest-report` suggests one)"
        )
    twice = [name for name in wanted if header.count(name) > 1]
    if twice:
        raise InputError(f"{file}: the header names column {', '.join(twice)} more than once; rename one")
