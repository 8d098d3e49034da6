"""Reader of the format ``triples``: lines ``head<TAB>relation<TAB>tail``, as in FB15k-237, WN18RR and ROBOKOP exports.

A directory with ``train.txt`` and, where given, ``valid.txt`` and ``test.txt``; optionally ``node_dict.txt`` and
``rel_dict.txt`` (``symbol<TAB>index``) and ``node_name_dict.txt`` (``name<TAB>index``, names may repeat). Without
dictionaries, symbols are numbered by first appearance. A file may also be gzipped (``train.txt.gz``).

White space around a symbol is removed, a header line (``head relation tail``, in any order) is skipped, and lines of
N-Triples lose their final dot; each is counted. An unusable line is a reject. An unusable dictionary is refused, with
its line: a guessed entry could give every later vector the wrong name.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.ingest.disk import ColumnWriter, as_column, in_buckets
from graphmill.ingest.files import shown
from graphmill.ingest.findings import IngestReport, examined
from graphmill.ingest.format import ONE_WAY, Format, Look, lines_preview
from graphmill.ingest.guard import guarded
from graphmill.ingest.rejects import Reject, reject_table
from graphmill.ingest.tables import EDGES, MAX_SHOWN, IngestResult
from graphmill.ingest.times import NO_TIME_THERE, parse_time
from graphmill.ingest.triples_lines import COLUMNS, CORRECTED, TIMED, Complaint, cells_of, is_statement
from graphmill.ingest.user_items import SPLITS, Ids, node_table
from graphmill.settings import Settings, setting

FILES = {"entities": "node_dict.txt", "relations": "rel_dict.txt", "names": "node_name_dict.txt"}
_PENDING = 1 << 18


@dataclass
class _Symbols:
    """Numbers of symbols: fixed by a dictionary, or assigned as symbols appear."""

    number: dict[str, int] = field(default_factory=dict)
    fixed: str = ""

    def of(self, symbol: str) -> int:
        """The symbol's number, or −1 if the dictionary does not have it."""
        found = self.number.get(symbol, -1)
        if found < 0 and not self.fixed:
            found = self.number[symbol] = len(self.number)
        return found


class TriplesSettings(Settings):
    """The files of a triples data set, if they do not have their usual names, and how strict to be."""

    train: str = setting("", "Training triples; empty = train.txt in the directory")
    valid: str = setting("", "Validation triples; empty = valid.txt if it exists")
    test: str = setting("", "Test triples; empty = test.txt if it exists")
    entity_to_id: str = setting("", "Lines of entity<TAB>index; empty = node_dict.txt, or numbers by first appearance")
    relation_to_id: str = setting("", "Lines of relation<TAB>index; empty = rel_dict.txt, or numbers by appearance")
    names: str = setting("", "Lines of name<TAB>index; empty = node_name_dict.txt, or each entity's id")
    node_type: str = setting("entity", "The type of all nodes", min_length=1)
    source: str = setting("", "The vocabulary (column source) of all nodes; empty = the directory's name")
    timed: bool = setting(
        False, "Lines have a fourth column with the time (a number or an ISO 8601 date), for split.method: by_time"
    )
    strict: bool = setting(False, "Refuse the data set if a line is rejected or a triple is in two splits")
    max_rejects: int = setting(0, "Refuse the data set if more than this many lines cannot be used; 0 = no limit", ge=0)


@guarded
def read_triples(path: str | Path = "", settings: TriplesSettings | None = None) -> IngestResult:
    """Read a triples data set into ``nodes``, ``edges`` (with a ``split`` column where splits are given), ``rejects``.

    ``path`` is a directory whose files have their usual names, unless the settings name others; or the one file. Nodes
    are in the order of their numbers; an entity of a dictionary is a node even if no triple uses it. Duplicates within
    a split are kept and counted; so are triples in two splits (a leak) and self loops.

    Raises :class:`InputError` if a file is missing or not text, a dictionary is unusable, no line can be used, more
    than ``max_rejects`` lines cannot be used, or, with ``strict``, anything was rejected or leaks.
    """
    settings = settings or TriplesSettings()
    all_files = triples_files(path, settings)
    files = {split: all_files[split] for split in SPLITS if split in all_files}
    rejects: list[tuple[str, Reject]] = []
    entities, relations = (_symbols(all_files.get(role, "")) for role in ("entities", "relations"))
    seen: Counter[str] = Counter()
    triples = {name: _triples(file, entities, relations, rejects, seen, settings.timed) for name, file in files.items()}
    columns = _columns(triples, settings.timed)
    rows_read = len(columns["split"]) + len(rejects)
    if 0 < settings.max_rejects < len(rejects):
        where, first = rejects[0]
        raise InputError(
            f"{len(rejects):,} lines cannot be used, more than max_rejects = {settings.max_rejects:,}; the first is "
            f"{where}, line {first.line}: {first.reason}"
        )
    if columns["split"][:1].tolist() != [0]:  # train comes first
        some = "; ".join(f"line {reject.line}: {reject.reason}" for _, reject in rejects[:3])
        raise InputError(f"{shown(files['train'])} has no usable line{f' ({some})' if some else ''}")
    labels = _names(all_files.get("names", ""), list(entities.number))
    ids = Ids(pa.array(list(entities.number), pa.string()), labels)
    source = Path(shown(path)).name or Path(shown(files["train"])).parent.name or "triples"
    nodes = node_table([(settings.node_type, ids)], settings.source or source)
    edges = _edges(columns, list(relations.number), with_split=len(files) > 1)
    counts, notes = _oddities(columns, len(entities.number), len(relations.number), labels)
    corrected = {name: seen[name] for name in CORRECTED if seen[name]}
    counts = {"rows": rows_read, "rejected_rows": len(rejects)} | counts | corrected
    notes += [f"{count:,} {CORRECTED[name]}" for name, count in corrected.items()]
    for where, first in rejects[:1]:
        found_first = f"the first is {where}:{first.line} ({first.reason})"
        notes.insert(0, f"{len(rejects):,} of {rows_read:,} lines were rejected; {found_first}")
    if settings.strict and (rejects or counts["in_two_splits"]):
        raise InputError(f"strict: {notes[0]}; correct the files, or read them without strict")
    return IngestResult(nodes, edges, reject_table(rejects), counts=counts, notes=notes)


def triples_files(path: str | Path, settings: TriplesSettings) -> dict[str, str | Path]:
    """The files that :func:`read_triples` would read, by role: train, valid, test, entities, relations, names.

    Raises :class:`InputError` if there is no training file.
    """
    alone = bool(path) and "://" not in str(path) and Path(path).is_file()
    given: dict[str, str | Path] = {split: getattr(settings, split) for split in SPLITS}
    given |= {"entities": settings.entity_to_id, "relations": settings.relation_to_id, "names": settings.names}
    given["train"] = given["train"] or (path if alone else "")
    usual = {split: f"{split}.txt" for split in SPLITS} | FILES
    found = {role: given[role] or ("" if alone else _in_directory(path, name)) for role, name in usual.items()}
    if not found["train"]:
        place = f"{shown(path)} has no train.txt or train.txt.gz" if path else "no training file was named"
        raise InputError(f"{place}; the format triples needs head<TAB>relation<TAB>tail lines in it")
    return {role: file for role, file in found.items() if file}


def _in_directory(path: str | Path, name: str) -> str | Path:
    if not path:
        return ""
    if "://" in str(path):
        import fsspec.core

        system, inner = fsspec.core.url_to_fs(str(path))
        return next((f"{str(path).rstrip('/')}/{n}" for n in (name, name + ".gz") if system.exists(f"{inner}/{n}")), "")
    return next((file for file in (Path(path) / name, Path(path) / f"{name}.gz") if file.is_file()), "")


def _columns(triples: dict[str, Iterator[tuple[int, int, int, int]]], timed: bool) -> dict[str, np.ndarray]:
    """The triples of each split, one after the other, as columns: ``head``, ``relation``, ``tail`` int32, ``split``,
    ``timestamp``."""
    columns = {name: ColumnWriter(np.int32) for name in COLUMNS}
    columns |= {"split": ColumnWriter(np.uint8)} | ({"timestamp": ColumnWriter(np.int64)} if timed else {})
    for split, found in triples.items():
        while part := list(islice(found, _PENDING)):
            rows = dict(zip((*COLUMNS, "timestamp"), np.array(part, np.int64).T, strict=True))
            rows["split"] = np.full(len(part), SPLITS.index(split))
            for name, column in columns.items():
                column.append(rows[name])
    return {name: column.finish() for name, column in columns.items()}


def _triples(
    file: str | Path,
    entities: _Symbols,
    relations: _Symbols,
    rejects: list[tuple[str, Reject]],
    seen: Counter[str],
    timed: bool,
) -> Iterator[tuple[int, int, int, int]]:
    """Head, relation, tail and time (0 without times) of each usable line of a file, as numbers."""
    complain, kinds, time = Complaint(file, rejects), (entities, relations, entities), 0
    for number, cells in cells_of(file, TIMED if timed else COLUMNS, complain, seen):
        # Check the known symbols first: a rejected line must not number its other symbols.
        known = [not kind.fixed or cell in kind.number for cell, kind in zip(cells[:3], kinds, strict=True)]
        if not all(known):
            i = known.index(False)
            complain(number, COLUMNS[i], f"is not in {kinds[i].fixed}", cells[i])
            continue
        if timed:
            parsed = parse_time(cells[3])
            if parsed is None:
                complain(number, TIMED[3], f"is {NO_TIME_THERE}", cells[3])
                continue
            time = parsed.second
        yield entities.of(cells[0]), relations.of(cells[1]), entities.of(cells[2]), time


def _symbols(file: str | Path) -> _Symbols:
    """The symbols of a dictionary in the order of their indices; empty without a dictionary.

    Raises :class:`InputError` for a symbol or an index that occurs twice, a gap, and an index that is not a number.
    """
    if not file:
        return _Symbols()
    name, by_index, line_of = shown(file), dict[int, str](), dict[str, int]()
    for number, (symbol, text) in cells_of(file, ("symbol", "index"), Complaint(file, None), Counter()):
        index = _index(text, name, number)
        if index in by_index:
            raise InputError(
                f"{name}, line {number}: index {index} is given to {symbol!r} and, on line "
                f"{line_of[by_index[index]]}, to {by_index[index]!r}; each symbol needs an index of its own"
            )
        if symbol in line_of:
            raise InputError(f"{name}, line {number}: {symbol!r} is on line {line_of[symbol]}, too; name each once")
        by_index[index], line_of[symbol] = symbol, number
    if not by_index:
        raise InputError(f"{name} is empty; leave the dictionary out to have one made")
    for expected, index in enumerate(sorted(by_index)):
        if index != expected:
            raise InputError(
                f"{name}: index {expected} is missing (line {line_of[by_index[index]]} has {index}); indices must run from "
                f"0 to {len(by_index) - 1} without gaps. Renumber, or leave the dictionary out to have one made"
            )
    return _Symbols({by_index[i]: i for i in range(len(by_index))}, name)


def _names(file: str | Path, ids: list[str]) -> list[str]:
    """A name per node: from ``name<TAB>index`` lines, else its id. Names may repeat; indices may not."""
    labels = list(ids)
    if not file:
        return labels
    name, line_of = shown(file), dict[int, int]()
    for number, (label, text) in cells_of(file, ("name", "index"), Complaint(file, None), Counter()):
        index = _index(text, name, number)
        if index >= len(ids):
            raise InputError(
                f"{name}, line {number}: index {index}, but there are {len(ids)} entities (0 to {len(ids) - 1})"
            )
        if index in line_of:
            raise InputError(f"{name}, line {number}: index {index} has a name on line {line_of[index]}, too")
        labels[index], line_of[index] = label, number
    return labels


def _index(text: str, file: str, line: int) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"{file}, line {line}: index {text[:MAX_SHOWN]!r} is not a whole number ≥ 0")
    return int(text)


def _edges(columns: dict[str, np.ndarray], relations: list[str], *, with_split: bool) -> pa.Table:
    category = as_column(columns["relation"], relations)
    table = pa.table([category, category, as_column(columns["head"]), as_column(columns["tail"])], EDGES)
    for name in ("split",) * with_split + ("timestamp",) * ("timestamp" in columns):
        table = table.append_column(name, as_column(columns[name]))
    return table


def _oddities(
    columns: dict[str, np.ndarray], entities: int, relations: int, labels: list[str]
) -> tuple[dict[str, int], list[str]]:
    of_each = [columns[name] for name in (*COLUMNS, "split")]
    rows, within, shared, loops = len(of_each[0]), 0, 0, 0
    trained, held_out, sizes = np.zeros(entities, bool), np.zeros(entities, bool), np.zeros(len(SPLITS), np.int64)
    for head, relation, tail, split in in_buckets(rows, lambda part: columns["head"][part], *of_each):
        key = (head.astype(np.int64) * relations + relation) * entities + tail
        in_split = len(np.unique(key * len(SPLITS) + split))
        within += len(key) - in_split
        shared += in_split - len(np.unique(key))
        loops += int((head == tail).sum())
        sizes += np.bincount(split, minlength=len(SPLITS))
        for seen, mine in ((held_out, split > 0), (trained, split == 0)):
            seen[head[mine]] = seen[tail[mine]] = True
    counts = {
        "entities": entities,
        "relations": relations,
        **{name: int(sizes[number]) for number, name in enumerate(SPLITS)},
        "duplicates": within,
        "in_two_splits": shared,
        "self_loops": loops,
        "unseen_entities": int((held_out & ~trained).sum()),
        "repeated_names": len(labels) - len(set(labels)),
    }
    sentences = {
        "in_two_splits": "triples occur in more than one split: figures on held-out ones flatter the model",
        "duplicates": "lines repeat an earlier one of their split",
        "self_loops": "triples join an entity with itself",
        "unseen_entities": "entities occur in valid or test and never in train: nothing can be learned of them",
        "repeated_names": "entities share a name with another one: a name is no key",
    }
    return counts, [f"{counts[name]:,} {text}" for name, text in sentences.items() if counts[name]]


def _examine(path: str) -> IngestReport:
    return examined(path, "triples", lambda: read_triples(path), {}, "conve")


def _recognises(look: Look) -> int:
    one = look.file("train.txt") if look.is_folder else look
    if one is None or not one.lines:
        return 0
    if all(is_statement(line) for line in one.lines):
        return 80 if look.is_folder else 60
    if any(line.count("\t") != 2 or not all(cell.strip() for cell in line.split("\t")) for line in one.lines):
        return 0
    if look.is_folder:
        return 85
    return 15 if any(cell.strip().replace(".", "").isdigit() for cell in one.lines[-1].split("\t")[1:]) else 55


FORMAT = Format(
    "triples",
    TriplesSettings,
    "edges",
    _examine,
    _recognises,
    read_triples,
    triples_files,
    data_roles=SPLITS,
    paths=("train", "valid", "test", "entity_to_id", "relation_to_id", "names"),
    graph=ONE_WAY,
    preview=lambda location, settings, role: lines_preview(location, COLUMNS, "\t"),
)
