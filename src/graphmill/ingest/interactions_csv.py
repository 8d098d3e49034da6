"""The format ``interactions_csv``: any CSV file with a header and columns for user, item and, where it has them, weight
and time.

The columns are named, or guessed from names that are common. What they become is decided in ``interactions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError, SettingsError
from graphmill.ingest.csv_blocks import CsvBlock, read_blocks, read_header
from graphmill.ingest.csv_parsers import Column, CsvLayout, Reject
from graphmill.ingest.files import Source
from graphmill.ingest.interactions import encode, interaction_tables
from graphmill.ingest.sequence import as_number
from graphmill.ingest.tables import MAX_SHOWN, REJECTS, IngestResult

KNOWN_NAMES = {
    "user": ("user", "user_id", "userid", "uid", "customer_id", "reviewerid"),
    "item": ("item", "item_id", "itemid", "iid", "movieid", "product_id", "asin", "artist_id", "track_id"),
    "weight": ("weight", "rating", "score", "count", "plays", "value"),
    "timestamp": ("timestamp", "time", "unixreviewtime", "ts", "date"),
}
"""Column names that are guessed, in lower case, without what follows a colon (``user_id:token``)."""


@dataclass(frozen=True)
class ColumnMap:
    """Names of the file's columns; empty: guess. ``weight`` and ``timestamp`` "none": the file's are not used."""

    user: str = ""
    item: str = ""
    weight: str = ""
    timestamp: str = ""


def read_interactions_csv(
    path: str | Path,
    *,
    columns: ColumnMap | None = None,
    delimiter: str = "auto",
    min_weight: float = float("-inf"),
    k_core: int = 0,
    strict: bool = False,
) -> IngestResult:
    """Read ``path`` (plain or gzipped, local or URL) as interactions.

    ``delimiter``: one character, or "auto" (tab where the header has one, else semicolon, else comma). Rows with a
    weight under ``min_weight`` are left out and counted. Interactions have an order only where there are timestamps.
    ``k_core`` and ``strict`` as in :func:`graphmill.ingest.interactions.interaction_tables`.

    Raises :class:`InputError` for a missing column or a file without usable rows.
    """
    if delimiter != "auto" and len(delimiter) != 1:
        raise SettingsError(f"delimiter {delimiter!r} must be one character, or auto")
    mark = _guess_delimiter(path) if delimiter == "auto" else delimiter
    with Source(path) as source:
        header, rest = read_header(source, mark)
        chosen = _choose(header.names, columns or ColumnMap(), source.name)
        wanted = tuple(Column(chosen[role], required=role in ("user", "item")) for role in chosen)
        layout = CsvLayout(wanted, mark, header.names)
        blocks, refused = [], list[Reject]()
        for (table, rejects), broken in read_blocks(source, header, rest, layout, lambda b: _digest(b, chosen)):
            blocks.append(table)
            refused += sorted([*broken, *rejects], key=lambda reject: reject.line)
        name = source.name
    if not blocks:
        raise InputError(f"{name} has a header and no rows")
    whole = pa.concat_tables(blocks).unify_dictionaries().combine_chunks()
    rows = whole.num_rows + len(refused)
    light = 0
    if "weight" in chosen and min_weight > float("-inf"):
        keep = whole["weight"].to_numpy() >= min_weight
        light = int((~keep).sum())
        whole = whole.filter(pa.array(keep))
    elif min_weight > float("-inf"):
        raise SettingsError(f"{name} has no weight column, so min_weight cannot be honoured; name it in columns.weight")
    table = pa.Table.from_pylist([{"file": name, **reject._asdict()} for reject in refused], REJECTS)
    interactions = encode(
        _plain(whole["user"]),
        _plain(whole["item"]),
        whole["timestamp"].to_numpy() if "timestamp" in chosen else None,
        whole["weight"].to_numpy().astype(np.float32) if "weight" in chosen else None,
    )
    result = interaction_tables(
        interactions,
        name,
        rejects=table,
        rows=rows,
        k_core=k_core,
        strict=strict,
        ordered=interactions.timestamp is not None,
    )
    result.counts["below_min_weight"] = light
    if light:
        result.notes.append(f"{light} interactions are lighter than min_weight and were left out")
    return result


def _guess_delimiter(path: str | Path) -> str:
    with Source(path) as source:
        first = source.read(1 << 16).lstrip(b"\r\n").partition(b"\n")[0]
    return next((mark for mark in ("\t", ";", ",") if mark.encode() in first), ",")


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    return array.cast(pa.string())


def _choose(names: tuple[str, ...], columns: ColumnMap, file: str) -> dict[str, str]:
    """Role → column of the file, for the roles that it has."""
    plain = {name.split(":")[0].strip().lower(): name for name in reversed(names)}
    chosen = {}
    for role, known in KNOWN_NAMES.items():
        asked = getattr(columns, role)
        if asked == "none" and role not in ("user", "item"):
            continue
        if asked:
            if asked not in names:
                raise InputError(f"{file} has no column {asked!r} for {role}; it has {', '.join(names)}")
            chosen[role] = asked
            continue
        found = next((plain[name] for name in known if name in plain), None)
        if found is not None:
            chosen[role] = found
        elif role in ("user", "item"):
            raise InputError(
                f"{file}: which column is the {role}? It has {', '.join(names)}; name it with columns.{role}"
            )
    twice = [name for name in chosen.values() if list(chosen.values()).count(name) > 1]
    if twice:
        raise InputError(f"{file}: the column {twice[0]!r} has two roles; name the columns apart")
    return chosen


def _digest(block: CsvBlock, chosen: dict[str, str]) -> tuple[pa.Table, list[Reject]]:
    """The block's rows with numbers as numbers, and a reject for each cell that is none."""
    out: dict[str, pa.Array] = {}
    keep = np.ones(block.table.num_rows, bool)
    rejects: list[Reject] = []
    for role, name in chosen.items():
        column = block.table[name].combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        if role in ("user", "item"):
            out[role] = column
            continue
        texts = column.dictionary.to_pylist()
        numbers = [as_number(text.strip()) for text in texts]
        codes = column.indices.to_numpy(zero_copy_only=False)
        bad = np.array([number is None for number in numbers], bool)[codes]
        for row in np.flatnonzero(bad & keep):
            value = texts[codes[row]][:MAX_SHOWN]
            rejects.append(Reject(block.line(int(row)), name, "not a finite number", value))
        keep &= ~bad
        kind = np.int64 if role == "timestamp" else np.float64
        filled = [0 if n is None else round(n) if role == "timestamp" else n for n in numbers]
        out[role] = pa.array(np.array(filled, kind)[codes])
    return pa.table(out).filter(pa.array(keep)), rejects
