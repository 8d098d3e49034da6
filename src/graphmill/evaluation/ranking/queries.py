"""The queries of a link ranking: the held-out tails, and the other known tails, which are filtered from the candidates.

Every relation is ranked by its tails. If a graph holds both directions, heads are ranked, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.graph.splits import SPLIT_NAMES, TRAIN
from graphmill.sampling.keyed import sampled

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class RelationQueries:
    """The held-out links of one relation, and all known links for filtering.

    ``heads``, ``tails``: int64 (Q), local numbers within their types, distinct pairs sorted by (head, tail).
    ``candidates``: size of the target type. ``known_indptr`` (heads of the source type + 1) and ``known_tails``: per
    head the sorted distinct tails of all splits, including the held-out ones. ``train_degree`` (candidates): number of
    training links into each candidate; ``head_degree`` (heads of the source type): number of training links out of each
    head. ``chosen`` (candidates): if only some nodes are candidates, their ascending local numbers; tails are then
    numbers in this list.
    """

    relation: int
    name: str
    heads: Int64
    tails: Int64
    candidates: int
    known_indptr: Int64
    known_tails: Int64
    train_degree: Int64
    head_degree: Int64
    chosen: Int64 | None = None

    @property
    def targets(self) -> Int64:
        """``tails`` as local numbers within their type."""
        return self.tails if self.chosen is None else self.chosen[self.tails]

    def __post_init__(self) -> None:
        known = np.repeat(np.arange(len(self.known_indptr) - 1), np.diff(self.known_indptr)) * self.candidates
        known += self.known_tails
        held_out = self.heads * self.candidates + self.tails
        if np.any(np.diff(known) <= 0) or np.any(np.diff(held_out) <= 0):
            raise ValueError(f"{self.name}: known and held-out links must be distinct and sorted by (head, tail)")
        place = np.searchsorted(known, held_out)
        if len(held_out) and (place[-1] == len(known) or np.any(known[place] != held_out)):
            raise ValueError(f"{self.name}: the held-out links must be among the known ones")


@dataclass(frozen=True)
class LinkQueries:
    """The queries of one split, with a :class:`RelationQueries` per relation, even if a relation has no query."""

    split: str
    relations: tuple[RelationQueries, ...]

    @property
    def total(self) -> int:
        """Number of queries over all relations."""
        return sum(len(relation.heads) for relation in self.relations)


def relation_queries(
    relation: int,
    name: str,
    held_out: tuple[NDArray[np.integer], NDArray[np.integer]],
    train: tuple[NDArray[np.integer], NDArray[np.integer]],
    known: Sequence[tuple[NDArray[np.integer], NDArray[np.integer]]],
    heads: int,
    candidates: int,
) -> RelationQueries:
    """Queries from (head, tail) arrays in any order, repeated pairs counted once.

    ``known``: further links to filter, in addition to ``held_out`` and ``train``. ``heads``, ``candidates``: sizes of the
    two types.
    """
    held_out_keys = _keys(*held_out, candidates)
    train_keys = _keys(*train, candidates)
    known_keys = sorted_unique(
        np.concatenate([held_out_keys, train_keys, *(_keys(*pair, candidates) for pair in known)])
    )
    return _from_keys(relation, name, held_out_keys, train_keys, known_keys, heads, candidates)


def link_queries(graph: "TypedGraph", split: str, *, max_per_relation: int = 0, seed: int = 0) -> LinkQueries:
    """The links of ``split`` ("train", "valid", "test") of a typed graph, filtered by the links of all splits.

    ``max_per_relation``: largest number of queries per relation, drawn by ``seed``; 0 takes all. The filter is always
    complete. Raises :class:`InputError` if the graph has no link in that split.
    """
    if split not in SPLIT_NAMES:
        raise InputError(f"there is no split '{split}'; known are {', '.join(SPLIT_NAMES)}")
    counts = {node_type.name: node_type.count for node_type in graph.node_types}
    relations = []
    for relation in graph.relations:
        edges = graph.edges(relation.index)
        heads, candidates = counts[relation.source], counts[relation.target]
        keys = np.asarray(edges.src, dtype=np.int64) * candidates + np.asarray(edges.dst)
        part = np.asarray(edges.split)
        held_out = sorted_unique(keys[part == SPLIT_NAMES.index(split)])
        if max_per_relation:
            held_out = sampled(held_out, max_per_relation, "link-queries", seed, split, relation.index)
        train = sorted_unique(keys[part == TRAIN])
        name = f"{relation.source} · {relation.name} · {relation.target}"
        relations.append(_from_keys(relation.index, name, held_out, train, sorted_unique(keys), heads, candidates))
    queries = LinkQueries(split, tuple(relations))
    if not queries.total:
        raise _nothing_to_rank(graph, split)
    return queries


def both_sides(graph: "TypedGraph", split: str, *, max_per_relation: int = 0) -> LinkQueries:
    """The queries of a split for tails (relation r) and for heads (relation r + M), filtered by all splits.

    Candidates are the nodes of the relation's target type; in a graph with one type, all entities.
    """
    tails = link_queries(graph, split, max_per_relation=max_per_relation)
    counts = {t.name: t.count for t in graph.node_types}
    heads = []
    for queries, relation in zip(tails.relations, graph.relations, strict=True):
        edges = graph.edges(relation.index)
        train = np.asarray(edges.split) == TRAIN
        learnt = np.asarray(edges.dst)[train], np.asarray(edges.src)[train]
        known = np.repeat(np.arange(len(queries.known_indptr) - 1), np.diff(queries.known_indptr))
        number, name = queries.relation + len(graph.relations), f"inverse of {queries.name}"
        sizes = counts[relation.target], counts[relation.source]
        known_pairs = [(queries.known_tails, known)]
        heads.append(relation_queries(number, name, (queries.tails, queries.heads), learnt, known_pairs, *sizes))
    return LinkQueries(split, (*tails.relations, *heads))


def narrowed(
    queries: RelationQueries,
    heads: Int64,
    candidates: Int64 | None = None,
    known: Int64 | None = None,
    without: Int64 | None = None,
) -> RelationQueries:
    """The queries of some ``heads`` (sorted local numbers) among ``candidates`` (sorted; None: all nodes of the type).

    ``known``: further pairs that are no candidates, ``without``: pairs that are no queries, both sorted as head · number of
    nodes of the target type + tail.
    """
    count = queries.candidates
    linked = np.repeat(np.arange(len(queries.known_indptr) - 1), np.diff(queries.known_indptr)) * count
    keys = queries.heads * count + queries.tails
    held_out = keys[in_sorted(queries.heads, heads)]
    nothing = np.zeros(0, np.int64)
    held_out = held_out[~in_sorted(held_out, nothing if without is None else without)]
    every = sorted_unique(np.concatenate([linked + queries.known_tails, nothing if known is None else known]))
    if candidates is None:
        chosen, degree = None, queries.train_degree
    else:
        chosen, degree = candidates, queries.train_degree[candidates]
        held_out, every = (_among(pairs, count, candidates) for pairs in (held_out, every))
        count = len(candidates)
    indptr = np.searchsorted(every, np.arange(len(queries.known_indptr), dtype=np.int64) * count).astype(np.int64)
    return replace(
        queries,
        heads=held_out // count,
        tails=held_out % count,
        candidates=count,
        known_indptr=indptr,
        known_tails=every % count,
        train_degree=degree,
        chosen=chosen,
    )


def _among(pairs: Int64, count: int, candidates: Int64) -> Int64:
    """The sorted pairs whose tail is a candidate, with its number in ``candidates``."""
    heads, tails = pairs // count, pairs % count
    kept = in_sorted(tails, candidates)
    return heads[kept] * len(candidates) + np.searchsorted(candidates, tails[kept])


def first_nodes(graph: "TypedGraph") -> list[tuple[int, int]]:
    """By relation, then by inverse relation, the global numbers of the first head and of the first tail."""
    start = {t.name: t.offset for t in graph.node_types}
    ends = [(start[r.source], start[r.target]) for r in graph.relations]
    return [*ends, *((tail, head) for head, tail in ends)]


def count_links(graph: "TypedGraph", split: str) -> int:
    """The number of links of a split, from the graph's manifest, without reading edges.

    Raises :class:`InputError` if there is none.
    """
    count = sum(int(relation["split"][split]) for relation in graph.manifest["relations"])
    if not count:
        raise _nothing_to_rank(graph, split)
    return count


def _nothing_to_rank(graph: "TypedGraph", split: str) -> InputError:
    """The error message for an empty split: why it is empty, and what to do."""
    ends = [
        (r.source == r.target, np.asarray(graph.edges(r.index).src), np.asarray(graph.edges(r.index).dst))
        for r in graph.relations
    ]
    total = sum(len(src) for _, src, _ in ends)
    loops = sum(int((src == dst).sum()) for same, src, dst in ends if same)
    none = f"the graph has no link in its {split} split"
    if total == loops:
        return InputError(
            f"{none}: each of its {total:,} edges joins a node with itself, and such an edge is never held out; check which "
            "columns are read as head and tail"
        )
    if getattr(graph, "manifest", {}).get("settings", {}).get("split", {}).get(split, 0):
        return InputError(
            f"{none}: of its {total - loops:,} edges none could be held out and leave its nodes an edge to train on; the "
            "graph is too small to be judged: add edges"
        )
    return InputError(f"{none}; build it with split.{split} above 0")


def _keys(heads: NDArray[np.integer], tails: NDArray[np.integer], candidates: int) -> Int64:
    return sorted_unique(np.asarray(heads, dtype=np.int64) * candidates + np.asarray(tails, dtype=np.int64))


def _from_keys(
    relation: int, name: str, held_out: Int64, train: Int64, known: Int64, heads: int, candidates: int
) -> RelationQueries:
    indptr = np.searchsorted(known, np.arange(heads + 1, dtype=np.int64) * candidates)
    return RelationQueries(
        relation=relation,
        name=name,
        heads=held_out // candidates,
        tails=held_out % candidates,
        candidates=candidates,
        known_indptr=indptr.astype(np.int64),
        known_tails=known % candidates,
        train_degree=np.bincount(train % candidates, minlength=candidates).astype(np.int64),
        head_degree=np.bincount(train // candidates, minlength=heads).astype(np.int64),
    )
