"""Tables in memory (pandas, polars, Arrow) as files, so that they are read by the same code and with the same checks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from graphmill.errors import InputError, one_line
from graphmill.ingest.files import CALLED
from graphmill.parquet import write_parquet

_NAME = "table"


@contextmanager
def as_file(given: Any) -> Iterator[str]:
    """The path ``given``; or, for a table in memory, that of a temporary Parquet file with its rows.

    Messages call such a table "table". Raises :class:`InputError` for an object that is neither.
    """
    if isinstance(given, str | Path):
        yield str(given)
        return
    with tempfile.TemporaryDirectory(prefix="graphmill-") as folder:
        file = Path(folder) / f"{_NAME}.parquet"
        write_parquet(_arrow(given), file)
        CALLED[str(file)] = _NAME
        try:
            yield str(file)
        finally:
            del CALLED[str(file)]


def _arrow(given: Any) -> pa.Table:
    try:
        if isinstance(given, pa.Table):
            return given
        if hasattr(given, "iloc"):  # of pandas: its index is no column
            return pa.Table.from_pandas(given, preserve_index=False)
        if hasattr(given, "collect_schema") and hasattr(given, "collect"):  # a lazy frame of polars
            given = given.collect()
        return pa.table(given)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"a {type(given).__name__} is no path and no readable table of pandas, polars or Arrow ({one_line(error)})"
        ) from None
