"""The format ``attributes``: texts, categories, numbers, dates and lists that describe the nodes of one type.

An attribute is what is given; :mod:`graphmill.graph.attributes` turns attributes into the features that models read. A
cell that is no number or date is a reject and counts as missing. docs/how-to/describe_your_nodes.md shows the use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError, SettingsError
from graphmill.ingest.cells import Column
from graphmill.ingest.files import guarded, path_text
from graphmill.ingest.format import Format
from graphmill.ingest.id_columns import Aliases, all_rows, coverage, nearest, renamed, require_once
from graphmill.ingest.names import SEPARATED, TITLES, as_number, first_named, is_row_number
from graphmill.ingest.row_files import LIST_MARK, RowFile
from graphmill.ingest.tables import ATTRIBUTE_TYPES, MAX_SHOWN, IngestResult, Reject, attribute_kind, reject_table
from graphmill.ingest.times import DATE, is_plausible, parse_time
from graphmill.settings import Settings, setting

FEW_VALUES = 20
"""Distinct values up to which a column is taken for categories, and rows a value above which it is, too."""
_YEAR = re.compile(r"(\d{4}(-\d{2})?)(\.0)?")
_MISSING = {"na", "n/a", "nan", "null", "-", "?"}
"""Texts that do not keep a column from being one of numbers or dates; there they are rejects."""
_OF_A_LIST = 0.05
"""Share of cells with a list mark from which a column is taken for lists."""
ResultT = TypeVar("ResultT", bound=IngestResult)


class AttributeSettings(Settings):
    """How a table of attributes is read. With no attribute named, all columns are, and their values show the kinds."""

    node_type: str = setting("", "node type that the rows describe; empty: the one that has most of the ids")
    id: str = setting("", "column with the id of the node; empty: the one with most ids of nodes")
    kinds: dict[str, str] = setting(
        {}, f"attribute → {', '.join(ATTRIBUTE_TYPES)}; empty: all columns, by their values"
    )


def checked_kinds(kinds: Mapping[str, Any], where: str) -> dict[str, str]:
    """Attribute → kind, in the order of the kinds. Raises :class:`SettingsError` for an unknown kind."""
    known = list(ATTRIBUTE_TYPES)
    for name, kind in kinds.items():
        if kind not in known:
            raise SettingsError(f"{where}: attribute {name!r} is of kind {kind!r}; the kinds are {', '.join(known)}")
    return dict(sorted(kinds.items(), key=lambda each: known.index(each[1])))


@dataclass(frozen=True)
class AttributeRows:
    """The rows of one file, all text: ``id``, the ``cells`` by attribute with their ``kinds``, and ``line`` int64."""

    id: pa.StringArray
    kinds: Mapping[str, str]
    cells: Mapping[str, pa.StringArray]
    line: np.ndarray


@guarded
def with_attributes(
    result: ResultT, path: str | Path, settings: AttributeSettings, aliases: Aliases | None = None
) -> ResultT:
    """``result`` with the attributes, rejects, counts and notes of one more file.

    Raises :class:`InputError` for a type without nodes, an id that stands twice, a missing column, an attribute that is the
    same for all nodes, and if no id is one of a node.
    """
    file = path_text(path)
    ids, types = result.nodes["id"].cast(pa.string()), result.nodes["type"].cast(pa.string())
    of_type = {kind: ids.filter(pc.equal(types, kind)) for kind in types.unique().to_pylist()}
    if settings.node_type and settings.node_type not in of_type:
        raise InputError(
            f"{file}: there are no nodes of type '{settings.node_type}'; the types are {', '.join(map(repr, of_type))}"
        )
    table, lines = _read(path, settings)
    chosen = {settings.node_type: of_type[settings.node_type]} if settings.node_type else of_type
    column, kind = _places(table, settings.id, chosen, aliases or Aliases())
    if kind in result.attributes:
        raise InputError(f"{file}: nodes of type '{kind}' have attributes already; join the two files into one")
    if len(of_type[kind].unique()) < len(of_type[kind]):
        raise InputError(f"{file}: two nodes of type '{kind}' have the same id, so its rows cannot be told apart")
    key = renamed(pc.utf8_trim_whitespace(table[column].combine_chunks()), aliases or Aliases())
    matches = coverage(f"attributes of {kind}", key, f"the {kind} nodes", of_type[kind].combine_chunks())
    if not matches.matched:
        raise InputError(f"{file}: {nearest('attributes of {}', key, chosen).sentence}")
    rows = np.flatnonzero(np.asarray(pc.equal(types, kind), bool))
    place = pc.fill_null(pc.index_in(key, value_set=of_type[kind].combine_chunks()), -1).to_numpy()
    matched = np.flatnonzero(place >= 0)
    require_once(key.take(pa.array(matched)).to_pylist(), lines[matched], file, "id {!r}")
    matched = matched[np.argsort(place[matched], kind="stable")]
    rows_of_nodes = AttributeRows(
        key.take(pa.array(matched)),
        settings.kinds or _guessed(table, column, matched, file),
        {name: table[name].combine_chunks().take(pa.array(matched)) for name in table.column_names},
        lines[matched],
    )
    if not rows_of_nodes.kinds:
        raise InputError(
            f"{file}: no column besides {column!r} has two different values, so it describes no node; add a column, or "
            "leave the file out"
        )
    columns, rejects = parsed(rows_of_nodes, file, constant=True)
    node = pa.array(rows[place[matched]].astype(np.int32))
    nodes, title = result.nodes, first_named(table.column_names, TITLES)
    if title not in ("", column) and not pc.any(pc.not_equal(nodes["name"], ids).filter(pc.equal(types, kind))).as_py():
        nodes = _named(nodes, node, rows_of_nodes.cells[title])
    counts = {"rows": len(key), "rejected_rows": len(rejects), "rows_of_no_node": len(key) - len(matched)}
    counts |= {"nodes_with_attributes": len(matched), "nodes_without_attributes": len(rows) - len(matched)}
    guesses = ", ".join(f"{name}: {of_kind}" for name, of_kind in rows_of_nodes.kinds.items())
    notes = [] if settings.kinds else [f"{file}: id {column}, of {kind} nodes; attributes guessed ({guesses})"]
    if nodes is not result.nodes:
        notes.append(f"{file}: {title} names the {kind} nodes, which had no names")
    if skipped := [name for name in table.column_names if name not in (column, *rows_of_nodes.kinds)]:
        notes.append(f"{file}: columns that are no attributes were skipped: {', '.join(skipped)}")
    notes += [f"{file}: {counts[name]:,} {text}" for name, text in _NOTES.items() if counts[name]]
    notes += [f"{file}: {count:,} dates of {name!r} are in the future; correct them" for name, count in _later(columns)]
    return replace(
        result,
        nodes=nodes,
        attributes=result.attributes | {kind: pa.table({"node": node, **columns})},
        rejects=pa.concat_tables([result.rejects, reject_table((file, reject) for reject in rejects)]),
        counts=result.counts | {f"{kind} attributes: {name}": number for name, number in counts.items()},
        notes=[*result.notes, *notes],
        coverage=[*result.coverage, matches],
    )


def _named(nodes: pa.Table, rows: pa.Array, names: pa.StringArray) -> pa.Table:
    """The nodes with these names in ``rows``, ascending; a blank one is not taken."""
    trimmed = pc.utf8_trim_whitespace(names)
    filled = pc.not_equal(trimmed, "")
    mask: np.ndarray = np.zeros(len(nodes), bool)
    mask[rows.filter(filled).to_numpy()] = True
    replaced = pc.replace_with_mask(nodes["name"].combine_chunks(), pa.array(mask), trimmed.filter(filled))
    return nodes.set_column(nodes.schema.get_field_index("name"), "name", replaced)


def _later(columns: Mapping[str, pa.Array]) -> list[tuple[str, int]]:
    """The attributes with dates after now, and their number."""
    now = pa.scalar(datetime.now(UTC).replace(tzinfo=None), ATTRIBUTE_TYPES["date"])
    dates = {name: each for name, each in columns.items() if attribute_kind(each.type) == "date"}
    counts = [(name, pc.sum(pc.greater(each, now)).as_py() or 0) for name, each in dates.items()]
    return [(name, count) for name, count in counts if count]


_NOTES = {
    "rejected_rows": "cells cannot be used, and count as missing: see the rejects",
    "rows_of_no_node": "rows are of no node of the graph, and are left out",
    "nodes_without_attributes": "nodes of this type have no attributes",
}


def read_attribute_rows(path: str | Path, kinds: Mapping[str, str]) -> AttributeRows:
    """The rows of a file about nodes that are not known yet: the attributes of ``kinds`` that it has, and the column ``id``,
    or else the first that is no attribute. Raises :class:`InputError` if it has none of either."""
    with RowFile(path, wanted=list(kinds)) as file:
        available, names = {name: kind for name, kind in kinds.items() if name in file.names}, file.names
    id = next((name for name in ("id", *names) if name in names and name not in kinds), "")
    if not available or not id:
        raise InputError(f"{path_text(path)}: it needs a column id and attributes of the graph ({', '.join(kinds)})")
    table, lines = _read(path, AttributeSettings(id=id, kinds=checked_kinds(available, path_text(path))))
    ids = pc.utf8_trim_whitespace(table[id].combine_chunks())
    require_once(ids.to_pylist(), lines, path_text(path), "id {!r}")
    return AttributeRows(ids, available, {name: table[name].combine_chunks() for name in available}, lines)


def _read(path: str | Path, settings: AttributeSettings) -> tuple[pa.Table, np.ndarray]:
    """The named columns, or all, as text, and the line of each row."""
    named = [name for name in (settings.id, *settings.kinds) if name]
    with RowFile(path, wanted=named) as file:
        names = named if settings.kinds and settings.id else [n for n in file.names if n and not is_row_number(n)]
        names = list(dict.fromkeys([*names, *named]))
        return all_rows(file, [Column(name, required=name == settings.id, names=name == settings.id) for name in names])


def _places(table: pa.Table, column: str, of_type: Mapping[str, pa.ChunkedArray], aliases: Aliases) -> tuple[str, str]:
    """The column of ids and the node type: those with most matches."""
    columns = [column] if column else table.column_names
    best, most = (columns[0], next(iter(of_type))), -1
    for name in columns:
        ids = renamed(pc.utf8_trim_whitespace(table[name].combine_chunks()).unique(), aliases)
        for kind, known in of_type.items():
            count = pc.sum(pc.is_in(ids, value_set=known.combine_chunks())).as_py() or 0
            if count > most:
                best, most = (name, kind), count
    return best


def _guessed(table: pa.Table, id: str, rows: np.ndarray, file: str) -> dict[str, str]:
    """Attribute → kind, by the values in ``rows``; columns without two different values are left out.

    Raises :class:`InputError` for numbers with separators.
    """
    kinds = {}
    for name in table.column_names:
        texts = pc.utf8_trim_whitespace(table[name].combine_chunks().take(pa.array(rows)))
        values = texts.filter(pc.not_equal(texts, ""))
        distinct = values.unique().to_pylist()
        if name == id or len(distinct) < 2:
            continue
        given = [text for text in distinct if text.casefold() not in _MISSING]
        numbers = [as_number(text) is not None for text in given]
        if given and all(numbers):
            kinds[name] = "number"
        elif given and all(number or SEPARATED.fullmatch(text) for number, text in zip(numbers, given, strict=True)):
            raise InputError(
                f"{file}: column {name!r} has numbers such as {given[numbers.index(False)]!r}; write them without "
                "separators and with a decimal point, or list the attributes to read without this one"
            )
        elif given and all(_milliseconds(text) is not None for text in given):
            kinds[name] = "date"
        elif pc.mean(pc.match_substring(values, LIST_MARK)).as_py() >= _OF_A_LIST:
            kinds[name] = "list"
        else:
            kinds[name] = "category" if len(distinct) <= max(FEW_VALUES, len(values) / FEW_VALUES) else "text"
    return kinds


def parsed(rows: AttributeRows, file: str, *, constant: bool = False) -> tuple[dict[str, pa.Array], list[Reject]]:
    """The attributes with the types of :data:`graphmill.ingest.tables.ATTRIBUTE_TYPES`, null where missing, and a reject for
    each cell that is not of its kind. ``constant``: refuse (:class:`InputError`) an attribute that is the same for all.
    """
    columns, rejects = {}, []
    for name, kind in rows.kinds.items():
        encoded = pc.utf8_trim_whitespace(rows.cells[name]).dictionary_encode()
        texts, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        values = [_PARSERS[kind](text) if text else None for text in texts]
        filled = [text.strip(f"{LIST_MARK} ") if kind == "list" else text for text in texts]
        wrong = np.array([bool(text) and value is None for text, value in zip(filled, values, strict=True)], bool)
        for row in np.flatnonzero(wrong[codes]).tolist():
            reason = f"is no {kind}, and counts as missing"
            rejects.append(Reject(int(rows.line[row]), name, reason, texts[codes[row]][:MAX_SHOWN]))
        # Case does not count in a text.
        known = {str(value).casefold() if kind == "text" else str(value) for value in values if value is not None}
        missing = np.array([value is None for value in values], bool)[codes].any()
        if constant and (not known or (len(known) == 1 and (kind == "text" or not missing))):
            same = next((text for text, value in zip(texts, values, strict=True) if value is not None), "")
            what = f"is {same!r} for all nodes" if known else f"has no {kind} for any node"
            if rejects and not known:
                what += f" (a cell is {rejects[-1].value!r})"
            raise InputError(f"{file}: attribute {name!r} {what}, so it tells nothing; leave it out")
        plain = pa.string() if kind == "category" else ATTRIBUTE_TYPES[kind]
        taken = pa.array(values, plain).take(pa.array(codes))
        columns[name] = taken.dictionary_encode() if kind == "category" else taken
    return columns, rejects


def _milliseconds(text: str) -> int | None:
    if year := _YEAR.fullmatch(text):
        text = f"{year[1]}-01-01"[: len("0000-00-00")]
    time = parse_time(text)
    # A number such as 19991231 is no second since 1970.
    return time.second * 1000 if time is not None and (time.unit == DATE or is_plausible(time)) else None


def _number(text: str) -> float | None:
    number = as_number(text)
    return None if number is None else float(number)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "text": str,
    "category": lambda text: text.lower() if text.lower() in ("true", "false") else text,
    "number": _number,
    "date": _milliseconds,
    "list": lambda text: [part.strip() for part in text.split(LIST_MARK) if part.strip()] or None,
}


def frequent(column: pa.ChunkedArray | pa.Array, most: int = 5) -> Sequence[tuple[str, int]]:
    """The most frequent values of a category or of lists, with their counts; () for other attributes."""
    kind = attribute_kind(column.type)
    if kind not in ("category", "list"):
        return ()
    values = pc.list_flatten(column) if kind == "list" else column.cast(pa.string())
    counts = [(each["values"], each["counts"]) for each in pc.value_counts(values.drop_null()).to_pylist()]
    return sorted(counts, key=lambda pair: (-pair[1], pair[0]))[:most]


FORMAT = Format("attributes", AttributeSettings, "attributes", lambda candidate: 0)
