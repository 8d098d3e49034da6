"""The format ``sequence``: one interaction per line, ``user item [[rating] timestamp]``.

Any separator (tab, ``::``, comma, semicolon, bar, white space), with or without a header line, sorted or not. A header
determines the meaning of the columns; a header that contradicts itself is refused. pyarrow parses a file without
faults; a file with a fault is read line by line, so that each reject has its line. Both ways give the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from graphmill.errors import InputError
from graphmill.ingest.files import Source
from graphmill.ingest.findings import IngestReport, examined
from graphmill.ingest.format import ONE_WAY, PREVIEW_BYTES, PREVIEW_ROWS, Format, Look, Preview
from graphmill.ingest.guard import guarded
from graphmill.ingest.interactions import encode, interaction_tables
from graphmill.ingest.names import as_number, is_row_number, positional_roles, role_of, row_number_note, with_point
from graphmill.ingest.rejects import Reject, max_rejects_setting
from graphmill.ingest.tables import MAX_SHOWN, IngestResult
from graphmill.ingest.times import NO_TIME_THERE, Time, as_times, parse_time, whole_times
from graphmill.settings import Settings, setting

SEPARATORS = {"tab": "\t", "double_colon": "::", "comma": ",", "semicolon": ";", "bar": "|", "space": " "}
COLUMNS = {2: ("user", "item"), 3: ("user", "item", "timestamp"), 4: ("user", "item", "weight", "timestamp")}
_SHOWN = {"weight": "rating"}
_WIDEST = 5
"""The number of columns of a file with a row number and all four columns."""
_PROBE_LINES = 100
_REMEDY = "for other columns use the format interactions_csv, which names them"


@dataclass(frozen=True)
class _Layout:
    """``columns``: user, item, weight, timestamp or "" (not read), by place; ``header``: whether the first line is one."""

    mark: str
    columns: tuple[str, ...]
    header: tuple[str, ...] = ()


class SequenceSettings(Settings):
    """How a ``sequence`` source is read."""

    separator: Literal["auto", "tab", "double_colon", "comma", "semicolon", "bar", "space"] = setting(
        "auto",
        "the separator between columns; space: any white space; auto: the separator that most of the first lines fit",
    )
    k_core: int = setting(
        0,
        "keep only users and items with at least this many interactions, and repeat until all have them; 0: keep all",
        ge=0,
    )
    strict: bool = setting(
        False, "refuse the file if a row is rejected or a combination of user, item and time is repeated"
    )
    max_rejects: int = max_rejects_setting("the file if")


@guarded
def read_sequence(path: str | Path, settings: SequenceSettings | None = None) -> IngestResult:
    """Read ``path`` (plain or gzipped, local or URL) as interactions in order.

    Without timestamps the order of the file is each user's order. Raises :class:`InputError` if the file cannot be read
    as this format, has more than ``max_rejects`` unusable rows or, with ``strict``, any oddity.
    """
    settings = settings or SequenceSettings()
    with Source(path) as source:
        name, data = source.name, source.read()
    if b"\n" not in data and b"\r" in data.rstrip(b"\r"):
        raise InputError(f"{name}: lines end in CR alone; save it with LF (or CR LF) line ends")
    data = data.replace(b"\r\n", b"\n")
    if not data.strip():
        raise InputError(f"{name} is empty; expected lines such as 'user item timestamp'")
    layout = _layout(data, settings.separator, name)
    found = _fast(data, layout)
    rejects: list[Reject] = []
    if found is None:
        found, rejects = _careful(data, layout)
    times = found.get("timestamp")
    if isinstance(times, pa.Array):
        times = whole_times(times.to_numpy(zero_copy_only=False))
    weight = found["weight"].to_numpy(zero_copy_only=False) if "weight" in found else None
    interactions = encode(found["user"], found["item"], times, weight)
    rows = len(found["user"]) + len(rejects)
    result = interaction_tables(interactions, name, settings, rejects=rejects, rows=rows)
    if numbers := [column for column, role in zip(layout.header, layout.columns, strict=False) if not role]:
        result.notes.append(row_number_note(numbers))
    if times is None:
        result.notes.append("there is no column of times: a user's order is that of the file")
    return result


def first_rows(head: bytes, settings: SequenceSettings, name: str, count: int) -> list[dict[str, str]]:
    """The first rows by column name, from ``head``, the beginning of a file; nothing is checked.

    Raises :class:`InputError` if no columns can be recognised.
    """
    lines = head.replace(b"\r\n", b"\n")
    layout = _layout(lines, settings.separator, name)
    rows = [line for line in lines.split(b"\n") if line.strip()][bool(layout.header) :]
    cells = ([cell.decode("utf-8", "replace") for cell in _cells(row, layout.mark)] for row in rows[:count])
    return [
        {_SHOWN.get(role, role): cell for role, cell in zip(layout.columns, row, strict=False) if role} for row in cells
    ]


def _cells(line: bytes, mark: str) -> list[bytes]:
    return line.split() if mark == " " else [cell.strip() for cell in line.split(mark.encode())]


def _layout(data: bytes, separator: str, name: str) -> _Layout:
    """The separator and the columns, recognised from most of the first lines and from the header, if there is one."""
    lines = [line for line in data[: 1 << 16].split(b"\n")[:_PROBE_LINES] if line.strip()]
    if not lines:
        raise InputError(f"{name} begins with blank lines only; expected lines such as 'user item timestamp'")
    best: tuple[int, str, int] = (0, "", 0)
    for key, mark in SEPARATORS.items():
        if separator in ("auto", key):
            widths = [len(cells) if all(cells) else 0 for cells in (_cells(line, mark) for line in lines)]
            found = [(widths.count(width), mark, width) for width in range(2, _WIDEST + 1)]
            best = max([best, *found], key=lambda each: each[0])
    votes, mark, width = best
    header = _header(lines[0], mark) if votes else ()
    if header and len(header) == width:
        usual = list(COLUMNS[min(width, 4)])
        roles = positional_roles(header, usual, [role_of(name) for name in header], name, _REMEDY)
        if "user" in roles and "item" in roles:
            return _Layout(mark, tuple(roles), header)
    if not votes or width not in COLUMNS:
        shown = lines[0][:MAX_SHOWN].decode("utf-8", "replace")
        raise InputError(
            f"{name}: the first line ({shown!r}) does not have 2, 3 or 4 columns; expected 'user item', "
            f"'user item timestamp' or 'user item rating timestamp' ({_REMEDY})"
        )
    return _Layout(mark, COLUMNS[width])


def _header(line: bytes, mark: str) -> tuple[str, ...]:
    """The names in a header line, or none if the line is an interaction."""
    names = tuple(cell.decode("utf-8", "replace").strip('"') for cell in _cells(line, mark))
    known = sum(bool(role_of(name)) for name in names)
    digits = any(character in "0123456789" for name in names for character in name if not is_row_number(name))
    if known >= 2 or (known and not digits):
        return names
    last = names[-1]
    no_number = as_number(last) is None and parse_time(last) is None and not any(c in "0123456789" for c in last)
    return names if len(names) > 2 and no_number else ()


def _fast(data: bytes, layout: _Layout) -> dict[str, pa.Array] | None:
    """All rows, or None if any line must be read by itself."""
    mark = layout.mark
    if layout.header:
        data = data.lstrip(b"\n").partition(b"\n")[2]
    if b"\0" in data or (mark == "::" and b"\t" in data):
        return None
    if mark == "::":
        data, mark = data.replace(b"::", b"\t"), "\t"
    elif mark == " ":
        data = data.replace(b"\t", b" ")
    names = [role or f"_{place}" for place, role in enumerate(layout.columns)]
    wanted = [role for role in layout.columns if role]
    kinds = {"user": pa.string(), "item": pa.string(), "weight": pa.float32(), "timestamp": pa.int64()}
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=names),
            parse_options=pyarrow.csv.ParseOptions(delimiter=mark, quote_char=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: kinds[name] for name in wanted},
                include_columns=wanted,
                null_values=[],
                strings_can_be_null=False,
            ),
        ).combine_chunks()
    except pa.ArrowInvalid:
        return None
    found = {name: table[name].combine_chunks() for name in wanted}
    if not len(table) or any(array.null_count for array in found.values()):
        return None
    if any(_blank_or_padded(found[name]) for name in ("user", "item")):
        return None
    if "weight" in found and not pc.all(pc.is_finite(found["weight"])).as_py():
        return None
    return found


def _blank_or_padded(ids: pa.Array) -> bool:
    trimmed = pc.utf8_trim_whitespace(ids)
    return bool(pc.any(pc.or_(pc.equal(trimmed, ""), pc.not_equal(trimmed, ids))).as_py())


def _careful(data: bytes, layout: _Layout) -> tuple[dict[str, Any], list[Reject]]:
    kept: dict[str, list[Any]] = {column: [] for column in layout.columns if column}
    rejects: list[Reject] = []
    lines = ((number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip())
    for number, line in islice(lines, bool(layout.header), None):
        row = _row(line, layout)
        if isinstance(row, tuple):
            column, reason = row
            value = line[: 4 * MAX_SHOWN].decode("utf-8", "backslashreplace")[:MAX_SHOWN]
            rejects.append(Reject(number, _SHOWN.get(column, column), reason, value))
        else:
            for column, cell in row.items():
                kept[column].append(cell)
    kinds = {"weight": pa.float32()}
    found: dict[str, Any] = {
        column: as_times(cells) if column == "timestamp" else pa.array(cells, kinds.get(column, pa.string()))
        for column, cells in kept.items()
    }
    return found, rejects


def _row(line: bytes, layout: _Layout) -> dict[str, str | int | float | Time] | tuple[str, str]:
    """The values of a line, or the faulty column and the reason."""
    try:
        cells = [cell.decode("utf-8") for cell in _cells(line, layout.mark)]
    except UnicodeDecodeError:
        return "", "not UTF-8 text"
    if len(cells) != len(layout.columns):
        return "", f"{len(cells)} columns where the file has {len(layout.columns)}"
    out: dict[str, str | int | float | Time] = {}
    for column, cell in zip(layout.columns, cells, strict=True):
        if not column:
            continue
        if not cell:
            return column, "empty"
        if "\0" in cell:
            return column, "holds a NUL byte"
        if column in ("user", "item"):
            out[column] = cell
            continue
        value = parse_time(cell) if column == "timestamp" else as_number(with_point(cell, layout.mark))
        if value is None:
            return column, NO_TIME_THERE if column == "timestamp" else "not a finite number"
        out[column] = value if isinstance(value, Time) else float(value)
    return out


def _examine(path: str) -> IngestReport:
    return examined(path, "sequence", lambda: read_sequence(path), {"name": "interactions"}, "sasrec")


def _recognises(look: Look) -> int:
    if look.kind != "csv" or not look.lines:
        return 0
    data = ("\n".join(look.lines) + "\n").encode()
    try:
        layout = _layout(data, "auto", look.path)
    except InputError:
        return 0
    if layout.header:
        return 60 if {"user", "item"} <= {role_of(name) for name in layout.header} else 0
    cells = [[cell.decode("utf-8", "replace") for cell in _cells(line.encode(), layout.mark)] for line in look.lines]
    timed = sum(len(row) == len(layout.columns) and parse_time(row[-1]) is not None for row in cells)
    if len(layout.columns) == 2:
        return 30
    return 65 if timed > 0.9 * len(cells) else 0


def _preview(location: str, settings: SequenceSettings, role: str) -> Preview:
    with Source(location) as file:
        rows = first_rows(file.read(PREVIEW_BYTES), settings, file.name, PREVIEW_ROWS)
    return Preview(tuple(rows[0]) if rows else (), rows)


FORMAT = Format(
    "sequence", SequenceSettings, "interactions", _examine, _recognises, read_sequence, graph=ONE_WAY, preview=_preview
)
