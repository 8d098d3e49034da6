"""The format ``sequence``: one interaction per line, ``user item [[rating] timestamp]``.

Any separator (tab, ``::``, comma, semicolon, bar, white space), with or without a header line, sorted or not. A header
determines the meaning of the columns; a header that contradicts itself is refused. The rest is that of
:mod:`graphmill.ingest.interactions_csv`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from graphmill.errors import InputError
from graphmill.ingest.files import Source, first_lines
from graphmill.ingest.format import ONE_WAY, PREVIEW_BYTES, PREVIEW_ROWS, Format, Look, Preview
from graphmill.ingest.guard import guarded
from graphmill.ingest.interactions_csv import MIN_WEIGHT, read_interactions
from graphmill.ingest.names import as_number, is_row_number, positional_roles, role_of, row_number_note
from graphmill.ingest.probe import Probe
from graphmill.ingest.rejects import max_rejects_setting
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import MAX_SHOWN, IngestResult
from graphmill.ingest.times import is_plausible, parse_time
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
    """``columns``: user, item, weight, timestamp or "" (not read), by place; ``header``: the names in the file, if any."""

    mark: str
    columns: tuple[str, ...]
    header: tuple[str, ...] = ()

    def open(self, path: str | Path) -> RowFile:
        """The file as a table with these columns."""
        names = [_SHOWN.get(role, role) or f"column {place}" for place, role in enumerate(self.columns)]
        return RowFile(path, self.mark, header_line=bool(self.header), wanted=self.header, names=names, quoted=False)

    @property
    def chosen(self) -> dict[str, str]:
        """Role → column."""
        return {role: _SHOWN.get(role, role) for role in self.columns if role}


class SequenceSettings(Settings):
    """How a ``sequence`` source is read."""

    separator: Literal["auto", "tab", "double_colon", "comma", "semicolon", "bar", "space"] = setting(
        "auto",
        "the separator between columns; space: any white space; auto: the separator that most of the first lines fit",
    )
    min_weight: float = MIN_WEIGHT
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
    layout = _layout(path, (settings or SequenceSettings()).separator)
    with layout.open(path) as file:
        result = read_interactions(file, layout.chosen, settings or SequenceSettings(), ordered=True)
    if numbers := [column for column, role in zip(layout.header, layout.columns, strict=False) if not role]:
        result.notes.append(row_number_note(numbers))
    if "timestamp" not in layout.columns:
        result.notes.append("there is no column of times: a user's order is that of the file")
    return result


def _cells(line: str, mark: str) -> list[str]:
    return line.split() if mark == " " else [cell.strip() for cell in line.split(mark)]


def _layout(path: str | Path, separator: str) -> _Layout:
    """The separator and the columns, recognised from most of the first lines and from the header, if there is one."""
    with Source(path) as source:
        data, name = source.read(PREVIEW_BYTES), source.name
    if b"\n" not in data and b"\r" in data.rstrip(b"\r"):
        raise InputError(f"{name}: lines end in CR alone; save it with LF (or CR LF) line ends")
    return _layout_of(first_lines(data), separator, name)


def _layout_of(lines: list[str], separator: str, name: str) -> _Layout:
    heads = [line for line in lines if line[0] in "#!"]
    lines = [line for line in lines if line[0] not in "#!"][:_PROBE_LINES]
    if not lines:
        raise InputError(
            f"{name} is empty, or begins with blank lines and comments only; expected 'user item timestamp'"
        )
    best: tuple[int, str, int] = (0, "", 0)
    for key, mark in SEPARATORS.items():
        if separator in ("auto", key):
            widths = [len(cells) if all(cells) else 0 for cells in (_cells(line, mark) for line in lines)]
            found = [(widths.count(width), mark, width) for width in range(2, _WIDEST + 1)]
            best = max([best, *found], key=lambda each: each[0])
    votes, mark, width = best
    # The last comment may be the header, if no line after it is one.
    for line in [lines[0], *(head.lstrip("#! \t") for head in heads[-1:])]:
        header = _header(line, mark) if votes else ()
        if header and len(header) == width:
            usual = list(COLUMNS[min(width, 4)])
            roles = positional_roles(header, usual, [role_of(name) for name in header], name, _REMEDY)
            if "user" in roles and "item" in roles:
                return _Layout(mark, tuple(roles), header)
    if not votes or width not in COLUMNS:
        raise InputError(
            f"{name}: the first line ({lines[0][:MAX_SHOWN]!r}) does not have 2, 3 or 4 columns; expected 'user item', "
            f"'user item timestamp' or 'user item rating timestamp' ({_REMEDY})"
        )
    return _Layout(mark, COLUMNS[width])


def _header(line: str, mark: str) -> tuple[str, ...]:
    """The names in a header line, or none if the line is an interaction."""
    names = tuple(cell.strip('"') for cell in _cells(line, mark))
    known = sum(bool(role_of(name)) for name in names)
    digits = any(character in "0123456789" for name in names for character in name if not is_row_number(name))
    if known >= 2 or (known and not digits):
        return names
    last = names[-1]
    no_number = as_number(last) is None and parse_time(last) is None and not any(c in "0123456789" for c in last)
    return names if len(names) > 2 and no_number else ()


def _recognises(look: Look) -> int:
    if look.kind != "csv" or not look.lines:
        return 0
    try:
        layout = _layout_of(look.lines, "auto", look.path)
    except InputError:
        return 0
    if layout.header:
        return 60 if {"user", "item"} <= {role_of(name) for name in layout.header} else 0
    if look.probe is not None and look.probe.header:
        return 0  # a header that says something else
    cells = [_cells(line, layout.mark) for line in look.lines if line[0] not in "#!"]
    cells = [row for row in cells if len(row) == len(layout.columns)]
    places = range(len(layout.columns))
    probe = Probe(tuple(map(str, places)), False, tuple(map(tuple, cells)))
    one = probe.one_kind(0, 1)
    if one or not cells:
        return 0
    if len(layout.columns) == 2:
        return 30 if one is False else 0
    times = [parse_time(row[-1]) for row in cells]
    return 65 if sum(time is not None and is_plausible(time) for time in times) > 0.9 * len(times) else 0


def _preview(location: str, settings: SequenceSettings, role: str) -> Preview:
    with _layout(location, settings.separator).open(location) as file:
        return Preview(file.names, file.first(PREVIEW_ROWS), file.header.first_line - 1)


FORMAT = Format(
    "sequence",
    SequenceSettings,
    "interactions",
    _recognises,
    read_sequence,
    graph=ONE_WAY,
    preview=_preview,
)
