"""Rejects: the objects that readers collect, and the table that they return."""

from collections.abc import Iterable
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


def reject_table(rejects: Iterable[tuple[str, Reject]]) -> pa.Table:
    """The rejects, each with its file, as a table with the schema :data:`graphmill.ingest.tables.REJECTS`."""
    return pa.Table.from_pylist([{"file": file, **reject._asdict()} for file, reject in rejects], REJECTS)
