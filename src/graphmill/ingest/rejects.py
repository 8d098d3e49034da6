"""Rejects: the objects that readers collect, and the table that they return."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

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


def max_rejects_setting(refused: str, rows: str = "rows") -> Any:
    """The field ``max_rejects`` of a format's settings; ``refused``: what it refuses, and when."""
    text = f"refuse {refused} more than this many {rows} cannot be used; 0: never"
    return setting(100_000, text, ge=0, identity=False)


KEEP_NEGATED: Any = setting(
    False,
    "keep statements that say that a link does not hold (any more): rows with a true negated, deprecated, obsolete or "
    "retracted, or with NOT before their relation or qualifier",
)
"""The field ``keep_negated`` of the settings of formats of graphs."""


MIN_CONFIDENCE: Any = setting(
    0.0, "leave out edges that are less sure; edges whose confidence is not known stay; 0: none", ge=0
)
"""The field ``min_confidence`` of the settings of formats of graphs with columns of one's own."""


_MOST_REFUSED = 0.1


def checked_share(counts: Mapping[str, int], rejects: pa.Table, file: str) -> str:
    """Why a source of which more than a tenth of the rows is refused is not used; empty if fewer are."""
    rows, refused = counts.get("rows", counts.get("entries", 0)), counts.get("rejected_rows", counts.get("rejects", 0))
    if refused <= _MOST_REFUSED * rows or not rejects.num_rows:
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
