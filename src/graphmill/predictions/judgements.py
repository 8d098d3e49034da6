"""Links that people judged, as a table of head, relation, tail and yes or no: found in a graph, by relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.graph.typed_graph import Relation, TypedGraph
from graphmill.ingest.files import path_text
from graphmill.ingest.id_columns import Coverage, coverage, text_columns
from graphmill.predictions.selection import Nodes, relations_of

Int64 = NDArray[np.int64]
COLUMNS = ("head", "relation", "tail", "judgement")
_WORDS = {"yes": True, "no": False}
_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Judged:
    """The judged links of one relation: ``yes`` and ``no``, ascending int64, as head · number of nodes of the target type +
    tail."""

    yes: Int64 = field(default_factory=lambda: _NOTHING)
    no: Int64 = field(default_factory=lambda: _NOTHING)

    @property
    def all(self) -> Int64:
        """Both, ascending."""
        return np.sort(np.concatenate([self.yes, self.no]))


@dataclass(frozen=True)
class Judgements:
    """The links of a file by relation number; ``written``: without their mirror images. ``rows``: number of rows;
    ``coverage``: how its ids match the nodes' ids and names; ``notes``: sentences on ids that are in no node."""

    file: str
    rows: int
    relations: dict[int, Judged]
    written: dict[int, Judged]
    coverage: Coverage
    notes: tuple[str, ...] = ()

    def of(self, relation: int) -> Judged:
        """Those of one relation."""
        return self.relations.get(relation, Judged())


def read_judgements(path: str, nodes: Nodes) -> Judgements:
    """Read a table with the columns :data:`COLUMNS`, and find its nodes by id, else by name.

    A link is judged in the mirrored relation, too, if the graph has it.

    Raises:
        InputError: a missing column or no row, a judgement that is neither yes nor no, two judgements of one link, an
            unknown relation, a name of several nodes, or no row whose nodes are in the graph.
    """
    table = text_columns(path, COLUMNS, "Judgements are")
    name, known = path_text(path), dict[str, list[Relation]]()
    judged: dict[tuple[int, int], bool] = {}
    written: dict[tuple[int, int], bool] = {}
    lost = 0
    for line, row in enumerate(table.to_pylist(), 1):
        word = row["judgement"].strip().casefold()
        if word not in _WORDS:
            raise InputError(f"{name}, row {line}: the judgement is {row['judgement']!r}; write yes or no")
        if row["relation"] not in known:
            known[row["relation"]] = relations_of(nodes.graph, [row["relation"]])
        links = _links(nodes, known[row["relation"]], row["head"], row["tail"])
        lost += not links
        written |= {link: _WORDS[word] for link, *_ in links}
        for link in chain.from_iterable(links):
            if judged.setdefault(link, _WORDS[word]) != _WORDS[word]:
                raise InputError(
                    f"{name}, row {line}: {row['head']!r}, {row['relation']!r}, {row['tail']!r} is judged yes and no; keep "
                    "one of them"
                )
    ids = pa.concat_arrays([table[end].combine_chunks() for end in ("head", "tail")])
    matches = coverage(f"the judgements {name}", ids, "the graph", pa.array([*nodes.ids, *nodes.names], pa.string()))
    if not judged:
        raise InputError(f"no judged link can be one of the graph: {matches.sentence}")
    notes = (f"{lost:,} of {table.num_rows:,} judgements are of no link of the graph's types: {matches.sentence}",)
    return Judgements(name, table.num_rows, _by_relation(judged), _by_relation(written), matches, notes if lost else ())


def _links(nodes: Nodes, relations: Sequence[Relation], head: str, tail: str) -> list[list[tuple[int, int]]]:
    """(relation number, pair) of a link in the relations of that name that join nodes of these types; each with its mirror
    image, if the graph has it."""
    graph, rows = nodes.graph, list[list[tuple[int, int]]]()
    mirrored = {each.key: each for each in graph.relations}
    for relation in relations:
        if not (nodes.rows(head, [relation.source]) and nodes.rows(tail, [relation.target])):
            continue
        ends = nodes.find(head, [relation.source]), nodes.find(tail, [relation.target], "tails")
        rows.append([_pair(graph, relation, *ends)])
        mirror = mirrored.get((relation.target, relation.name, relation.source))
        if mirror and (mirror is not relation or relation.added_edges):
            rows[-1].append(_pair(graph, mirror, *reversed(ends)))
    return rows


def _pair(graph: TypedGraph, relation: Relation, head: int, tail: int) -> tuple[int, int]:
    source, target = graph.node_type(relation.source), graph.node_type(relation.target)
    return relation.index, (head - source.offset) * target.count + tail - target.offset


def _by_relation(judged: dict[tuple[int, int], bool]) -> dict[int, Judged]:
    pairs: dict[int, dict[bool, list[int]]] = {}
    for (relation, pair), yes in sorted(judged.items()):
        pairs.setdefault(relation, {True: [], False: []})[yes].append(pair)
    return {
        number: Judged(np.array(by_word[True], np.int64), np.array(by_word[False], np.int64))
        for number, by_word in pairs.items()
    }
