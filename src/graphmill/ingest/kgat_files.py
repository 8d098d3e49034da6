"""The format ``kgat``: a folder with ``train.txt`` and ``test.txt`` (``user item item …``) and ``kg_final.txt`` (``h r t``).

Numbers start at 0; items are the first entities. Optional: ``valid.txt``, and lists of names (``user_list.txt``,
``item_list.txt``, ``entity_list.txt``, ``relation_list.txt``: a header with ``org_id`` and ``remap_id``). Every file
may be gzipped; ``kg_final.txt`` may be zipped, as the authors ship it.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.ingest.cells import Column, checked_block
from graphmill.ingest.files import COMMENTS, guarded, path_text, text_lines
from graphmill.ingest.format import ONE_WAY, Candidate, Format
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
LISTS = {what: f"{what}_list.txt" for what in ("user", "item", "entity", "relation")}
_COLUMNS = dict.fromkeys(SPLITS, ("user", "item")) | {"knowledge": ("entity", "relation", "entity")}
"""What the numbers of a file are of."""
_LARGEST = 2**31 - 1
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
    variants = {role: candidate.file(file, file.removesuffix(".txt")) for role, file in wanted.items()}
    out: dict[str, str | Path] = {role: variant.path for role, variant in variants.items() if variant}
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

    Names of nodes and relations are the lists' ``org_id``, else their numbers. Raises :class:`InputError` for a missing
    file, a list that cannot be used, and if nothing is usable.
    """
    files = kgat_files(path, settings)
    reading = Reading(path_text(path))
    names = {role: _read_list(files[role]) for role in LISTS if role in files}
    rows = {role: _facts(files[role], reading) if role == "knowledge" else _interactions(files[role], reading)
            for role in FILES if role in files}  # fmt: skip
    # Every number up to the largest one becomes a node, so one wrong digit could fill the memory.
    listed = max((number for known in names.values() for number in known), default=0)
    cells = sum(part[:, :-1].size for part in rows.values())
    largest = min(max(_SMALL, 50 * cells, 2 * listed), _LARGEST)
    for role in rows:
        rows[role] = _known(rows[role], role, names, largest, reading, path_text(files[role]))
    order = [path_text(file) for file in files.values()]
    reading.rejects.sort(key=lambda each: order.index(each[0]))
    facts = rows.pop("knowledge", np.zeros((0, 4), np.int64))[:, :3]
    user, item = (np.concatenate([np.zeros(0, np.int64), *(part[:, n] for part in rows.values())]) for n in range(2))
    split = np.concatenate([np.zeros(0, np.int64), *(np.full(len(r), SPLITS.index(s)) for s, r in rows.items())])
    if not len(user) and not len(facts):
        raise InputError(f"{path_text(path)} has no usable line{reading.first_reject}")
    num_users, num_items = _count(user, names.get("user")), _count(item, names.get("item"))
    if not num_items:  # knowledge alone, without a list: which entities are items is for the interactions to say
        raise InputError(f"{path_text(path)}: which entities are items? Add item_list.txt, or read part: all")
    num_entities = max(int(facts[:, [0, 2]].max(initial=-1)) + 1, num_items, len(names.get("entity", ())))
    known = np.append(facts[:, [0, 2]], np.array(list(names.get("entity", ())), np.int64))
    unique = np.unique(facts, axis=0)
    counts = {
        "rows": len(user) + len(facts) + reading.refused,
        "rejected_rows": reading.refused,
        **(count_interactions(user, item, split, num_users, num_items) if len(user) else {}),
        "entities": num_entities,
        "unnamed_entities": len(np.setdiff1d(np.arange(num_items, num_entities), known)),
        "facts": len(unique),
        "duplicate_facts": len(facts) - len(unique),
        "self_loops": int((unique[:, 0] == unique[:, 2]).sum()),
        "items_without_facts": len(np.setdiff1d(np.arange(num_items), unique[:, [0, 2]])),
    }
    entities = names.get("entity", {})
    kinds = [
        (USER, range(num_users), names.get("user", {})),
        (ITEM, range(num_items), names.get("item", entities)),
        (ENTITY, range(num_items, num_entities), entities),
    ]
    # A number that is not in a list is its own name.
    parts = [
        (kind, numbers(of.stop)[of.start :], pa.array([names_of.get(n, str(n)) for n in of], pa.string()))
        for kind, of, names_of in kinds
        if len(of)
    ]
    edges = [
        interaction_edges(user, item, split, num_users),
        _fact_edges(unique, num_users, names.get("relation", {})),
    ]
    texts = SENTENCES | (_FACTS if counts["facts"] else {})
    return IngestResult(
        nodes=node_table(parts, Path(path).name),
        edges=pa.concat_tables([each for each in edges if each.num_rows]).unify_dictionaries().combine_chunks(),
        rejects=reading.table(),
        counts=counts,
        notes=[*sentences(counts, texts), *reading.notes],
    )


def _interactions(path: str | Path, reading: Reading) -> np.ndarray:
    """int64 [n, 3]: user, item and line of every interaction. A line with only a user has no interaction; this is not an
    error."""
    columns = (Column("user", "whole", required=True), Column("item", "whole", required=True))
    parts, comments, lines = [np.zeros((0, 3), np.int64)], 0, text_lines(path)
    while block := list(islice(lines, _BLOCK_LINES)):
        users, items, places = list[str](), list[str](), list[int]()
        for place, line in block:
            user, *others = re.split("[ \t]+", line.strip(" \t"))
            if user.startswith(COMMENTS):
                comments += 1
            elif user and not others and not user.isdigit():
                reading.refuse(path_text(path), [Reject(place, "user", "not a whole number", user[:MAX_SHOWN])])
            else:
                users += [user] * len(others)
                items += others
                places += [place] * len(others)
        pairs = pa.table({"user": pa.array(users, pa.string()), "item": pa.array(items, pa.string())})
        checked = checked_block(pairs, np.array(places, np.int64), columns)
        reading.refuse(path_text(path), checked.rejects)
        parts.append(np.column_stack([*checked.table.columns, checked.lines]))
    if comments:
        reading.notes.append(f"{path_text(path)}: {comments:,} comment lines were skipped")
    return np.concatenate(parts)


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
    rows: np.ndarray, role: str, names: dict[str, dict[int, str]], largest: int, reading: Reading, file: str
) -> np.ndarray:
    """The rows whose numbers are in their lists, where there are any, and not far beyond the others; others are rejects.
    The last column is the line."""
    for column, what in enumerate(_COLUMNS[role]):
        usable = rows[:, column] <= largest
        if (known := names.get(what)) is not None:
            usable &= np.isin(rows[:, column], np.fromiter(known, np.int64))
        rejects = []
        for number, line in np.unique(rows[~usable][:, [column, -1]], axis=0).tolist():
            fault = "a number far beyond the others" if number > largest else f"not in {LISTS[what]}"
            rejects.append(Reject(line, what, f"the {what} is {fault}", str(number)))
        reading.refuse(file, rejects)
        rows = rows[usable]
    return rows


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


def _fact_edges(facts: np.ndarray, num_users: int, names: dict[int, str]) -> pa.Table:
    head, relation, tail = facts.T
    used = np.unique(relation)
    labels = [names.get(r, str(r) if names else f"relation {r}") for r in used.tolist()]
    labels = [f"{label} ({r})" if labels.count(label) > 1 else label for label, r in zip(labels, used, strict=True)]
    train = np.zeros(len(facts), np.uint8)
    return edge_table(head + num_users, tail + num_users, train, np.searchsorted(used, relation), labels)


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


FORMAT = Format(
    "kgat",
    KgatFilesSettings,
    lambda settings: "knowledge" if settings.part == "knowledge" else "interactions and facts",
    _recognises,
    read_kgat,
    kgat_files,
    graph=ONE_WAY,
    suited=_held_out,
)
