"""Ids of nodes in small tables (labels, aliases, groups), their aliases and repairs, and how ids of two sources match.

Aliases are a table of old ids and the ids that replace them; then beginnings are taken off, and case, Unicode form and
invisible characters do not count, where the user says so.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError, SettingsError, listed
from graphmill.ingest.cells import Column
from graphmill.ingest.files import path_text
from graphmill.ingest.node_tables import joined_keys, places_in, text_of
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import IngestResult

_SAMPLES = 5
_PREFIXES = 5
_REPAIRS = 3
"""Repairs that are combined, at most."""
_MOST = 200_000
"""Ids of each source that repairs are tried on, at most."""
_DECIMAL = re.compile(r"^([+-]?[0-9]+)\.0+$")
Repair = Callable[[str], str]


@dataclass(frozen=True)
class Coverage:
    """How ids of the source ``first`` match those of ``second``.

    ``ids``, ``others``: numbers of distinct ids of the two; ``matched``: of those in both. ``samples``: ids of ``first``
    alone. ``repair``: the change to the ids of ``first`` that would match most, as a sentence; "" if none would;
    ``repaired``: the number of ids in both after it.
    """

    first: str
    second: str
    ids: int
    others: int
    matched: int
    samples: tuple[str, ...] = ()
    repair: str = ""
    repaired: int = 0

    @property
    def share(self) -> float:
        """The matched share of the source with fewer ids."""
        return self.matched / max(min(self.ids, self.others), 1)

    @property
    def sentence(self) -> str:
        """The numbers as one sentence."""
        share = f"{self.matched:,} of {self.ids:,} ids of {self.first} are among the {self.others:,} of {self.second}"
        samples = f"; not {', '.join(map(repr, self.samples))}" if self.samples else ""
        return share + samples + (f"; {self.repair}" if self.repair else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the share."""
        return {**asdict(self), "samples": list(self.samples), "share": self.share}


def coverage(first: str, ids: pa.Array, second: str, others: pa.Array) -> Coverage:
    """Compare the ids (strings) of two sources, called ``first`` and ``second``."""
    ids, others = ids.unique(), others.unique()
    unmet = ids.filter(pc.invert(pc.is_in(ids, others)))
    matched, repair, repaired = len(ids) - len(unmet), "", len(ids) - len(unmet)
    if len(unmet):
        left = others.filter(pc.invert(pc.is_in(others, ids)))
        tried = [part.slice(0, _MOST).to_pylist() for part in (unmet, left)]
        repair, more = best_repair(tried[0], set(tried[1]))
        repaired += more
        repair += f": {matched:,} → {repaired:,} of {len(ids):,}" if more else ""
    samples = tuple(unmet.slice(0, _SAMPLES).to_pylist())
    return Coverage(first, second, len(ids), len(others), matched, samples, repair, repaired)


def nearest(first: str, ids: pa.Array, of_types: Mapping[str, pa.Array]) -> Coverage:
    """:func:`coverage` of the ids of the node type that a repair would match most. ``first``: with {} for that type."""
    compared = [coverage(first.format(kind), ids, f"the {kind} nodes", others) for kind, others in of_types.items()]
    return max(compared, key=lambda each: each.repaired)


def best_repair(unmet: list[str], known: set[str]) -> tuple[str, int]:
    """What to change of ``unmet`` ids so that most are in ``known``, and how many then are; "" and 0 if no repair helps.

    Repairs are tried alone, then together, the best one first. A prefix is changed on ``unmet`` alone.
    """
    here, others, names, best = unmet, known, list[str](), 0
    for _ in range(_REPAIRS):
        tried = []
        for name, repair, both in _repairs(here, others):
            mended, target = [repair(each) for each in here], {repair(each) for each in others} if both else others
            tried.append((sum(each in target for each in mended), name, mended, target))
        count, name, mended, target = max(tried, key=lambda each: each[0])
        if count <= best:
            break
        best, here, others = count, mended, target
        names.append(name)
    return " and ".join(names), best


def _repairs(ids: list[str], known: set[str]) -> list[tuple[str, Repair, bool]]:
    """Repairs with their names, and whether both sides are changed."""
    pairs = [(old, new) for old in ("", *_prefixes(ids)) for new in ("", *_prefixes(known)) if old != new]
    pairs.sort(key=lambda pair: "" not in pair)  # of two that match as many, the simpler one is named
    return [
        ("case ignored", str.casefold, True),
        ("Unicode form NFKC", REPAIRS["unicode"], True),
        ("invisible characters removed", visible, True),
        ("7.0 read as 7", partial(_DECIMAL.sub, r"\1"), True),
        *((_said(old, new), partial(_with_prefix, old, new), False) for old, new in pairs),
    ]


def _said(old: str, new: str) -> str:
    replaced = f"prefix {old!r} replaced by {new!r}"
    return replaced if old and new else f"prefix {(old or new)!r} {'removed' if old else 'added'}"


def _with_prefix(old: str, new: str, text: str) -> str:
    return new + text.removeprefix(old) if text.startswith(old) else text


def _prefixes(ids: Iterable[str]) -> list[str]:
    """The most frequent beginnings up to a colon, an underscore, a slash or a hash, and those of letters before digits."""
    counts = Counter[str]()
    for text in ids:
        ends = {text.rfind(mark) + 1 for mark in ":_/#"} | {len(text) - len(text.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))}
        counts.update(text[:end] for end in ends if 0 < end < len(text))
    return [prefix for prefix, _ in counts.most_common(_PREFIXES)]


def visible(text: str) -> str:
    """The text without control and format characters (zero-width blanks, byte order marks), and without blanks around."""
    if text.isascii() and text.isprintable():
        return text.strip()
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf")).strip()


_IDS = ("id", "node_id")


def text_columns(path: str | Path, names: Sequence[str], purpose: str, optional: Sequence[str] = ()) -> pa.Table:
    """Columns of a file as text, in this order. ``purpose``: "Groups are", for messages. ``optional``: those that may have
    blank cells.

    Raises :class:`InputError` for a missing column, a row without one of the texts, and a file without rows.
    """
    with RowFile(path, wanted=list(names)) as file:
        if missing := [name for name in names if name not in file.names]:
            raise InputError(
                f"{file.name} has no column {' and '.join(map(repr, missing))}; it has {listed(file.names)}. {purpose} "
                f"read from the columns {' and '.join(names)}"
            )
        required = {name: name not in optional for name in names}
        return all_rows(file, [Column(name, required=ids, names=ids) for name, ids in required.items()])[0]


def all_rows(file: RowFile, columns: Sequence[Column], remedy: str = "") -> tuple[pa.Table, np.ndarray]:
    """Columns of an open file, in this order, and the line of each row (int64).

    Raises :class:`InputError` for a row that breaks the rules of a column, and for a file without rows.
    """
    names, parts = [column.name for column in columns], []
    for part, rejects in file.blocks(columns, lambda block: (block.table.select(names), block.lines)):
        for reject in sorted(rejects)[:1]:
            raise InputError(f"{file.name}, {reject.place}" + (f" ({reject.value!r}); {remedy}" if remedy else ""))
        parts.append(part)
    if not sum(table.num_rows for table, _ in parts):
        raise InputError(f"{file.name} has no row below its header")
    return pa.concat_tables([table for table, _ in parts]).combine_chunks(), np.concatenate([n for _, n in parts])


def text_mapping(path: str | Path, key: str, value: str, purpose: str) -> dict[str, str]:
    """``key`` → ``value`` of the rows of a file; ``purpose`` as of :func:`text_columns`.

    Raises :class:`InputError` as that does, and for a key with two values.
    """
    values: dict[str, str] = {}
    for row in text_columns(path, (key, value), purpose).to_pylist():
        if (known := values.setdefault(row[key], row[value])) != row[value]:
            raise InputError(
                f"{path_text(path)}: {key} {row[key]!r} has the {value} {known!r} and the {value} {row[value]!r}; keep one"
            )
    return values


def numbered_texts(
    file: RowFile, text: str, number: str, remedy: str, *, blanks: bool = False
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Texts, their numbers (int64) and their lines, from two columns of an open file.

    Raises :class:`InputError` for a row without one of them (``blanks``: without a number), for a number that occurs
    twice, and for a file without rows.
    """
    columns = [Column(text, required=not blanks), Column(number, "whole", required=True)]
    table, lines = all_rows(file, columns, remedy)
    numbers = table[number].to_numpy()
    require_once(numbers.tolist(), lines, file.name, f"{number} {{}}")
    return [each.strip() for each in table[text].to_pylist()], numbers, lines


def require_once(values: Sequence[Any], lines: np.ndarray, file: str, what: str) -> None:
    """Raise :class:`InputError` for a value that occurs twice. ``what``: how a value is called, with {} in its place."""
    line_of: dict[Any, int] = {}
    for value, line in zip(values, lines.tolist(), strict=True):
        if line_of.setdefault(value, line) != line:
            raise InputError(
                f"{file}, line {line}: {what.format(value)} is on line {line_of[value]}, too; name each once"
            )


def label_columns(path: str | Path, key: str, column: str) -> tuple[str, str]:
    """The columns of the id and of the label. Raises :class:`InputError` if it is not clear which they are."""
    with RowFile(path, wanted=[name for name in (key, column) if name]) as file:
        names, file_name = list(file.names), file.name
    key = key or next((name for name in _IDS if name in names), names[0] if names else "")
    others = [name for name in names if name not in (key, "")]
    if not column and len(others) != 1:
        raise InputError(
            f"{file_name}: which column has the label? It has {listed(others)}; name one as column, or "
            "leave the others out of the table"
        )
    return key, column or others[0]


ResultT = TypeVar("ResultT", bound=IngestResult)
COLUMNS = ("old_id", "id")
PREFIX = "prefix "
REPAIRS: Mapping[str, Repair] = {
    "case": str.casefold,
    "unicode": lambda text: text if text.isascii() else unicodedata.normalize("NFKC", text),
    "invisible": visible,
}
"""Word → what is done to every id, in this order, after aliases and prefixes."""


@dataclass(frozen=True)
class Aliases:
    """``id_of``: old id → the id that replaces it; ``repairs``: applied afterwards, one after the other."""

    id_of: Mapping[str, str] = field(default_factory=dict)
    repairs: tuple[Repair, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.id_of or self.repairs)


def read_aliases(path: str | Path, repairs: Sequence[str] = ()) -> Aliases:
    """Old id → the id that replaces it in the end (of a → b and b → c, both get c); none for the path "".

    ``repairs``: "prefix MONDO:" takes this beginning off; "case", "unicode" and "invisible" as :data:`REPAIRS`.

    Raises :class:`InputError` for a circle, for an old id with two ids, and for a file without the columns old_id and id;
    :class:`SettingsError` for another repair.
    """
    prefixes = [each.removeprefix(PREFIX) for each in repairs if each.startswith(PREFIX)]
    if strange := [e for e in repairs if e not in REPAIRS and e.removeprefix(PREFIX) in ("", e)]:
        raise SettingsError(
            f"repair_ids: {strange[0]!r} is no repair; there are {', '.join(REPAIRS)} and '{PREFIX}MONDO:' (any beginning)"
        )
    applied: list[Repair] = [partial(_without, prefix) for prefix in prefixes]
    applied += [repair for name, repair in REPAIRS.items() if name in repairs]
    id_of = text_mapping(path, *COLUMNS, "Aliases are") if str(path) else {}
    return Aliases({old: _last(old, id_of, path) for old in id_of}, tuple(applied))


def _without(prefix: str, text: str) -> str:
    return text.removeprefix(prefix) or text


def _last(old: str, id_of: Mapping[str, str], path: str | Path) -> str:
    way = [old]
    while (new := id_of.get(way[-1], way[-1])) != way[-1]:
        if new in way:
            raise InputError(
                f"{path_text(path)}: aliases go round in a circle: {' → '.join([*way, new][:8])}; remove one row"
            )
        way.append(new)
    return way[-1]


def renamed(ids: pa.Array, aliases: Aliases) -> pa.Array:
    """The ids (strings), each with its alias replaced, and repaired."""
    if id_of := aliases.id_of:
        place = places_in(ids, pa.array(list(id_of), pa.string()))
        new = pa.array(list(id_of.values()), pa.string()).take(pa.array(np.maximum(place, 0)))
        ids = pc.if_else(pa.array(place >= 0), new, ids)
    if aliases.repairs:
        texts = ids.to_pylist()
        for repair in aliases.repairs:
            texts = [text if text is None else repair(text) for text in texts]
        ids = pa.array(texts, pa.string())
    return ids


def with_aliases(result: ResultT, aliases: Aliases) -> ResultT:
    """The tables with aliases replaced and ids repaired. A node that then has the type and id of another one becomes that
    node."""
    nodes = result.nodes.combine_chunks()
    old = text_of(nodes, "id")
    ids = renamed(old, aliases)
    changed = np.asarray(pc.not_equal(ids, old), bool)
    if not changed.any():
        return result
    keys = joined_keys(text_of(nodes, "type"), ids)
    # An unchanged node keeps its row; a changed one has that of an unchanged node of its key, else of the first changed.
    rows, order = np.arange(len(ids)), np.argsort(changed, kind="stable")
    first = order[places_in(keys, keys.take(pa.array(order)))]
    owner = np.where(changed, first, rows)
    kept = np.flatnonzero(owner == rows)
    row_of = np.searchsorted(kept, owner).astype(np.int32)
    names = pc.if_else(pc.equal(nodes["name"], old), ids, nodes["name"])
    for column, values in (("id", ids), ("name", names)):
        nodes = nodes.set_column(nodes.schema.get_field_index(column), column, values)
    edges = result.edges
    for end in ("head", "tail"):
        place = edges.schema.get_field_index(end)
        edges = edges.set_column(place, edges.schema.field(end), pa.array(row_of[edges[end].to_numpy()]))
    features = {}
    for key, table in result.features.items():
        node, unique = np.unique(row_of[table["node"].to_numpy()], return_index=True)
        features[key] = table.take(pa.array(unique)).set_column(0, "node", pa.array(node.astype(np.int32)))
    merged = len(rows) - len(kept)
    counts = {"ids_replaced": int(changed.sum()), "nodes_merged_by_aliases": merged}
    note = f"{counts['ids_replaced']:,} ids were replaced or repaired; {merged:,} nodes became one with another"
    return replace(
        result,
        nodes=nodes.take(pa.array(kept)),
        edges=edges,
        features=features,
        counts=result.counts | counts | {name: len(kept) for name in ("nodes",) if name in result.counts},
        notes=[*result.notes, note],
    )
