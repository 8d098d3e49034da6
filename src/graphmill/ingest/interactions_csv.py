"""The formats ``interactions_csv``, any table with columns for user and item, and optionally weight and time, which are
named in the settings or guessed from common names; and ``sequence``, such a file whose columns go by their places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError, SettingsError, listed
from graphmill.ingest.cells import SAMPLE_ROWS, Column, RowBlock, parsed_column, times_of
from graphmill.ingest.column_maps import DELIMITER, HEADER, Delimiter
from graphmill.ingest.files import guarded, path_text
from graphmill.ingest.format import ONE_WAY, Candidate, Format, Guess, probe_of, table_guess
from graphmill.ingest.interactions import interaction_tables, with_dislikes
from graphmill.ingest.names import (
    KNOWN_NAMES,
    Probe,
    as_disliking,
    as_liking,
    as_reaction,
    column_of,
    is_row_number,
    plain,
    reaction_of,
    role_of,
    with_points,
    without_blanks,
)
from graphmill.ingest.node_tables import category_of
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import MAX_SHOWN, IngestResult, Reading, Reject, sentences
from graphmill.ingest.times import NO_TIME_THERE, Time, is_plausible, parse_time
from graphmill.settings import Settings, parse, setting

_SHOWN_COLUMNS = 8
_AMOUNTS = ("count", "plays", "quantity", "weight", "menge", "anzahl", "cantidad")
"""Names of weights that are no ratings."""
_LABELS = {"0": 0, "1": 1, "2": 2, "0.0": 0, "1.0": 1, "2.0": 2}
"""Splits as written; pandas writes 1.0 for 1."""
_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "weight": (as_liking, "not a finite number, nor yes or no"),
    "disliking": (as_disliking, "not a finite number, nor yes or no"),
    "reaction": (as_reaction, ""),
    "timestamp": (parse_time, NO_TIME_THERE),
    "split": (_LABELS.get, "not 0 (train), 1 (valid) or 2 (test)"),
}
"""How the cells of a role are read, and the reason of the rejects."""


MIN_WEIGHT: Any = setting(
    0.0,
    "leave out interactions with a smaller weight (rating); 0: leave out those that are negative or zero; a negative "
    "number, such as -1, keeps these from it on",
)
"""The field ``min_weight`` of the settings of formats of interactions."""


class InteractionColumns(Settings):
    """Names of the file's columns; empty: guessed from common names."""

    user: str = setting("", "column with the user's id")
    item: str = setting("", "column with the item's id")
    weight: str = setting("", "column with the weight (rating, plays); none: ignore the file's weights")
    timestamp: str = setting(
        "",
        "column with the time: seconds, ms, µs or ns (the unit is found from each number's size) or dates (ISO 8601, "
        "with dashes); none: ignore the file's times",
    )


class InteractionSettings(Settings):
    """How any table of interactions is read, and a ``sequence`` source."""

    delimiter: Delimiter = DELIMITER
    min_weight: float = MIN_WEIGHT
    k_core: int = setting(
        0,
        "keep only users and items with at least this many interactions, and repeat until all have them; 0: keep all",
        ge=0,
    )


class InteractionsCsvSettings(InteractionSettings):
    """How an ``interactions_csv`` source is read."""

    columns: InteractionColumns = setting(InteractionColumns(), "column map; empty: guessed from common names")
    header: bool = HEADER


@guarded
def read_interactions_csv(path: str | Path, settings: InteractionsCsvSettings | None = None) -> IngestResult:
    """Read ``path`` (plain or gzipped, local or URL) as interactions, which have an order only if they have times.

    Raises :class:`InputError` for a missing column, a file without usable rows, and :class:`SettingsError`
    for ``min_weight`` without a weight column.
    """
    settings = settings or InteractionsCsvSettings()
    named = [name for name in settings.columns.model_dump().values() if name]
    with RowFile(path, settings.delimiter, header_line=settings.header, wanted=named) as file:
        chosen = choose_columns(file.names, settings.columns, file.name)
        if "weight" not in chosen and settings.columns.weight != "none":
            chosen |= _reactions(file, chosen)
        result = read_interactions(file, chosen, settings, ordered="timestamp" in chosen)
    if others := [each for each in file.names if each not in chosen.values() and not is_row_number(each)]:
        listed_names = ", ".join(others[:_SHOWN_COLUMNS]) + (", …" if len(others) > _SHOWN_COLUMNS else "")
        result.notes.append(f"columns that play no part were skipped: {listed_names}")
    return result


def _reactions(file: RowFile, chosen: Mapping[str, str]) -> dict[str, str]:
    """The first other column that says of some of the first rows that they are dislikes, with how it says so."""
    rows, width = file.cells(SAMPLE_ROWS), len(file.names)
    for place, name in enumerate(file.names):
        cells = [row[place] for row in rows if len(row) == width]
        if name not in chosen.values() and (how := reaction_of(name, cells)):
            return {how: name}
    return {}


def read_interactions(
    file: RowFile, chosen: Mapping[str, str], settings: InteractionSettings, *, ordered: bool
) -> IngestResult:
    """The interactions of an open file. ``chosen``: role → column. ``ordered``: whether the order of rows of one time, or
    of all rows if there are no times, is that of the interactions.
    """
    reading = Reading(file.name)
    whole, notes = read_roles(file, chosen, ("user", "item"), reading)
    rows = whole.num_rows + reading.refused
    chosen = {"weight" if role in ("disliking", "reaction") else role: name for role, name in chosen.items()}
    whole, light, weight_notes = positive(whole, chosen, settings.min_weight, file.name)
    result = interaction_tables(whole, reading, settings.k_core, rows=rows, ordered=ordered)
    result.counts["below_min_weight"] = light.num_rows
    result.notes.extend([*file.notes, *notes, *weight_notes])
    return with_dislikes(result, light) if light.num_rows else result


def positive(
    rows: pa.Table, chosen: Mapping[str, str], min_weight: float, file: str
) -> tuple[pa.Table, pa.Table, list[str]]:
    """The rows with a weight that counts as liking, the others, and sentences on the weights.

    ``chosen``: role → column. Raises :class:`SettingsError` for ``min_weight`` without weights, and :class:`InputError`
    if no row is left.
    """
    if "weight" not in chosen:
        if min_weight:
            raise SettingsError(
                f"{file} has no weight column, so min_weight cannot be honoured; name it in columns.weight"
            )
        return rows, rows[:0], []
    weight, column = rows["weight"].to_numpy(), chosen["weight"]
    keep = weight >= min_weight if min_weight else weight > 0
    light = int((~keep).sum())
    what = f"below min_weight ({min_weight:g})" if min_weight else "negative or zero, which is no liking"
    remedy = "" if min_weight or not light else f"; min_weight: {min(weight.min(), -1):g} keeps them"
    if light and not keep.any():
        raise InputError(f"{file} has no usable interaction: all numbers of column {column} are {what}{remedy}")
    if light:
        note = f"{light:,} of {len(keep):,} interactions were left out: their {column} is {what}{remedy}"
        return rows.filter(pa.array(keep)), rows.filter(pa.array(~keep)), [note]
    scale = np.unique(weight)
    if min_weight or not 3 <= len(scale) <= 10 or scale[-1] != 5 or plain(column) in _AMOUNTS:
        return rows, rows[:0], []
    share = 100 * float((weight < 3).mean())
    note = (
        f"column {column} is a scale up to 5: {share:.0f} % of the ratings are below 3 and count as the others do; "
        "min_weight: 3 leaves them out"
    )
    return rows, rows[:0], [note]


def choose_columns(names: tuple[str, ...], columns: InteractionColumns, file: str) -> dict[str, str]:
    """Role → column of the file, for the roles in the file."""
    chosen: dict[str, str] = {}
    for role in KNOWN_NAMES:
        named = getattr(columns, role)
        if named == "none" and role not in ("user", "item"):
            continue
        if named and named not in names:
            raise InputError(f"{file} has no column {named!r} for {role}; it has {listed(names)}")
        if column := named or column_of(role, [name for name in names if name not in chosen.values()]):
            chosen[role] = column
        elif role in ("user", "item"):
            raise InputError(f"{file}: which column is the {role}? It has {listed(names)}; name it with columns.{role}")
    twice = [name for name in chosen.values() if list(chosen.values()).count(name) > 1]
    if twice:
        raise InputError(f"{file}: the column {twice[0]!r} has two roles; name the columns apart")
    return chosen


def read_roles(
    file: RowFile, chosen: Mapping[str, str], required: Collection[str], reading: Reading
) -> tuple[pa.Table, list[str]]:
    """All usable rows of the file by role: user, item, weight, split (float64), and second, nano and unit of the time.

    ``chosen``: role → column; a blank cell of a ``required`` role is a reject. Also returns sentences on what was mended.
    Raises :class:`InputError` if there is no row.
    """
    wanted = tuple(
        Column(name, required=role in required, names=role in ("user", "item")) for role, name in chosen.items()
    )
    blocks, counts = [], Counter[str]()
    for (table, rejects, mended), broken in file.blocks(wanted, lambda b: _digest(b, chosen, file.delimiter)):
        blocks.append(table)
        counts += mended
        reading.refuse(file.name, [*broken, *rejects])
    if not blocks:
        raise InputError(f"{file.name} has a header and no rows")
    return pa.concat_tables(blocks).unify_dictionaries().combine_chunks(), sentences(counts, _MENDED)


_MENDED = {
    "padded": "{} ids have white space around them; it was taken off",
    "commas": "{} numbers have a decimal comma; 1,5 was read as 1.5",
}


def _digest(block: RowBlock, chosen: Mapping[str, str], mark: str) -> tuple[pa.Table, list[Reject], Counter[str]]:
    """The block's rows with parsed numbers, a reject for each cell that is not a number, and the numbers of decimal
    commas and of ids with white space around them.
    """
    mended = Counter[str]()
    out: dict[str, pa.Array] = {}
    keep = np.ones(block.table.num_rows, bool)
    rejects: list[Reject] = []
    for role, name in chosen.items():
        column = written = category_of(block.table, name)
        if role in ("user", "item"):
            out[role], spaced = without_blanks(column)
            mended["padded"] += spaced
            continue
        if role != "split":
            column, commas = with_points(column, mark)
            mended["commas"] += commas
        parse, reason = _PARSERS[role]
        if role == "timestamp":
            times, wrong = times_of(column)
            out |= {part: pa.array(times[part]) for part in Time._fields}
        else:
            numbers, wrong = parsed_column(column, parse, 0, np.float64)
            out["weight" if role in ("disliking", "reaction") else role] = pa.array(numbers)
        rows = [row for row, _ in wrong if keep[row]]
        rejects += [Reject(int(block.lines[row]), name, reason, written[row].as_py()[:MAX_SHOWN]) for row in rows]
        keep[rows] = False
    return pa.table(out).filter(pa.array(keep)), rejects, mended


def _guess(candidate: Candidate, given: Mapping[str, str]) -> Guess:
    names, settings, remarks, _ = table_guess(candidate, given)
    probe = candidate.probe
    if probe is not None and not {"user", "item"} <= {*given, *map(role_of, names)} and (ends := _two_kinds(probe)):
        given = {role: name for role, name in ends.items() if name not in given.values()} | dict(given)
        remarks.append(
            f"columns {given['user']} and {given['item']} are taken for user and item: ids of two kinds, with a time"
        )
    chosen = choose_columns(names, parse(InteractionColumns, dict(given), "columns"), path_text(candidate.path))
    settings = ({"columns": given} if given else {}) | {
        n: v for n, v in settings.items() if v != "tab"
    }  # auto finds it
    return Guess(settings, remarks, {name: role for role, name in chosen.items()})


def _two_kinds(probe: Probe) -> dict[str, str]:
    """Role → column of a table with two columns of ids of two kinds and a time; empty for any other."""
    places, when = probe.ids, probe.place_of("times")
    if len(places) != 2 or when is None or probe.one_kind(*places) is not False:
        return {}
    weights = [n for n in probe.names if probe.header is not False and role_of(n) == "weight"]
    roles = dict(zip(("user", "item", "timestamp"), (probe.names[place] for place in (*places, when)), strict=True))
    return roles | ({"weight": weights[0]} if weights else {})


def _recognises(candidate: Candidate) -> int:
    roles = {role_of(name) for name in candidate.columns}
    if {"user", "item"} <= roles:
        return 75 + 5 * len(roles & {"weight", "timestamp"})
    return (
        66 if candidate.probe is not None and candidate.probe.header is not False and _two_kinds(candidate.probe) else 0
    )


def _suited(result: IngestResult) -> dict[str, Any]:
    # With an order, each user's last two are held out; without one, they must be drawn.
    return {} if "timestamp" in result.edges.column_names else {"split": {"method": "random"}}


FORMAT = Format(
    "interactions_csv",
    InteractionsCsvSettings,
    "interactions",
    _recognises,
    read_interactions_csv,
    graph=ONE_WAY,
    guess=_guess,
    suited=_suited,
)


PLACES = {2: ("user", "item"), 3: ("user", "item", "timestamp"), 4: ("user", "item", "weight", "timestamp")}


@guarded
def read_sequence(path: str | Path, settings: InteractionSettings | None = None) -> IngestResult:
    """Read ``path`` (plain or gzipped, local or URL) as interactions in order.

    Without timestamps the order of the file is each user's order. Raises :class:`InputError` if the file cannot be read
    as this format.
    """
    settings = settings or InteractionSettings()
    with _opened(path, settings.delimiter) as file:
        roles = PLACES[len(file.names)]
        result = read_interactions(file, dict(zip(roles, file.names, strict=True)), settings, ordered=True)
    if "timestamp" not in roles:
        result.notes.append("there is no column of times: a user's order is that of the file")
    return result


def _opened(path: str | Path, delimiter: str) -> RowFile:
    """The open file. Raises :class:`InputError` if its first line has another number of columns, or other names."""
    with RowFile(path, delimiter, quoted=False) as file:
        probe, mark, name = probe_of(file), file.delimiter, file.name
    roles = PLACES.get(len(probe.names), ())
    if not roles or (probe.header and tuple(role_of(each.strip('"')) for each in probe.names) != roles):
        what = f"the header has {listed(probe.names)}" if probe.header else f"the first line has {len(probe.names)}"
        raise InputError(
            f"{name}: {what}; expected 2, 3 or 4 columns: 'user item', 'user item timestamp' or 'user item rating "
            "timestamp'. For other columns, or another order, use the format interactions_csv, which goes by a header"
        )
    names = [{"weight": "rating"}.get(role, role) for role in roles]
    return RowFile(path, mark, header_line=bool(probe.header), names=names, quoted=False)


def _is_sequence(candidate: Candidate) -> int:
    probe = candidate.probe
    if candidate.kind != "csv" or probe is None or probe.header or len(probe.names) not in PLACES:
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


SEQUENCE = Format(
    "sequence",
    InteractionSettings,
    "interactions",
    _is_sequence,
    read_sequence,
    graph=ONE_WAY,
    opened=lambda location, settings: _opened(location, settings.delimiter),
)
