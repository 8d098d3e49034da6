"""The format ``triples``: lines ``head<TAB>relation<TAB>tail``, as in FB15k-237, WN18RR and ROBOKOP exports.

A directory with ``train.txt`` and, where given, ``valid.txt`` and ``test.txt``; optionally ``node_dict.txt`` and
``rel_dict.txt`` (``symbol<TAB>index``) and ``node_name_dict.txt`` (``name<TAB>index``, names may repeat). Without
dictionaries, symbols are numbered by first appearance. A header line (``head relation tail``, in any order) is skipped. An
unusable dictionary is refused, with its line: a guessed entry could give every later vector the wrong name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.errors import InputError
from graphmill.ingest.column_maps import EdgeEnd, EdgeSource
from graphmill.ingest.files import COMMENTS, guarded, path_text
from graphmill.ingest.format import ONE_WAY, Candidate, Format
from graphmill.ingest.graph_files import read_graph
from graphmill.ingest.id_columns import numbered_texts, require_once
from graphmill.ingest.interactions import SPLITS
from graphmill.ingest.names import END_NAMES, RELATION_NAMES
from graphmill.ingest.node_tables import listed_rows
from graphmill.ingest.ntriples import is_statement
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import KEEP_NEGATED, IngestResult
from graphmill.ingest.times import parse_time
from graphmill.settings import Settings, setting

COLUMNS = ("head", "relation", "tail")
TIMED = (*COLUMNS, "time")
"""Lines of temporal graphs (ICEWS, GDELT, YAGO)."""
FILES = {"entities": "node_dict.txt", "relations": "rel_dict.txt", "names": "node_name_dict.txt"}


class TriplesSettings(Settings):
    """How a ``triples`` source is read."""

    node_type: str = setting("entity", "The type of all nodes", min_length=1)
    timed: bool = setting(
        False, "Lines have a fourth column with the time (a number or an ISO 8601 date), for split.method: by_time"
    )
    keep_negated: bool = KEEP_NEGATED


@guarded
def read_triples(path: str | Path, settings: TriplesSettings | None = None) -> IngestResult:
    """Read a triples data set into ``nodes``, ``edges`` (with a ``split`` column where splits are given), ``rejects``.

    ``path`` is a directory whose files have their usual names, or the one file. Nodes are in the order of their numbers; an
    entity of a dictionary is a node even if no triple uses it.

    Raises :class:`InputError` if a file is missing or not text, a dictionary is unusable, or no training line can be used.
    """
    settings = settings or TriplesSettings()
    files = triples_files(path)
    symbols, relations = (_symbols(files.get(role, "")) for role in ("entities", "relations"))
    sources = [_source(files, split, settings, relations) for split in SPLITS if split in files]
    listed = _listed(symbols, files, settings.node_type)
    hint = "" if settings.timed else _time_hint(files["train"])
    try:
        result = read_graph(
            path_text(path), sources, listed=listed, relations=relations, keep_negated=settings.keep_negated
        )
    except InputError as error:
        raise InputError(f"{error}{hint}") from None
    if len(sources) > 1 and not pc.any(pc.equal(result.edges["split"], 0)).as_py():
        raise InputError(f"{path_text(files['train'])} has no usable line{hint}")
    notes = [
        f"{path_text(source.path)}: its first line is a header, and was skipped" for source in sources if source.header
    ]
    if "names" in files and not symbols:
        notes.append(f"{FILES['names']} was not read: its numbers are those of {FILES['entities']}, which is missing")
    return replace(result, notes=[*result.notes, *notes])


def _source(
    files: Mapping[str, str | Path], split: str, settings: TriplesSettings, relations: Sequence[str]
) -> EdgeSource:
    """The column map of one file, by its first line if that is a header."""
    file = files[split]
    comment, first = _comment_and_line(Candidate(str(file)).lines)
    if is_statement(first):
        raise InputError(f"{path_text(file)} is N-Triples, not head<TAB>relation<TAB>tail: read it as format: ntriples")
    names: tuple[str, ...] = TIMED if settings.timed else COLUMNS
    heading = [] if settings.timed else _header_order(first)
    if order := heading or ([] if settings.timed else _header_order(comment)):
        names = tuple(COLUMNS[order.index(place)] for place in range(len(COLUMNS)))
    return EdgeSource(
        str(file), EdgeEnd("head", constant=settings.node_type), EdgeEnd("tail", constant=settings.node_type), "relation",
        timestamp="time" if settings.timed else "", delimiter="\t", header=bool(heading),
        split=SPLITS.index(split) if {"valid", "test"} & set(files) else None, names=names, quoted=False, trimmed=True,
        listed_only=path_text(files["entities"]) if "entities" in files else "",
        relations=(pa.array(relations, pa.string()), path_text(files["relations"])) if "relations" in files else (None, ""),
    )  # fmt: skip


def _comment_and_line(lines: list[str]) -> tuple[str, str]:
    """The last comment before the first triple, and the line of that; each empty if there is none."""
    comment = ""
    for line in lines:
        if not line.startswith(COMMENTS):
            return comment, line
        comment = line.lstrip("#!%/- \t")
    return comment, ""


def _time_hint(file: str | Path) -> str:
    cells = _comment_and_line(Candidate(str(file)).lines)[1].split("\t")
    timed = len(cells) == len(TIMED) and parse_time(cells[-1]) is not None
    return "; with timed: true the fourth column is the time" if timed else ""


def _header_order(line: str) -> list[int]:
    """Positions of head, relation and tail according to a header line with known names; empty if the line is not a
    header."""
    names = [cell.strip().lower() for cell in line.split("\t")]
    if len(names) != len(COLUMNS):
        return []
    for head, tail in END_NAMES:
        ends = [{head, f"{head}_id", f"{head}id"}, {tail, f"{tail}_id", f"{tail}id"}]
        wanted = (ends[0], RELATION_NAMES, ends[1])
        places_of = [[place for place, name in enumerate(names) if name in known] for known in wanted]
        places = [place[0] for place in places_of if place]
        if len(set(places)) == len(COLUMNS):
            return places
    return []


def _listed(symbols: list[str], files: Mapping[str, str | Path], kind: str) -> list[pa.Table]:
    """The entities of a dictionary, as listed nodes."""
    if not symbols:
        return []
    labels = _names(files["names"], len(symbols)) if "names" in files else {}
    names = pa.array([labels.get(place, "") for place in range(len(symbols))], pa.string())
    return [listed_rows(pa.array(symbols, pa.string()), types=kind, name=names, space=kind)]


def triples_files(path: str | Path, settings: TriplesSettings | None = None) -> dict[str, str | Path]:
    """Role (train, valid, test, entities, relations, names) → file. Raises :class:`InputError` without a training file."""
    if "://" not in str(path) and Path(path).is_file():
        return {"train": path}
    usual = {split: f"{split}.txt" for split in SPLITS} | FILES
    files_of = {role: file for role, name in usual.items() if (file := _in_directory(path, name))}
    if "train" not in files_of:
        raise InputError(
            f"{path_text(path)} has no train.txt or train.txt.gz; the format triples needs head<TAB>relation<TAB>tail "
            "lines in it"
        )
    return files_of


def _in_directory(path: str | Path, name: str) -> str | Path:
    if "://" in str(path):
        import fsspec.core

        system, inner = fsspec.core.url_to_fs(str(path))
        return next((f"{str(path).rstrip('/')}/{n}" for n in (name, name + ".gz") if system.exists(f"{inner}/{n}")), "")
    file = Candidate(str(path)).file(name)
    return file.path if file else ""


def _dictionary(file: str | Path, what: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The texts of a dictionary, their indices and their lines. ``what``: what the texts are."""
    with RowFile(file, "\t", header_line=False, names=(what, "index"), quoted=False) as opened:
        return numbered_texts(opened, what, "index", "mend the dictionary")


def _symbols(file: str | Path) -> list[str]:
    """The symbols of a dictionary in the order of their indices; empty without a dictionary.

    Raises :class:`InputError` for a symbol or an index that occurs twice, a gap, and an index that is not a number.
    """
    if not file:
        return []
    texts, index, lines = _dictionary(file, "symbol")
    require_once(texts, lines, path_text(file), "'{}'")
    order = np.argsort(index)
    gaps = np.flatnonzero(index[order] != np.arange(len(index)))
    if len(gaps):
        after = order[gaps[0]]
        raise InputError(
            f"{path_text(file)}: index {gaps[0]} is missing (line {lines[after]} has {index[after]}); indices must run from "
            f"0 to {len(index) - 1} without gaps. Renumber, or leave the dictionary out to have one made"
        )
    return [texts[place] for place in order.tolist()]


def _names(file: str | Path, count: int) -> dict[int, str]:
    """The name of each of ``count`` entities that has one. Names may repeat; indices may not."""
    texts, index, lines = _dictionary(file, "name")
    for place in np.flatnonzero(index >= count)[:1].tolist():
        raise InputError(
            f"{path_text(file)}, line {lines[place]}: index {index[place]}, but there are {count} entities (0 to "
            f"{count - 1})"
        )
    return dict(zip(index.tolist(), texts, strict=True))


def _recognises(candidate: Candidate) -> int:
    one = candidate.file("train.txt") if candidate.is_folder else candidate
    if one is None or not one.lines:
        return 0
    lines = [line for line in one.lines if not line.startswith(COMMENTS)]
    if any(line.count("\t") != 2 or not all(cell.strip() for cell in line.split("\t")) for line in lines):
        return 0
    if not lines or all(map(is_statement, lines)):
        return 0
    comment = _comment_and_line(one.lines)[0]
    if comment.count("\t") == 2 and not _header_order(comment):
        return 0  # a header that says something else
    if candidate.is_folder:
        return 85
    if _is_a_table(one):
        return 0
    return 15 if any(cell.strip().replace(".", "").isdigit() for cell in lines[-1].split("\t")[1:]) else 55


def _is_a_table(candidate: Candidate) -> bool:
    """Whether three columns are two ends and something else: by a header that says so, or as the first two are of one kind
    and the third is not."""
    probe = candidate.probe
    if probe is None or len(probe.names) != len(COLUMNS):
        return False
    if probe.header and not _header_order("\t".join(probe.names)):
        return True
    return probe.holds(2) != "ids" or (bool(probe.one_kind(0, 1)) and not probe.one_kind(0, 2))


FORMAT = Format(
    "triples",
    TriplesSettings,
    "edges",
    _recognises,
    read_triples,
    triples_files,
    graph=ONE_WAY,
)
