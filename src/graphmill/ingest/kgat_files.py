"""The format ``kgat``: a folder with ``train.txt`` and ``test.txt`` (``user item item …``) and ``kg_final.txt`` (``h r t``).

Numbers start at 0; items are the first entities. Optional: ``valid.txt``, and lists of names (``user_list.txt``,
``item_list.txt``, ``entity_list.txt``, ``relation_list.txt``: a header with ``org_id`` and ``remap_id``). Every file
may be gzipped; ``kg_final.txt`` may be zipped, as the authors ship it.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.ingest.cells import Column
from graphmill.ingest.files import COMMENTS, guarded, path_text, text_lines
from graphmill.ingest.format import ONE_WAY, Candidate, Format, Preview, lines_preview
from graphmill.ingest.id_columns import numbered_texts
from graphmill.ingest.interactions import (
    ENTITY,
    ITEM,
    SENTENCES,
    SPLITS,
    USER,
    count_interactions,
    edge_table,
    interaction_edges,
    node_table,
    numbers,
)
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import MAX_SHOWN, IngestResult, Reading, Reject, sentences
from graphmill.settings import Settings, setting

FILES = {name: f"{name}.txt" for name in SPLITS} | {"knowledge": "kg_final.txt"}
LISTS = {
    "users": "user_list.txt",
    "items": "item_list.txt",
    "entities": "entity_list.txt",
    "relations": "relation_list.txt",
}
_LARGEST = 2**31 - 1
_NO_NUMBER = "not a whole number from 0"
_SMALL = 100_000
_BLOCK_LINES = 1 << 16
"""Lines of interactions that are taken apart at a time: their cells as text are many times as large as the file."""


class KgatFilesSettings(Settings):
    """How a ``kgat`` source is read."""

    part: Literal["all", "knowledge"] = setting(
        "all", "what to read: interactions and knowledge, or knowledge alone, which adds facts to another source"
    )


def kgat_files(path: str | Path, settings: KgatFilesSettings | None = None) -> dict[str, str | Path]:
    """Role → file, for the files that exist. Raises :class:`InputError` if a necessary file is missing."""
    part = (settings or KgatFilesSettings()).part
    candidate = Candidate(str(path))
    if not candidate.is_folder:
        raise InputError(
            f"{path_text(path)} is not a folder; the format kgat needs one with train.txt and kg_final.txt"
        )
    wanted = LISTS | {role: file for role, file in FILES.items() if part in ("all", role)}
    out: dict[str, str | Path] = {}
    for role, file in wanted.items():
        if variant := candidate.file(file, file.removesuffix(".txt")):
            out[role] = variant.path
    needed = "knowledge" if part == "knowledge" else "train"
    if needed not in out:
        alone = (
            "; to read its facts alone, beside other interactions, set part: knowledge" if "knowledge" in out else ""
        )
        raise InputError(f"{path_text(path)} has no {FILES[needed]}; the format kgat needs it{alone}")
    return out


@guarded
def read_kgat(path: str | Path, settings: KgatFilesSettings | None = None) -> IngestResult:
    """Users, items, entities; interactions and facts as edges, facts in split 0 (train). Without ``kg_final.txt``: no facts.

    Names of nodes and relations are the lists' ``org_id``, else their numbers.

    Raises :class:`InputError` for a missing file, a list that cannot be used, and if nothing is usable.
    """
    settings = settings or KgatFilesSettings()
    files = kgat_files(path, settings)
    reading = Reading(path_text(path))
    lists = {role: _read_list(files[role]) for role in LISTS if role in files}
    rows = {split: _interactions(files[split], reading) for split in SPLITS if split in files}
    facts = _facts(files["knowledge"], reading) if "knowledge" in files else np.zeros((0, 4), np.int64)
    # Every number up to the largest one becomes a node, so one wrong digit could fill the memory.
    cells = 3 * len(facts) + sum(2 * len(part) for part in rows.values())
    listed = max((number for known in lists.values() for number in known), default=0)
    largest = min(max(_SMALL, 50 * cells, 2 * listed), _LARGEST)
    for name in rows:
        for column, role in ((0, "users"), (1, "items")):
            known = range(max(lists[role], default=-1) + 1) if role in lists else None
            rows[name] = _known(rows[name], column, role, known, largest, reading, files[name])
    for column, role in ((0, "entities"), (2, "entities"), (1, "relations")):
        facts = _known(facts, column, role, lists.get(role), largest, reading, files.get("knowledge", ""))
    facts = facts[:, :3]
    user, item = (np.concatenate([np.zeros(0, np.int64), *(part[:, n] for part in rows.values())]) for n in range(2))
    split = np.concatenate([np.zeros(0, np.int64), *(np.full(len(r), SPLITS.index(s)) for s, r in rows.items())])
    order = [path_text(file) for file in files.values()]
    reading.rejects.sort(key=lambda each: order.index(each[0]))
    if not len(user) and not len(facts):
        raise InputError(f"{path_text(path)} has no usable line{reading.first_reject}")
    num_users = _count(user, lists.get("users"))
    num_items = _count(item, lists.get("items"))
    if not num_items:  # knowledge alone, without a list: which entities are items is for the interactions to say
        raise InputError(f"{path_text(path)}: which entities are items? Add item_list.txt, or read part: all")
    num_entities = max(int(facts[:, [0, 2]].max(initial=-1)) + 1, num_items, len(lists.get("entities", ())))
    named = np.append(facts[:, [0, 2]], np.array(list(lists.get("entities", ())), np.int64))
    unique = np.unique(facts, axis=0)
    counts = {
        "rows": len(user) + len(facts) + reading.refused,
        "rejected_rows": reading.refused,
        **(count_interactions(user, item, split, num_users, num_items) if len(user) else {}),
        "entities": num_entities,
        "unnamed_entities": len(np.setdiff1d(np.arange(num_items, num_entities), named)),
        "facts": len(unique),
        "duplicate_facts": len(facts) - len(unique),
        "self_loops": int((unique[:, 0] == unique[:, 2]).sum()),
        "items_without_facts": num_items - len(np.unique(unique[:, [0, 2]][unique[:, [0, 2]] < num_items])),
    }
    # A number that is not in a list is its own name.
    names = {
        r: [names_of.get(n, str(n)) for n in range(max(names_of, default=-1) + 1)] for r, names_of in lists.items()
    }
    by_type = {
        USER: names.get("users", []),
        ITEM: names.get("items", names.get("entities", []))[:num_items],
        ENTITY: names.get("entities", [])[num_items:num_entities],
    }
    parts = [(USER, numbers(num_users)), (ITEM, numbers(num_items)), (ENTITY, numbers(num_entities)[num_items:])]
    parts = [(kind, ids) for kind, ids in parts if len(ids)]
    texts = SENTENCES | (_FACTS if counts["facts"] else {})
    return IngestResult(
        nodes=node_table(parts, Path(path).name, by_type),
        edges=_edges(user, item, split, unique, num_users, names.get("relations", [])),
        rejects=reading.table(),
        counts=counts,
        notes=[*sentences(counts, texts), *reading.notes],
    )


def _interactions(path: str | Path, reading: Reading) -> np.ndarray:
    """int64 [n, 3]: user, item and line of every interaction. A line with only a user has no interaction; this is not an
    error."""
    parts, comments = [np.zeros((0, 3), np.int64)], 0
    lines = text_lines(path)
    while block := list(islice(lines, _BLOCK_LINES)):
        kept, rejects = list[tuple[int, int, int]](), list[Reject]()
        for place, line in block:
            cells = [cell for cell in line.replace("\t", " ").split(" ") if cell]
            if not cells or cells[0].startswith(COMMENTS):
                comments += bool(cells)
                continue
            user, *items = map(_number, cells)
            if user < 0:
                rejects.append(Reject(place, "user", _NO_NUMBER, cells[0][:MAX_SHOWN]))
                continue
            kept += [(user, number, place) for number in items if number >= 0]
            wrong = (cell for number, cell in zip(items, cells[1:], strict=True) if number < 0)
            rejects += [Reject(place, "item", _NO_NUMBER, cell[:MAX_SHOWN]) for cell in wrong]
        reading.refuse(path_text(path), rejects)
        parts.append(np.array(kept, np.int64).reshape(-1, 3))
    if comments:
        reading.notes.append(f"{path_text(path)}: {comments:,} comment lines were skipped")
    return np.concatenate(parts)


def _number(text: str) -> int:
    """``text`` as a whole number from 0, at most :data:`_LARGEST` + 1; else −1."""
    digits = text.lstrip("0") or "0"
    if not (text.isascii() and text.isdigit()):
        return -1
    return min(int(digits), _LARGEST + 1) if len(digits) < 18 else _LARGEST + 1


def _facts(path: str | Path, reading: Reading) -> np.ndarray:
    """int64 [F, 4]: head, relation, tail and line of every fact."""
    names, parts = ("head", "relation", "tail"), [np.zeros((0, 4), np.int64)]
    columns = [Column(name, "whole", required=True) for name in names]
    with RowFile(path, " ", header_line=False, names=names, quoted=False) as file:
        for rows, rejects in file.blocks(columns, lambda block: np.column_stack([*block.table.columns, block.lines])):
            reading.refuse(file.name, rejects)
            parts.append(rows)
    reading.keep_notes(file.name, file.notes)
    return np.concatenate(parts)


def _known(
    rows: np.ndarray,
    column: int,
    role: str,
    listed: Collection[int] | None,
    largest: int,
    reading: Reading,
    file: str | Path,
) -> np.ndarray:
    """The rows whose number in ``column`` is in its list (None: there is none) and not far beyond the others; others are
    rejects. The last column is the line."""
    values = rows[:, column]
    usable = values <= largest
    if listed is not None:
        usable &= np.isin(values, np.array(sorted(listed), np.int64))
    what = {"entities": "entity"}.get(role, role.removesuffix("s"))
    rejects = []
    for number, line in np.unique(rows[~usable][:, [column, -1]], axis=0).tolist():
        far = number > largest
        reason = f"the {what} is a number far beyond the others" if far else f"the {what} is not in {LISTS[role]}"
        rejects.append(Reject(line, what, reason, str(number)))
    reading.refuse(path_text(file), rejects)
    return rows[usable]


def _read_list(path: str | Path) -> dict[int, str]:
    """Number → name. A damaged list is refused: a guess could give vectors wrong names."""
    name = path_text(path)
    first = next(text_lines(path), (1, ""))[1]
    # Names can have blanks: if the header has tabs, only tabs separate.
    with RowFile(path, "\t" if "\t" in first else " ", quoted=False) as file:
        if not {"org_id", "remap_id"} <= set(file.names):
            raise InputError(
                f"{name} must begin with a header that has org_id and remap_id; it begins {first[:MAX_SHOWN]!r}"
            )
        remedy = "mend the list, or remove it (names with blanks need tabs between the columns, in the header as well)"
        texts, numbers_of, lines = numbered_texts(file, "org_id", "remap_id", remedy, blanks=True)
    for place in np.flatnonzero(numbers_of > _LARGEST)[:1].tolist():
        raise InputError(f"{name}, line {lines[place]}: remap_id {numbers_of[place]} is too large; {remedy}")
    return dict(zip(numbers_of.tolist(), texts, strict=True))


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


_FACTS = {
    "duplicate_facts": "{} facts are repeated; each is there once",
    "self_loops": "{} facts join an entity with itself; they are kept",
    "items_without_facts": "{} items have no fact",
    "unnamed_entities": "{} numbers below the largest entity's are in no line; they are entities without an edge",
}


def _held_out(result: IngestResult) -> dict[str, Any]:
    """How a split is made or completed."""
    splits = set(np.unique(result.edges["split"].to_numpy()).tolist())
    if SPLITS.index("test") not in splits:
        return {"split": {"given": "redraw", "method": "random"}}
    return {} if SPLITS.index("valid") in splits else {"split": {"given": "add_valid"}}


def _recognises(candidate: Candidate) -> int:
    train = candidate.file("train.txt")
    if train is None:
        return 0
    rows = [line.split() for line in train.lines]
    if not rows or not all(cell.isdigit() for row in rows for cell in row):
        return 0
    return 96 if candidate.file("kg_final.txt") else 75 if any(len(row) != len(rows[0]) for row in rows) else 60


def _preview(location: str, settings: KgatFilesSettings, role: str) -> Preview:
    return lines_preview(location, ("head", "relation", "tail") if role == "knowledge" else ("user", "items"), None)


FORMAT = Format(
    "kgat",
    KgatFilesSettings,
    lambda settings: "knowledge" if settings.part == "knowledge" else "interactions and facts",
    _recognises,
    read_kgat,
    kgat_files,
    data_roles=(*SPLITS, "knowledge"),
    graph=ONE_WAY,
    suited=_held_out,
    preview=_preview,
)
