"""The format ``triples``: lines ``head<TAB>relation<TAB>tail``, as in FB15k-237, WN18RR and ROBOKOP exports.

A directory with ``train.txt`` and, where given, ``valid.txt`` and ``test.txt``; optionally ``node_dict.txt`` and
``rel_dict.txt`` (``symbol<TAB>index``) and ``node_name_dict.txt`` (``name<TAB>index``, names may repeat). Without
dictionaries, symbols are numbered by first appearance. A file may also be gzipped (``train.txt.gz``).

White space around a symbol is removed, and a header line (``head relation tail``, in any order) is skipped; both are
counted. An unusable line is a reject. An unusable dictionary is refused, with its line: a guessed entry could give every
later vector the wrong name.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphmill.errors import InputError
from graphmill.ingest.catalogue import Catalogue, Listed, catalogue_of
from graphmill.ingest.column_maps import EdgeEnd, EdgeSource
from graphmill.ingest.disk import pieces
from graphmill.ingest.files import COMMENTS, path_text
from graphmill.ingest.format import ONE_WAY, Candidate, Format, lines_preview
from graphmill.ingest.graph_files import finished
from graphmill.ingest.graph_sources import GraphReading
from graphmill.ingest.guard import guarded
from graphmill.ingest.id_columns import numbered_texts, require_once
from graphmill.ingest.interactions import SPLITS
from graphmill.ingest.kg_assemble import Assembly
from graphmill.ingest.names import END_NAMES, RELATION_NAMES
from graphmill.ingest.ntriples import is_statement
from graphmill.ingest.oddities import edge_oddities
from graphmill.ingest.rejects import KEEP_NEGATED, Reading, sentences
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import IngestResult
from graphmill.ingest.times import parse_time
from graphmill.settings import Settings, setting

COLUMNS = ("head", "relation", "tail")
TIMED = (*COLUMNS, "time")
"""Lines of temporal graphs (ICEWS, GDELT, YAGO)."""
FILES = {"entities": "node_dict.txt", "relations": "rel_dict.txt", "names": "node_name_dict.txt"}
_UNUSUAL = {"rejected_rows": "rejected lines", "in_two_splits": "triples in more than one split"}
"""What ``strict`` refuses."""
_SENTENCES = {
    "in_two_splits": "{} triples occur in more than one split: figures on held-out ones flatter the model",
    "unseen_entities": "{} entities occur in valid or test and never in train: nothing can be learned of them",
    "repeated_names": "{} entities share a name with another one: a name is no key",
    "header_lines": "{} header lines (head, relation, tail) were skipped",
    "padded_symbols": "{} symbols have white space around them; it was taken off",
}


class TriplesSettings(Settings):
    """How a ``triples`` source is read."""

    node_type: str = setting("entity", "The type of all nodes", min_length=1)
    source: str = setting("", "The vocabulary (column source) of all nodes; empty = the directory's name")
    timed: bool = setting(
        False, "Lines have a fourth column with the time (a number or an ISO 8601 date), for split.method: by_time"
    )
    keep_negated: bool = KEEP_NEGATED
    strict: bool = setting(False, "Refuse the data set if a line is rejected or a triple is in two splits")
    max_rejects: int = setting(0, "Refuse the data set if more than this many lines cannot be used; 0 = no limit", ge=0)


@guarded
def read_triples(path: str | Path, settings: TriplesSettings | None = None) -> IngestResult:
    """Read a triples data set into ``nodes``, ``edges`` (with a ``split`` column where splits are given), ``rejects``.

    ``path`` is a directory whose files have their usual names, or the one file. Nodes are in the order of their numbers; an
    entity of a dictionary is a node even if no triple uses it. Duplicates within a split are kept and counted; so are
    triples in two splits (a leak) and self loops.

    Raises :class:`InputError` if a file is missing or not text, a dictionary is unusable, no line can be used, more
    than ``max_rejects`` lines cannot be used, or, with ``strict``, anything was rejected or leaks.
    """
    settings = settings or TriplesSettings()
    all_files = triples_files(path)
    files = {split: all_files[split] for split in SPLITS if split in all_files}
    name = path_text(path)
    symbols, relations = (_symbols(all_files.get(role, "")) for role in ("entities", "relations"))
    vocabulary = settings.source or Path(name).name or "triples"
    known = _listed(symbols, all_files, settings.node_type, vocabulary)
    reading = GraphReading(name, max_rejects=settings.max_rejects, keep_negated=settings.keep_negated)
    assembly = Assembly(timed=settings.timed, split=len(files) > 1, relations=relations)
    padded, headers, in_train = 0, 0, 0
    for split, file in files.items():
        source = _source(file, SPLITS.index(split), settings)
        headers += source.header
        if "entities" in all_files:
            source = replace(source, listed_only=path_text(all_files["entities"]))
        if "relations" in all_files:
            source = replace(source, relations=(relations, path_text(all_files["relations"])))
        for mentions, rows in reading.edges(source, known, settings.node_type):
            assembly.add(mentions, rows if len(files) > 1 else replace(rows, split=None))
            padded += rows.padded
            in_train += len(rows.head) * (split == "train")
    if not in_train:
        raise InputError(
            f"{path_text(files['train'])} has no usable line{reading.first_reject}{_time_hint(files['train'])}"
        )
    result = finished(reading, assembly.finish(), known, {})
    if "names" in all_files and "entities" not in all_files:
        result = replace(result, nodes=_renamed(result.nodes, _names(all_files["names"], result.nodes.num_rows)))
    if not all_files.get("entities"):
        result = replace(result, nodes=_sourced(result.nodes, vocabulary))
    counts = _oddities(result) | {"header_lines": headers, "padded_symbols": padded}
    if settings.strict:
        Reading(name, True, 0, reading.rejects).require_usual(result.counts | counts, _UNUSUAL)
    return replace(result, counts=result.counts | counts, notes=[*result.notes, *sentences(counts, _SENTENCES)])


def _source(file: str | Path, split: int, settings: TriplesSettings) -> EdgeSource:
    """The column map of one file, by its first line if that is a header."""
    comment, first = _comment_and_line(Candidate(str(file)).lines)
    if is_statement(first):
        raise InputError(f"{path_text(file)} is N-Triples, not head<TAB>relation<TAB>tail: read it as format: ntriples")
    names: tuple[str, ...] = TIMED if settings.timed else COLUMNS
    heading = [] if settings.timed else _header_order(first)
    if order := heading or ([] if settings.timed else _header_order(comment)):
        names = tuple(COLUMNS[order.index(place)] for place in range(len(COLUMNS)))
    return EdgeSource(
        str(file), EdgeEnd("head", constant=settings.node_type), EdgeEnd("tail", constant=settings.node_type), "relation",
        timestamp="time" if settings.timed else "", delimiter="\t", header=bool(heading), split=split, names=names,
        quoted=False, trimmed=True,
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


def _listed(symbols: list[str], files: dict[str, str | Path], kind: str, source: str) -> Catalogue:
    """The entities of a dictionary, as listed nodes."""
    if not symbols:
        return catalogue_of([], "", "first", kind)
    labels = _names(files["names"], len(symbols)) if "names" in files else {}
    ids = pa.array(symbols, pa.string())
    types, sources = (pa.repeat(pa.scalar(text, pa.string()), len(symbols)) for text in (kind, source))
    names = pa.array([labels.get(place, "") for place in range(len(symbols))], pa.string())
    return catalogue_of([Listed(path_text(files["entities"]), kind, ids, types, names, sources)], "", "first", kind)


def _renamed(nodes: pa.Table, labels: dict[int, str]) -> pa.Table:
    names = nodes["name"].to_pylist()
    for place, label in labels.items():
        names[place] = label
    return nodes.set_column(3, "name", pa.array(names, pa.string()))


def _sourced(nodes: pa.Table, source: str) -> pa.Table:
    column = pa.repeat(pa.scalar(source, pa.string()), nodes.num_rows).dictionary_encode()
    return nodes.set_column(4, nodes.schema.field(4), column)


def triples_files(path: str | Path, settings: TriplesSettings | None = None) -> dict[str, str | Path]:
    """The files that :func:`read_triples` would read, by role: train, valid, test, entities, relations, names.

    Raises :class:`InputError` if there is no training file.
    """
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


def _oddities(result: IngestResult) -> dict[str, int]:
    """Counts of the splits, beyond those of every graph."""
    edges, entities = result.edges, result.nodes.num_rows
    head, tail = (edges[name].to_numpy() for name in ("head", "tail"))
    relation = edges["relation"].chunk(0)
    split = edges["split"].to_numpy() if "split" in edges.column_names else np.zeros(len(head), np.uint8)
    seen, distinct = np.zeros((len(SPLITS), entities), bool), 0
    for part in pieces(len(head), head, tail, split):
        for ends in (head[part], tail[part]):
            seen[split[part], ends] = True
    sizes = [int(np.count_nonzero(split == number)) for number in range(len(SPLITS))]
    if sizes[0] < len(head):
        for number, size in enumerate(sizes):
            mine = split == number
            relations = relation.indices.to_numpy()[mine]
            distinct += size - edge_oddities(relations, head[mine], tail[mine], entities).duplicate_rows
    shared = distinct - (len(head) - result.counts["duplicate_rows"]) if distinct else 0
    return {
        "entities": entities,
        "relations": len(relation.dictionary),
        **dict(zip(SPLITS, sizes, strict=True)),
        "in_two_splits": shared,
        "unseen_entities": int((seen[1:].any(axis=0) & ~seen[0]).sum()),
        "repeated_names": entities - len(result.nodes["name"].unique()),
    }


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
    data_roles=SPLITS,
    graph=ONE_WAY,
    preview=lambda location, settings, role: lines_preview(location, COLUMNS, "\t"),
)
