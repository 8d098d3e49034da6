"""The format ``kgat``: a folder with ``train.txt`` and ``test.txt`` (``user item item …``) and ``kg_final.txt`` (``h r t``).

Numbers start at 0; items are the first entities. Optional: ``valid.txt``, and lists of names (``user_list.txt``,
``item_list.txt``, ``entity_list.txt``, ``relation_list.txt``: a header with ``org_id`` and ``remap_id``). Every file
may be gzipped; ``kg_final.txt`` may be zipped, as the authors ship it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.ingest.files import shown, text_lines
from graphmill.ingest.findings import IngestReport, examined
from graphmill.ingest.format import ONE_WAY, Format, Look, Preview, lines_preview
from graphmill.ingest.guard import guarded
from graphmill.ingest.rejects import Reject, max_rejects_setting, reject_table
from graphmill.ingest.tables import MAX_SHOWN, IngestResult
from graphmill.ingest.user_items import (
    ENTITY,
    ITEM,
    SPLITS,
    USER,
    Ids,
    count_interactions,
    edge_table,
    interaction_edges,
    interaction_notes,
    node_table,
    numbers,
)
from graphmill.settings import Settings, setting

FILES = {name: f"{name}.txt" for name in SPLITS} | {"knowledge": "kg_final.txt"}
LISTS = {
    "users": "user_list.txt",
    "items": "item_list.txt",
    "entities": "entity_list.txt",
    "relations": "relation_list.txt",
}
_LARGEST = 2**31 - 1
_NO_FACTS = np.zeros((0, 3), np.int64), np.zeros(0, np.int64)
_NO_TRIPLE = "not three numbers from 0 without large gaps"
_SMALL = 100_000
_BLOCK_LINES = 1 << 16
"""Lines of facts that are taken apart at a time: their cells as text are many times as large as the file."""


class KgatFilesSettings(Settings):
    """How a ``kgat`` source is read."""

    part: Literal["all", "interactions", "knowledge"] = setting(
        "all",
        "what to read: interactions and knowledge, or one of them; knowledge adds facts to the interactions of "
        "another source",
    )
    strict: bool = setting(False, "refuse the data set if an entry is rejected or a pair is repeated")
    max_rejects: int = max_rejects_setting("the data set if", "entries")


def kgat_files(path: str | Path, settings: KgatFilesSettings | None = None) -> dict[str, str | Path]:
    """Role → file, for the files that exist. Raises :class:`InputError` if a necessary file is missing."""
    part = (settings or KgatFilesSettings()).part
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"{shown(path)} is not a folder; the format kgat needs one with train.txt and kg_final.txt")
    wanted = LISTS | {
        role: file for role, file in FILES.items() if part == "all" or (role == "knowledge") == (part == "knowledge")
    }
    out: dict[str, str | Path] = {}
    for role, file in wanted.items():
        variants = (folder / name for name in (file, f"{file}.gz", f"{file}.zip", f"{file.removesuffix('.txt')}.zip"))
        if found := next((variant for variant in variants if variant.is_file()), None):
            out[role] = found
    needed = "knowledge" if part == "knowledge" else "train"
    if needed not in out:
        alone = (
            "; to read its facts alone, beside other interactions, set part: knowledge" if "knowledge" in out else ""
        )
        raise InputError(f"{shown(folder)} has no {FILES[needed]}; the format kgat needs it{alone}")
    return out


@guarded
def read_kgat(path: str | Path, settings: KgatFilesSettings | None = None) -> IngestResult:
    """Users, items, entities; interactions and facts as edges, facts in split 0 (train). Without ``kg_final.txt``: no facts.

    Names of nodes and relations are the lists' ``org_id``, else their numbers.

    Raises :class:`InputError` for a missing file, a list that cannot be used, too many rejects, nothing usable and, with
    ``strict``, for any reject or repeated pair.
    """
    settings = settings or KgatFilesSettings()
    files = kgat_files(path, settings)
    rejects = _Rejects(shown(path), settings)
    lists = {role: _read_list(files[role]) for role in LISTS if role in files}
    blocks = {role: _Numbers(file) for role, file in files.items() if role not in LISTS}
    found = {split: _interactions(blocks[split], rejects) for split in SPLITS if split in blocks}
    facts, places = _facts(blocks["knowledge"], rejects) if "knowledge" in blocks else _NO_FACTS
    # Every number up to the largest one becomes a node, so one wrong digit could fill the memory.
    cells = sum(block.cells for block in blocks.values())
    listed = max((number for known in lists.values() for number in known), default=0)
    largest = min(max(_SMALL, 50 * cells, 2 * listed), _LARGEST)
    for name, rows in found.items():
        for column, what in enumerate(("user", "item")):
            rows = _within(rows, column, what, lists.get(f"{what}s"), largest, rejects, blocks[name].name)
        found[name] = rows
    user, item = (np.concatenate([np.zeros(0, np.int64), *(rows[:, n] for rows in found.values())]) for n in range(2))
    split = np.concatenate([np.zeros(0, np.int64), *(np.full(len(r), SPLITS.index(s)) for s, r in found.items())])
    facts = _known_facts(facts, places, lists, largest, rejects, blocks["knowledge"].name) if len(facts) else facts
    place_of = {block.name: place for place, block in enumerate(blocks.values())}
    rejects.sort(key=lambda each: (place_of[each[0]], each[1]))
    if not len(user) and not len(facts):
        raise InputError(f"{shown(path)} has no usable line; {_first(rejects) or 'its files are empty'}")
    num_users = _count(user, lists.get("users"))
    num_items = _count(item, lists.get("items"))
    if not num_items:  # knowledge alone, without a list: which entities are items is for the interactions to say
        raise InputError(f"{shown(path)}: which entities are items? Add item_list.txt, or read part: all")
    num_entities = max(int(facts[:, [0, 2]].max(initial=-1)) + 1, num_items, len(lists.get("entities", ())))
    named = np.append(facts[:, [0, 2]], np.array(list(lists.get("entities", ())), np.int64))
    unique = np.unique(facts, axis=0)
    counts = {
        "entries": len(user) + len(facts) + len(rejects),
        "rejects": len(rejects),
        **(count_interactions(user, item, split, num_users, num_items) if len(user) else {}),
        "entities": num_entities,
        "unnamed_entities": len(np.setdiff1d(np.arange(num_items, num_entities), named)),
        "facts": len(unique),
        "duplicate_facts": len(facts) - len(unique),
        "self_loops": int((unique[:, 0] == unique[:, 2]).sum()),
        "items_without_facts": num_items - len(np.unique(unique[:, [0, 2]][unique[:, [0, 2]] < num_items])),
    }
    if settings.strict and counts.get("duplicate_interactions", 0) + counts.get("pairs_in_two_splits", 0):
        raise InputError(f"{shown(path)}: pairs of user and item are repeated; remove them, or set strict: false")
    # A number that is not in a list is its own name.
    names = {r: [found.get(n, str(n)) for n in range(max(found, default=-1) + 1)] for r, found in lists.items()}
    entity_names = names.get("entities", [])[num_items:num_entities]
    parts = [(USER, numbers(num_users, names.get("users", [])))] if num_users else []
    item_names = names.get("items", names.get("entities", []))[:num_items]
    parts.append((ITEM, numbers(num_items, item_names)))
    if num_entities > num_items:
        ids = [str(i) for i in range(num_items, num_entities)]
        parts.append((ENTITY, Ids(pa.array(ids), entity_names)))
    told = _SENTENCES if counts["facts"] else ["rejects"]
    notes = [_SENTENCES[name].format(counts[name]) for name in told if counts[name]]
    if comments := sum(block.comments for block in blocks.values()):
        notes.append(f"{comments:,} comment lines (# or !) were skipped")
    return IngestResult(
        nodes=node_table(parts, Path(path).name),
        edges=_edges(user, item, split, unique, num_users, names.get("relations", [])),
        rejects=reject_table(rejects),
        counts=counts,
        notes=notes + interaction_notes(counts),
    )


class _Rejects(list[tuple[str, Reject]]):
    """Unusable entries of a file. In a wrong file nearly every entry is unusable: it is refused at the limit.

    Raises :class:`InputError` for the first one with ``strict``, and for one more than ``max_rejects``.
    """

    def __init__(self, path: str, settings: KgatFilesSettings) -> None:
        super().__init__()
        self._path, self._settings = path, settings

    def append(self, reject: tuple[str, Reject]) -> None:
        """Add one."""
        super().append(reject)
        most = self._settings.max_rejects
        if self._settings.strict or 0 < most < len(self):
            limit = "strict: true allows none" if self._settings.strict else f"more than max_rejects ({most})"
            raise InputError(
                f"{self._path}: {len(self)} entries cannot be used, {limit}; {_first(self)}; is this the right format?"
            )


def _number(text: str) -> int:
    """``text`` as a whole number from 0 to :data:`_LARGEST`, or −1."""
    digits = text.lstrip("0") or "0"
    whole = text.isascii() and text.isdigit() and len(digits) <= len(str(_LARGEST))
    return int(digits) if whole and int(digits) <= _LARGEST else -1


def _why(text: str, what: str) -> str:
    """Why ``text`` is not the number of a user or item."""
    if text.isascii() and text.isdigit():
        return f"the {what} is a number far beyond the others; numbers run from 0 without large gaps"
    return f"the {what} is no number from 0"


class _Numbers:
    """A file of lines of numbers. ``cells`` and ``comments``: how many cells and comment lines were read so far."""

    def __init__(self, path: str | Path) -> None:
        self.name, self.cells, self.comments, self._path = shown(path), 0, 0, path

    def __iter__(self) -> Iterator[tuple[list[int], list[list[str]]]]:
        """Yield blocks of lines that are neither blank nor comments: their numbers, and their cells."""
        places, rows = list[int](), list[list[str]]()
        for place, line in text_lines(self._path):
            if line.startswith(("#", "!")):
                self.comments += 1
            elif row := [cell for cell in line.replace("\t", " ").split(" ") if cell]:
                self.cells += len(row)
                places.append(place)
                rows.append(row)
            if len(rows) == _BLOCK_LINES:
                yield places, rows
                places, rows = [], []
        yield places, rows


def _interactions(file: _Numbers, rejects: _Rejects) -> np.ndarray:
    """int64 [n, 3]: user, item and line of every interaction. A line with only a user has no interaction; this is not an
    error."""
    parts = [np.zeros((0, 3), np.int64)]
    for places, rows in file:
        kept = list[tuple[int, int, int]]()
        for place, cells in zip(places, rows, strict=True):
            own, *found = map(_number, cells)
            if own < 0:
                rejects.append((file.name, Reject(place, "", _why(cells[0], "user"), cells[0][:MAX_SHOWN])))
                continue
            for number, cell in zip(found, cells[1:], strict=True):
                if number < 0:
                    rejects.append((file.name, Reject(place, "", _why(cell, "item"), cell[:MAX_SHOWN])))
                else:
                    kept.append((own, number, place))
        parts.append(np.array(kept, np.int64).reshape(-1, 3))
    return np.concatenate(parts)


def _within(
    rows: np.ndarray,
    column: int,
    what: str,
    listed: dict[int, str] | None,
    largest: int,
    rejects: _Rejects,
    file: str,
) -> np.ndarray:
    """The rows of interactions whose number in ``column`` is not far beyond the others, nor beyond its list."""
    last = _LARGEST if listed is None else max(listed, default=-1)
    usable = rows[:, column] <= min(largest, last)
    for number, place in np.unique(rows[~usable][:, [column, 2]], axis=0).tolist():
        reason = _why(str(number), what) if number > largest else f"the {what} is not in {LISTS[what + 's']}"
        rejects.append((file, Reject(place, "", reason, str(number))))
    return rows[usable]


def _facts(file: _Numbers, rejects: _Rejects) -> tuple[np.ndarray, np.ndarray]:
    """int64 [F, 3]: head, relation, tail; and int64 [F]: the line of each."""
    parts, places = [_NO_FACTS[0]], [_NO_FACTS[1]]
    for lines, cells in file:
        found, place = _triples(cells)
        for number in np.setdiff1d(np.arange(len(cells)), place).tolist():
            rejects.append((file.name, Reject(lines[number], "", _NO_TRIPLE, " ".join(cells[number])[:MAX_SHOWN])))
        parts.append(found)
        places.append(np.array(lines, np.int64)[place])
    return np.concatenate(parts), np.concatenate(places)


def _known_facts(
    facts: np.ndarray,
    places: np.ndarray,
    lists: dict[str, dict[int, str]],
    largest: int,
    rejects: _Rejects,
    name: str,
) -> np.ndarray:
    """The facts without numbers far beyond the others, and without those that a list of entities or relations lacks."""
    known = (facts <= largest).all(axis=1)
    for row in np.flatnonzero(~known).tolist():
        rejects.append((name, Reject(int(places[row]), "", _NO_TRIPLE, " ".join(map(str, facts[row])))))
    for role, column, what in (("entities", 0, "entity"), ("entities", 2, "entity"), ("relations", 1, "relation")):
        if role not in lists:
            continue
        missing = ~np.isin(facts[:, column], np.array(sorted(lists[role]), np.int64))
        for row in np.flatnonzero(missing & known).tolist():
            reason = f"the {what} is not in {LISTS[role]}"
            rejects.append((name, Reject(int(places[row]), "", reason, str(facts[row, column]))))
        known &= ~missing
    return facts[known]


def _triples(lines: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """Lines of three non-negative numbers as int64 [n, 3], and the places of these lines."""
    flat = [cell for cells in lines for cell in cells]
    together = "".join(flat)
    # Check every line by itself: two wrong lines may have six cells together.
    if all(len(lines[n]) == 3 for n in range(len(lines))) and (not flat or (together.isascii() and together.isdigit())):
        try:  # all lines regular: one conversion for all
            facts = np.array(flat, np.int64).reshape(-1, 3)
            if facts.max(initial=0) <= _LARGEST:
                return facts, np.arange(len(lines))
        except (OverflowError, ValueError):
            pass
    whole = [(n, list(map(_number, cells))) for n, cells in enumerate(lines)]
    kept = [(n, found) for n, found in whole if len(found) == 3 and min(found) >= 0]
    return np.array([f for _, f in kept], np.int64).reshape(-1, 3), np.array([n for n, _ in kept], np.int64)


def _read_list(path: str | Path) -> dict[int, str]:
    """Number → name. A damaged list is refused: a guess could give vectors wrong names."""
    name, rows = shown(path), text_lines(path)
    first = next(rows, (1, ""))[1]
    # Names can have blanks: if the header has tabs, only tabs separate.
    mark = "\t" if "\t" in first else None
    header = [cell.strip() for cell in first.split(mark)]
    if "org_id" not in header or "remap_id" not in header:
        raise InputError(
            f"{name} must begin with a header that has org_id and remap_id; it begins {' '.join(header)[:MAX_SHOWN]!r}"
        )
    column = header.index("remap_id")
    out: dict[int, str] = {}
    for place, line in rows:
        cells = [cell.strip() for cell in line.split(mark)]
        if not any(cells):
            continue
        if len(cells) > len(header):
            raise InputError(
                f"{name}, line {place}: {len(cells)} columns where the header has {len(header)} ({line[:MAX_SHOWN]!r}); "
                "names with blanks need tabs between the columns, in the header as well"
            )
        number = _number(cells[column]) if len(cells) > column else -1
        if number < 0 or number in out:
            what = "is no number from 0" if number < 0 else "occurs twice"
            raise InputError(
                f"{name}, line {place}: remap_id {what} ({line[:MAX_SHOWN]!r}); mend the list, or remove it"
            )
        out[number] = cells[header.index("org_id")]
    return out


def _count(numbers_used: np.ndarray, listed: dict[int, str] | None) -> int:
    return max(int(numbers_used.max(initial=-1)) + 1, max(listed or {}, default=-1) + 1)


def _edges(
    user: np.ndarray, item: np.ndarray, split: np.ndarray, facts: np.ndarray, num_users: int, names: list[str]
) -> pa.Table:
    interactions = interaction_edges(user, item, split, num_users)
    head, relation, tail = facts.T
    used = np.unique(relation)
    labels = [names[r] if r < len(names) else f"relation {r}" for r in used]
    twice = {label for label in labels if labels.count(label) > 1}
    labels = [f"{label} ({r})" if label in twice else label for label, r in zip(labels, used, strict=True)]
    train = np.zeros(len(facts), np.uint8)
    known = edge_table(head + num_users, tail + num_users, train, np.searchsorted(used, relation), labels)
    return pa.concat_tables([t for t in (interactions, known) if t.num_rows]).unify_dictionaries().combine_chunks()


def _first(rejects: list[tuple[str, Reject]]) -> str:
    return next((f"the first is in {file}, {reject.place} ({reject.value!r})" for file, reject in rejects), "")


_SENTENCES = {
    "rejects": "{:,} entries cannot be used; see the rejects",
    "duplicate_facts": "{:,} facts are repeated; each is there once",
    "self_loops": "{:,} facts join an entity with itself; they are kept",
    "items_without_facts": "{:,} items have no fact",
    "unnamed_entities": "{:,} numbers below the largest entity's are in no line; they are entities without an edge",
}


def _held_out(result: IngestResult) -> dict[str, Any]:
    """How a split is made or completed."""
    found = set(np.unique(result.edges["split"].to_numpy()).tolist())
    if SPLITS.index("test") not in found:
        return {"split": {"given": "redraw", "method": "random"}}
    return {} if SPLITS.index("valid") in found else {"split": {"given": "add_valid"}}


def _examine(path: str) -> IngestReport:
    return examined(path, "kgat", lambda: read_kgat(path), {"name": "interactions"}, "kgat", graph=_held_out)


def _recognises(look: Look) -> int:
    train = look.file("train.txt")
    if train is None:
        return 0
    rows = [line.split() for line in train.lines]
    if not rows or not all(cell.isdigit() for row in rows for cell in row):
        return 0
    return 96 if look.file("kg_final.txt") else 75 if any(len(row) != len(rows[0]) for row in rows) else 60


def _preview(location: str, settings: KgatFilesSettings, role: str) -> Preview:
    return lines_preview(location, ("head", "relation", "tail") if role == "knowledge" else ("user", "items"), None)


FORMAT = Format(
    "kgat",
    KgatFilesSettings,
    lambda settings: "knowledge" if settings.part == "knowledge" else "interactions and facts",
    _examine,
    _recognises,
    read_kgat,
    kgat_files,
    data_roles=(*SPLITS, "knowledge"),
    graph=ONE_WAY,
    preview=_preview,
)
