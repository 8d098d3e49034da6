"""The format ``sequence``: one interaction a line, ``user item [[rating] timestamp]``.

Any separator (tab, ``::``, comma, semicolon, bar, white space), with or without a header line, sorted or not. A file of
lines without fault is parsed by pyarrow; a file with any fault is read line by line, so that each reject has its line.
Both ways give the same rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from graphmill.errors import InputError
from graphmill.ingest.files import Source
from graphmill.ingest.interactions import blank, encode, interaction_tables
from graphmill.ingest.tables import MAX_SHOWN, REJECTS, IngestResult
from graphmill.settings import Settings, setting

SEPARATORS = {"tab": "\t", "double_colon": "::", "comma": ",", "semicolon": ";", "bar": "|", "space": " "}
COLUMNS = {2: ("user", "item"), 3: ("user", "item", "timestamp"), 4: ("user", "item", "rating", "timestamp")}
_PROBE_LINES = 100


class SequenceSettings(Settings):
    """How a ``sequence`` source is read."""

    separator: Literal["auto", "tab", "double_colon", "comma", "semicolon", "bar", "space"] = setting(
        "auto", "what stands between columns; space: any white space; auto: what most of the first lines fit"
    )
    k_core: int = setting(
        0, "keep users and items with at least so many interactions, repeated until all have them; 0: all", ge=0
    )
    strict: bool = setting(False, "refuse the file where a row is rejected or a user, item and time are repeated")
    max_rejects: int = setting(
        100_000, "refuse the file when more rows than this cannot be used; 0: never", ge=0, identity=False
    )


def read_sequence(path: str | Path, settings: SequenceSettings | None = None) -> IngestResult:
    """Read ``path`` (plain or gzipped, local or URL) as interactions in order.

    Without timestamps the order of the file is each user's order. Raises :class:`InputError` where the file cannot be
    read as this format, has more than ``max_rejects`` unusable rows or, with ``strict``, any oddity.
    """
    settings = settings or SequenceSettings()
    with Source(path) as source:
        name, data = source.name, source.read()
    if b"\n" not in data and b"\r" in data.rstrip(b"\r"):
        raise InputError(f"{name}: lines end in CR alone; save it with LF (or CR LF) line ends")
    data = data.replace(b"\r\n", b"\n")
    if not data.strip():
        raise InputError(f"{name} is empty; expected lines such as 'user item timestamp'")
    mark, width = _layout(data, settings.separator, name)
    header = _has_header(data, mark, width)
    found = _fast(data, mark, width, header)
    rejects = REJECTS.empty_table()
    if found is None:
        found, rejects = _careful(data, mark, width, header, name)
    rows = len(found["user"]) + rejects.num_rows
    interactions = encode(
        found["user"],
        found["item"],
        found["timestamp"].to_numpy(zero_copy_only=False) if "timestamp" in found else None,
        found["rating"].to_numpy(zero_copy_only=False) if "rating" in found else None,
    )
    return interaction_tables(
        interactions,
        name,
        rejects=rejects,
        rows=rows,
        k_core=settings.k_core,
        strict=settings.strict,
        max_rejects=settings.max_rejects,
    )


def first_rows(head: bytes, settings: SequenceSettings, name: str, count: int) -> list[dict[str, str]]:
    """The first rows by column name, from the beginning ``head`` of a file, before anything is checked.

    Raises :class:`InputError` where no columns can be made out.
    """
    lines = head.replace(b"\r\n", b"\n")
    mark, width = _layout(lines, settings.separator, name)
    rows = [line for line in lines.split(b"\n") if line.strip()]
    if _has_header(lines, mark, width):
        rows = rows[1:]
    cells = ([cell.decode("utf-8", "replace") for cell in _cells(row, mark)] for row in rows[:count])
    return [dict(zip(COLUMNS[width], row, strict=False)) for row in cells]


def _cells(line: bytes, mark: str) -> list[bytes]:
    return line.split() if mark == " " else [cell.strip() for cell in line.split(mark.encode())]


def _layout(data: bytes, separator: str, name: str) -> tuple[str, int]:
    """The separator, and the number of columns that most of the first lines have."""
    lines = [line for line in data[: 1 << 16].split(b"\n")[:_PROBE_LINES] if line.strip()]
    best: tuple[int, str, int] = (0, "", 0)
    for key, mark in SEPARATORS.items():
        if separator not in ("auto", key):
            continue
        widths = [len(cells) if all(cells) else 0 for cells in (_cells(line, mark) for line in lines)]
        for width in COLUMNS:
            votes = widths.count(width)
            if votes > best[0]:
                best = (votes, mark, width)
    votes, mark, width = best
    if not votes:
        shown = lines[0][:MAX_SHOWN].decode("utf-8", "replace")
        raise InputError(
            f"{name}: the first line ({shown!r}) has not 2, 3 or 4 columns; expected 'user item', "
            "'user item timestamp' or 'user item rating timestamp' (for other columns use the format interactions_csv)"
        )
    return mark, width


def _has_header(data: bytes, mark: str, width: int) -> bool:
    cells = _cells(next(line for line in data.split(b"\n", 1000) if line.strip()), mark)
    if width == 2:
        return [cell.lower()[:4] for cell in cells] == [b"user", b"item"]
    return len(cells) == width and not any(character in b"0123456789" for character in cells[-1])


def _fast(data: bytes, mark: str, width: int, header: bool) -> dict[str, pa.Array] | None:
    """All rows, or None where any line needs a careful look."""
    if header:
        data = data.lstrip(b"\n").partition(b"\n")[2]
    if mark == "::":
        if b"\t" in data:
            return None
        data, mark = data.replace(b"::", b"\t"), "\t"
    elif mark == " ":
        data = data.replace(b"\t", b" ")
    names = COLUMNS[width]
    kinds = {"user": pa.string(), "item": pa.string(), "rating": pa.float32(), "timestamp": pa.int64()}
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=names),
            parse_options=pyarrow.csv.ParseOptions(delimiter=mark, quote_char=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: kinds[name] for name in names}, null_values=[], strings_can_be_null=False
            ),
        ).combine_chunks()
    except pa.ArrowInvalid:
        return None
    found = {name: table[name].combine_chunks() for name in names}
    found = {n: a.chunk(0) if isinstance(a, pa.ChunkedArray) else a for n, a in found.items() if len(table)}
    if not found or any(array.null_count for array in found.values()):
        return None
    if any(blank(found[name]) or _padded(found[name]) for name in ("user", "item")):
        return None
    if "rating" in found and not pc.all(pc.is_finite(found["rating"])).as_py():
        return None
    return found


def _padded(ids: pa.Array) -> bool:
    return not pc.all(pc.equal(ids, pc.utf8_trim_whitespace(ids))).as_py()


def _careful(data: bytes, mark: str, width: int, header: bool, name: str) -> tuple[dict[str, pa.Array], pa.Table]:
    names = COLUMNS[width]
    kept: dict[str, list[str | int | float]] = {column: [] for column in names}
    rejects: list[dict[str, str | int]] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        if header:
            header = False
            continue
        row = _row(line, mark, names)
        if isinstance(row, tuple):
            column, reason = row
            value = line[: 4 * MAX_SHOWN].decode("utf-8", "backslashreplace")[:MAX_SHOWN]
            rejects.append({"file": name, "line": number, "column": column, "reason": reason, "value": value})
        else:
            for column, cell in zip(names, row, strict=True):
                kept[column].append(cell)
    kinds = {"rating": pa.float32(), "timestamp": pa.int64()}
    return (
        {column: pa.array(cells, kinds.get(column, pa.string())) for column, cells in kept.items()},
        pa.Table.from_pylist(rejects, REJECTS),
    )


def _row(line: bytes, mark: str, names: tuple[str, ...]) -> list[str | int | float] | tuple[str, str]:
    """The values of a line, or the column at fault and why."""
    try:
        cells = [cell.decode("utf-8") for cell in _cells(line, mark)]
    except UnicodeDecodeError:
        return "", "not UTF-8 text"
    if len(cells) != len(names):
        return "", f"{len(cells)} columns where the file has {len(names)}"
    out: list[str | int | float] = []
    for column, cell in zip(names, cells, strict=True):
        if not cell:
            return column, "empty"
        if column in ("user", "item"):
            out.append(cell)
            continue
        number = as_number(cell)
        if number is None:
            return column, "not a finite number"
        out.append(round(number) if column == "timestamp" else number)
    return out


def as_number(text: str) -> float | int | None:
    """The finite number that ``text`` is (whole ones exactly), or None."""
    try:
        value: float | int = int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            return None
    limit = float(np.finfo(np.float32).max) if isinstance(value, float) else 2**63 - 1
    return value if -limit <= value <= limit else None
