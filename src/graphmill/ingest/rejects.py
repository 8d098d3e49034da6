"""Rejects: the rows that a reader cannot use, the table of them, and what is refused because of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from graphmill.errors import InputError
from graphmill.ingest.tables import REJECTS
from graphmill.settings import setting


class Reject(NamedTuple):
    """One row that cannot be used. Its fields are those of :data:`graphmill.ingest.tables.REJECTS` without the file."""

    line: int
    column: str
    reason: str
    value: str

    @property
    def place(self) -> str:
        """Place and reason, for a message."""
        column = f", column {self.column}" if self.column else ""
        return f"line {self.line}{column}: {self.reason}"


KEEP_NEGATED: Any = setting(
    False,
    "keep statements and nodes that do not hold (any more): rows with a true negated, deprecated, obsolete, retracted or "
    "withdrawn, or with NOT before their relation or qualifier",
)
"""The field ``keep_negated`` of the settings of formats of graphs."""


MIN_CONFIDENCE: Any = setting(
    0.0, "leave out edges that are less sure; edges whose confidence is not known stay; 0: none", ge=0
)
"""The field ``min_confidence`` of the settings of formats of graphs with columns of one's own."""


_MOST_SHARE = 0.1
MOST_KEPT, MOST_REFUSED = 100_000, 10_000_000
"""Rejects of a source that are kept, and after how many its reading ends: a small archive may hold any number of rows."""


@dataclass
class Reading:
    """The reading of one source, called ``name``: its rejects so far, with their files, and notes on its files.

    Of many rejects the first :data:`MOST_KEPT` are kept; ``refused`` is the number of all.
    """

    name: str
    rejects: list[tuple[str, Reject]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: int = 0

    @property
    def _first(self) -> str:
        file, reject = self.rejects[0]
        return f"on {reject.place}" if file == self.name else f"in {file}, {reject.place}"

    @property
    def first_reject(self) -> str:
        """A half sentence with the number of rejects and the first; empty if there is none."""
        return f"; {self.refused:,} rows were rejected, the first {self._first}" if self.rejects else ""

    def refuse(self, file: str, rejects: Iterable[Reject]) -> None:
        """Count rejects, and keep them while there are few. Raises :class:`InputError` if there are :data:`MOST_REFUSED`."""
        ordered = sorted(rejects)
        self.refused += len(ordered)
        self.rejects += [(file, reject) for reject in ordered[: MOST_KEPT - len(self.rejects)]]
        if self.refused >= MOST_REFUSED:
            raise InputError(
                f"{self.name}: {self.refused:,} rows or more cannot be used; the first {self._first}. Check the format, the "
                "delimiter and the column map"
            )

    def keep_notes(self, file: str, notes: Iterable[str]) -> None:
        """Keep the ``notes`` on a file that was read, each once."""
        sentences = [note if file == self.name else f"{file}: {note}" for note in notes]
        self.notes += [note for note in sentences if note not in self.notes]

    def table(self) -> pa.Table:
        """The rejects as a table with the schema :data:`graphmill.ingest.tables.REJECTS`, file by file."""
        order = {file: place for place, file in enumerate(dict.fromkeys(file for file, _ in self.rejects))}
        return reject_table(sorted(self.rejects, key=lambda each: (order[each[0]], each[1])))


def sentences(counts: Mapping[str, int], texts: Mapping[str, str]) -> list[str]:
    """The ``texts`` of counts above 0, each with its number in place of ``{}``."""
    return [text.replace("{}", f"{counts[name]:,}", 1) for name, text in texts.items() if counts.get(name)]


def checked_share(counts: Mapping[str, int], rejects: pa.Table, file: str) -> str:
    """Why a source of which more than a tenth of the rows is refused is not used; empty if fewer are."""
    rows, refused = counts.get("rows", 0), counts.get("rejected_rows", 0)
    if refused <= _MOST_SHARE * rows or not rejects.num_rows:
        return ""
    first = rejects.slice(0, 1).to_pylist()[0]
    where = f"{first['file']}, line {first['line']}" + (f", column {first['column']}" if first["column"] else "")
    return (
        f"{file}: {refused:,} of {rows:,} rows cannot be used (the first: {where}: {first['reason']}), more than a "
        "tenth, so nothing is built; mend the file, name the format or the columns, or build regardless with force (--force)"
    )


def reject_table(rejects: Iterable[tuple[str, Reject]]) -> pa.Table:
    """The rejects, each with its file, as a table with the schema :data:`graphmill.ingest.tables.REJECTS`."""
    return pa.Table.from_pylist([{"file": file, **reject._asdict()} for file, reject in rejects], REJECTS)
