"""The format ``sequence``: one interaction per line, ``user item [[rating] timestamp]``, by time or as in the file.

Columns go by their place, which a header may repeat. Columns in another order, and others, are of
:mod:`graphmill.ingest.interactions_csv`, which reads the rows of both.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from graphmill.errors import InputError, listed
from graphmill.ingest.format import ONE_WAY, PREVIEW_ROWS, Candidate, Format, Preview, probe_of
from graphmill.ingest.guard import guarded
from graphmill.ingest.interactions_csv import InteractionSettings, read_interactions
from graphmill.ingest.names import role_of
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import IngestResult
from graphmill.ingest.times import is_plausible, parse_time

COLUMNS = {2: ("user", "item"), 3: ("user", "item", "timestamp"), 4: ("user", "item", "weight", "timestamp")}


class SequenceSettings(InteractionSettings):
    """How a ``sequence`` source is read."""


@guarded
def read_sequence(path: str | Path, settings: SequenceSettings | None = None) -> IngestResult:
    """Read ``path`` (plain or gzipped, local or URL) as interactions in order.

    Without timestamps the order of the file is each user's order. Raises :class:`InputError` if the file cannot be read
    as this format.
    """
    settings = settings or SequenceSettings()
    with _opened(path, settings.delimiter) as file:
        roles = COLUMNS[len(file.names)]
        result = read_interactions(file, dict(zip(roles, file.names, strict=True)), settings, ordered=True)
    if "timestamp" not in roles:
        result.notes.append("there is no column of times: a user's order is that of the file")
    return result


def _opened(path: str | Path, delimiter: str) -> RowFile:
    """The open file. Raises :class:`InputError` if its first line has another number of columns, or other names."""
    with RowFile(path, delimiter, quoted=False) as file:
        probe, mark, name = probe_of(file), file.delimiter, file.name
    roles = COLUMNS.get(len(probe.names), ())
    if not roles or (probe.header and tuple(role_of(each.strip('"')) for each in probe.names) != roles):
        what = f"the header has {listed(probe.names)}" if probe.header else f"the first line has {len(probe.names)}"
        raise InputError(
            f"{name}: {what}; expected 2, 3 or 4 columns: 'user item', 'user item timestamp' or 'user item rating "
            "timestamp'. For other columns, or another order, use the format interactions_csv, which goes by a header"
        )
    names = [{"weight": "rating"}.get(role, role) for role in roles]
    return RowFile(path, mark, header_line=bool(probe.header), names=names, quoted=False)


def _recognises(candidate: Candidate) -> int:
    probe = candidate.probe
    if candidate.kind != "csv" or probe is None or probe.header or len(probe.names) not in COLUMNS:
        return 0
    if probe.header is None and probe.names[0] != "0":  # the first line may have names, and would be read as a row
        return 0
    rows = tuple(row for row in probe.rows if len(row) == len(probe.names))
    one = replace(probe, names=tuple(map(str, range(len(probe.names)))), header=False, rows=rows).one_kind(0, 1)
    if one or not rows:
        return 0
    if len(probe.names) == 2:
        return 30 if one is False else 0
    times = [parse_time(row[-1].strip()) for row in rows]
    return 65 if sum(time is not None and is_plausible(time) for time in times) > 0.9 * len(times) else 0


def _preview(location: str, settings: SequenceSettings, role: str) -> Preview:
    with _opened(location, settings.delimiter) as file:
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
