"""The files of a graph: the roles of their columns, and reading their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError, listed
from graphmill.ingest.catalogue import Listed, TypeRule
from graphmill.ingest.csv_blocks import CsvBlock, Lines
from graphmill.ingest.csv_parsers import Column
from graphmill.ingest.engine import Engine, engine_setting
from graphmill.ingest.feature_files import numbers_of
from graphmill.ingest.kg_columns import KgLayout, Side, merged_columns
from graphmill.ingest.kg_mentions import text_of
from graphmill.ingest.rejects import Reject, max_rejects_setting
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import MAX_SHOWN
from graphmill.settings import Settings, setting

HEAD_TYPE, TAIL_TYPE = "\x00head type", "\x00tail type"
"""Columns of the types of both ends, once they are known."""
_SHOWN_COLUMNS = 8


class GraphFilesSettings(Settings):
    """Settings for combining nodes and edges of several files into one graph."""

    type_rule: TypeRule = setting(
        "rarest",
        "which type a node with several types gets: rarest: the one with the fewest nodes (the most specific); "
        "first; last; joined: a new type for each combination",
    )
    missing_type: str = setting("node", "the type of nodes for which no file has a type", min_length=1)
    strict: bool = setting(False, "refuse the files if a row is rejected or anything unusual is found")
    max_rejects: int = max_rejects_setting("the files as soon as")
    engine: Engine = engine_setting()


@dataclass(frozen=True)
class NodeSource:
    """One node file: its columns (empty: none), or values that hold for all rows.

    ``space``: the ID space of its ids; empty: their type. ``only_where``: rows with a blank in this column are of
    another kind and are skipped.
    """

    path: str
    id: str
    type: str = ""
    name: str = ""
    source: str = ""
    constant: str = ""
    space: str = ""
    features: tuple[str, ...] = ()
    feature_set: str = ""
    delimiter: str = "auto"
    header: bool = True
    only_where: str = ""


@dataclass(frozen=True)
class EdgeSource:
    """One edge file. In ``head`` and ``tail``, ``constant`` is the type or ID space of all rows, and ``type`` is its column.

    ``prefix``: removed from relations. ``only_where``: as for nodes.
    """

    path: str
    head: Side
    tail: Side
    relation: str = ""
    relation_constant: str = ""
    display_relation: str = ""
    timestamp: str = ""
    delimiter: str = "auto"
    header: bool = True
    prefix: str = ""
    only_where: str = ""

    def layout(self) -> KgLayout:
        """The columns to read; types are looked up afterwards."""
        required = not self.only_where
        ends = [(end, part) for part in ("id", "type", "name", "source") for end in (self.head, self.tail)]
        wanted = [
            Column(self.relation, required=required),
            Column(self.display_relation),
            *(Column(getattr(end, part), required=required and part == "id") for end, part in ends),
            Column(self.timestamp),
        ]
        head, tail = replace(self.head, type=HEAD_TYPE, constant=""), replace(self.tail, type=TAIL_TYPE, constant="")
        parts = self.relation, self.relation_constant, self.display_relation, head, tail, self.timestamp
        return KgLayout(*parts, merged_columns(wanted))


@dataclass
class GraphReading:
    """Reads a graph's files once: keeps the rejects so far, with their files, and the columns that were not read."""

    name: str
    settings: GraphFilesSettings
    rejects: list[tuple[str, Reject]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unread: dict[str, list[str]] = field(default_factory=dict)

    def unread_note(self) -> list[str]:
        """One sentence on columns that were not used, such as a misspelt one; empty if there are none."""
        shown = [
            f"{listed(names[:_SHOWN_COLUMNS])}{', …' if len(names) > _SHOWN_COLUMNS else ''} of {file.rpartition('/')[2]}"
            for file, names in list(self.unread.items())[:_SHOWN_COLUMNS]
            if names
        ]
        return [f"columns that play no part were skipped: {'; '.join(shown)}"] if shown else []

    def _skip(self, file: RowFile, read: Sequence[str]) -> None:
        """Keep the columns that were skipped. For a file that is read twice, as nodes and as edges, those that both skip."""
        there = self.unread.get(file.name, list(file.names))
        self.unread[file.name] = [name for name in there if name and name not in read]

    def refuse(self, file: str, rejects: Sequence[Reject]) -> None:
        """Keep rejects. Raises :class:`InputError` if there are too many."""
        self.rejects += [(file, reject) for reject in sorted(rejects)]
        most = self.settings.max_rejects
        if 0 < most < len(self.rejects):
            first_file, first = self.rejects[0]
            raise InputError(
                f"{self.name}: more than {most:,} rows cannot be used; the first is in {first_file}, {first.place}. "
                "Check the formats and the columns (max_rejects: 0 reads on regardless)"
            )

    def listed(self, source: NodeSource) -> Listed:
        """The rows of a node file."""
        names = [source.id, source.type, source.name, source.source, *source.features]
        parts: list[tuple[pa.Table, np.ndarray, np.ndarray | None]] = []
        with RowFile(source.path, source.delimiter, header_line=source.header, wanted=names) as file:
            missing = [name for name in names if name and name not in file.names]
            if missing:
                raise InputError(f"{file.name}: column {', '.join(missing)} is missing; there are {listed(file.names)}")
            self._skip(file, names)
            columns = {n: Column(n, "text", n == source.id and not source.only_where) for n in names if n}
            for (table, lines, values, wrong), refused in file.blocks(
                tuple(columns.values()),
                lambda block: _node_rows(_of_kind(block, source.only_where), source, file.delimiter),
            ):
                parts.append((table, lines, values))
                self.refuse(file.name, [*refused, *wrong])
        table = pa.concat_tables([part for part, _, _ in parts]) if parts else _NODE_ROWS.empty_table()
        lines = np.concatenate([np.zeros(0, np.int64), *(lines for _, lines, _ in parts)])
        values = np.concatenate([v for _, _, v in parts if v is not None]) if source.features and parts else None
        texts = {name: table[name].combine_chunks() for name in _NODE_ROWS.names}
        return Listed(file.name, source.space or source.constant, **texts, line=lines, values=values,
                      feature_set=source.feature_set)  # fmt: skip

    def edges(self, source: EdgeSource) -> Iterator[CsvBlock]:
        """The blocks of an edge file."""
        layout = source.layout()
        with RowFile(source.path, source.delimiter, header_line=source.header,
                     wanted=[c.name for c in layout.columns]) as file:  # fmt: skip
            missing = [c.name for c in layout.columns if c.name not in file.names]
            if missing:
                raise InputError(f"{file.name}: column {', '.join(missing)} is missing; there are {listed(file.names)}")
            self._skip(file, [c.name for c in layout.columns])
            for block, refused in file.blocks(layout.columns, lambda block: _of_kind(block, source.only_where)):
                self.refuse(file.name, refused)
                yield block


def _of_kind(block: CsvBlock, column: str) -> CsvBlock:
    """The rows in which ``column`` is not blank; all rows if no column is given."""
    if not column:
        return block
    keep = np.asarray(pc.not_equal(pc.utf8_trim_whitespace(text_of(block.table, column)), ""), bool)
    lines = Lines(1, block.lines.of(np.flatnonzero(keep)))
    return CsvBlock(block.table.filter(pa.array(keep)).combine_chunks(), lines, block.rejects)


_NODE_ROWS = pa.schema([(name, pa.string()) for name in ("id", "types", "name", "source")])


def _node_rows(
    block: CsvBlock, source: NodeSource, mark: str
) -> tuple[pa.Table, np.ndarray, np.ndarray | None, list[Reject]]:
    rows = block.table.num_rows
    columns = [
        text_of(block.table, name, constant)
        for name, constant in ((source.id, ""), (source.type, source.constant), (source.name, ""), (source.source, ""))
    ]
    if source.constant and source.type:
        columns[1] = pc.if_else(pc.equal(pc.utf8_trim_whitespace(columns[1]), ""), source.constant, columns[1])
    lines = block.lines.of(np.arange(rows))
    if not source.features:
        return pa.table(columns, _NODE_ROWS), lines, None, []
    values = np.zeros((rows, len(source.features)), np.float32)
    rejects = []
    for place, name in enumerate(source.features):
        values[:, place], wrong = numbers_of(block.table[name].combine_chunks(), mark)
        for row in wrong.tolist():
            shown = block.table[name][row].as_py()
            rejects.append(Reject(int(lines[row]), name, "not a number", shown[:MAX_SHOWN]))
    return pa.table(columns, _NODE_ROWS), lines, values, rejects
