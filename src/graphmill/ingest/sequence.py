"""The format ``sequence``: one interaction per line, ``user item [[rating] timestamp]``, by time or as in the file.

Columns go by their place, or by a header line, if there is one; a header that contradicts itself is refused. The rest is
that of :mod:`graphmill.ingest.interactions_csv`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphmill.errors import InputError, listed
from graphmill.ingest.files import shown
from graphmill.ingest.format import ONE_WAY, PREVIEW_ROWS, Format, Look, Preview, probe_of
from graphmill.ingest.guard import guarded
from graphmill.ingest.interactions_csv import InteractionSettings, read_interactions
from graphmill.ingest.names import positional_roles, role_of, row_number_note
from graphmill.ingest.probe import Probe
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import IngestResult
from graphmill.ingest.times import is_plausible, parse_time

COLUMNS = {2: ("user", "item"), 3: ("user", "item", "timestamp"), 4: ("user", "item", "weight", "timestamp")}
_WIDEST = 5
"""The number of columns of a file with a row number and all four columns."""
_REMEDY = "for other columns use the format interactions_csv, which names them"


class SequenceSettings(InteractionSettings):
    """How a ``sequence`` source is read."""


@guarded
def read_sequence(path: str | Path, settings: SequenceSettings | None = None) -> IngestResult:
    """Read ``path`` (plain or gzipped, local or URL) as interactions in order.

    Without timestamps the order of the file is each user's order. Raises :class:`InputError` if the file cannot be read
    as this format, has more than ``max_rejects`` unusable rows or, with ``strict``, any oddity.
    """
    settings = settings or SequenceSettings()
    file, header, roles = _opened(path, settings.delimiter)
    with file:
        result = read_interactions(
            file, {role: name for role, name in zip(roles, file.names, strict=True) if role}, settings, ordered=True
        )
    if unread := [name for name, role in zip(header, roles, strict=False) if not role]:
        result.notes.append(row_number_note(unread))
    if "timestamp" not in roles:
        result.notes.append("there is no column of times: a user's order is that of the file")
    return result


def _opened(path: str | Path, delimiter: str) -> tuple[RowFile, Sequence[str], Sequence[str]]:
    """The open file, its names, if it has any, and the role of each column, "" if it is not read."""
    with RowFile(path, delimiter, quoted=False) as file:
        probe, mark = probe_of(file), file.delimiter
        header = [name.strip('"') for name in file.names] if probe.header else []
    roles = _roles(header or probe.names, bool(header), shown(path))
    names = [{"weight": "rating"}.get(role, role) or f"column {place}" for place, role in enumerate(roles)]
    return RowFile(path, mark, header_line=bool(header), names=names, quoted=False), header, roles


def _roles(names: Sequence[str], header: bool, file: str) -> Sequence[str]:
    """The role of each column. Raises :class:`InputError` if it is not clear."""
    if header and len(names) <= _WIDEST:
        roles = positional_roles(
            names, COLUMNS[min(max(len(names), 2), 4)], [role_of(name) for name in names], file, _REMEDY
        )
        if "user" in roles and "item" in roles:
            return roles
    if header or len(names) not in COLUMNS:
        what = f"the header ({listed(names)})" if header else "the first line"
        raise InputError(
            f"{file}: {what} does not have 2, 3 or 4 columns; expected 'user item', 'user item timestamp' or 'user item "
            f"rating timestamp' ({_REMEDY})"
        )
    return COLUMNS[len(names)]


def _recognises(look: Look) -> int:
    probe = look.probe
    if look.kind != "csv" or probe is None:
        return 0
    try:
        roles = _roles(probe.names, bool(probe.header), look.path)
    except InputError:
        return 0
    if probe.header:
        return 60 if {"user", "item"} <= {role_of(name) for name in probe.names} else 0
    rows = tuple(row for row in probe.rows if len(row) == len(roles))
    one = Probe(tuple(map(str, range(len(roles)))), False, rows).one_kind(0, 1)
    if one or not rows:
        return 0
    if len(roles) == 2:
        return 30 if one is False else 0
    times = [parse_time(row[-1].strip()) for row in rows]
    return 65 if sum(time is not None and is_plausible(time) for time in times) > 0.9 * len(times) else 0


def _preview(location: str, settings: SequenceSettings, role: str) -> Preview:
    with _opened(location, settings.delimiter)[0] as file:
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
