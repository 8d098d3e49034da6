"""Explanations of predicted links: the edges and paths that carried a score, and what every explainer shares.

A score is a sum of parts, and most parts are sums over edges. Edges are undirected node pairs: an edge and its reverse are
one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import nn

from graphmill.graph.sorted_unique import in_sorted
from graphmill.ingest.tables import NO_TIME
from graphmill.settings import Settings, setting

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph

Shares = tuple[np.ndarray, np.ndarray]
"""int64 numbers of undirected pairs (may repeat), and the float64 share of each."""

NOT_SHARED = ("the two nodes' own vectors", "popularity of the target", "offset of the relation", "ComplEx")
"""Parts of a score that do not come from edges."""
_PATH_EDGES = 2000
"""Number of edges (those with the largest shares) among which paths are searched."""


@dataclass(frozen=True)
class Path:
    """``nodes``: global numbers from head to tail. ``strength``: the smallest share of its edges."""

    nodes: tuple[int, ...]
    strength: float


NamedPath = tuple[Path, tuple[str, ...]]
"""A path with its relations; () until they are named."""


class ExplainSettings(Settings):
    """How many edges an explanation examines and how many it reports."""

    edges: int = setting(10, "Number of edges to list, those with the largest shares first", ge=1)
    paths: int = setting(5, "Number of paths to list", ge=0)
    neighbors: int = setting(64, "Maximum number of neighbours to examine for each node and relation", ge=1)
    max_edges: int = setting(
        20_000,
        "Maximum number of edges of the neighbourhood through which the layers' contribution is traced; memory grows "
        "with it",
        ge=1,
    )
    steps: int = setting(64, "Maximum number of points of the integral of gradients; it starts with 16", ge=1)


@dataclass(frozen=True)
class EdgeShare:
    """One edge: its undirected ``pair``, the rows of its two nodes, the relations that join them, its ``share``, and what is
    ``known`` of it: the largest weight and confidence, the last time (seconds since 1970), and the evidence, by name."""

    pair: int
    source: int
    target: int
    relations: tuple[str, ...]
    share: float
    known: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """The explanation of a link's score.

    ``head``, ``tail``: rows of the node table. ``relation``: its index. ``parts``: the contribution of each named part
    to ``score``. ``whole``: nothing was left out of the neighbourhood, so ``score`` equals the model's own.
    ``evidence``: edges with positive shares, largest first. ``against``: edges with negative shares, largest first.
    ``paths``: strongest first, with their relations. ``other``: the sum of the shares of edges that are not listed.
    """

    relation: int
    head: int
    tail: int
    score: float
    parts: dict[str, float]
    evidence: tuple[EdgeShare, ...]
    against: tuple[EdgeShare, ...]
    paths: tuple[NamedPath, ...]
    other: float
    whole: bool

    def lines(self, names: Sequence[str] | Mapping[int, str]) -> list[str]:
        """``a –relation– b (+0.123)`` of each edge; ``names`` by row of the node table."""
        return [
            f"{joined([names[e.source], names[e.target]], ['/'.join(e.relations)])} ({e.share:+.3g})"
            for e in self.evidence
        ]


class LinkShares(NamedTuple):
    """What an explainer finds in a score: its ``parts`` by name, the ``shares`` of edges in them, whether no edge was left
    out (``whole``), and the strongest ``paths``, if not those among the edges with the largest shares."""

    parts: dict[str, float]
    shares: list[Shares]
    whole: bool = True
    paths: Sequence[NamedPath] | None = None


class LinkExplainer(ABC):
    """Explains links of one restored model. Data that all explanations need are computed once. ``method``: how the shares
    are computed."""

    method = "shares of the score"

    def __init__(self, system: Any, model: nn.Module, settings: ExplainSettings | None = None) -> None:
        self.system: Any = system
        self.model: Any = model.eval()
        self.settings = settings or ExplainSettings()
        self.graph: TypedGraph = system.graph
        self._ends = _ends_of_pairs(self.graph)

    @abstractmethod
    def of_link(self, relation: int, head: int, tail: int) -> LinkShares:
        """The shares in the score of a link, by local numbers."""

    @abstractmethod
    def score_without(self, relation: int, head: int, tail: int, pairs: np.ndarray) -> float:
        """The model's score of a link (rows of the node table) without the undirected ``pairs``: the deletion test.

        The popularity of the target, and what is trained by node, are not changed.
        """

    def explain(self, relation: int, head: int, tail: int) -> Explanation:
        """Explain one link, given by rows of the node table. :meth:`named` adds the relations' names to its edges."""
        parts, shares, whole, paths = self.of_link(relation, *self.local(relation, head, tail))
        pairs = np.concatenate([np.zeros(0, np.int64), *(p for p, _ in shares)])
        values = np.concatenate([np.zeros(0), *(v for _, v in shares)])
        pairs, place = np.unique(pairs, return_inverse=True)
        total = np.bincount(place, values, minlength=len(pairs))
        order, most = np.argsort(-total, kind="stable"), self.settings.edges
        chosen = [i for i in order[:most] if total[i] > 0]
        against = [i for i in order[::-1][:most] if total[i] < 0]
        if paths is None:
            by_pair = {int(pairs[i]): float(total[i]) for i in order[:_PATH_EDGES]}
            ends = {pair: (int(self._ends[0][pair]), int(self._ends[1][pair])) for pair in by_pair}
            paths = [(path, ()) for path in strongest_paths(ends, by_pair, head, tail, self.settings.paths)]

        def edge(i: int) -> EdgeShare:
            source, target = (int(end[pairs[i]]) for end in self._ends)
            return EdgeShare(int(pairs[i]), source, target, (), float(total[i]))

        return Explanation(
            relation,
            head,
            tail,
            sum(parts.values()),
            parts,
            tuple(map(edge, chosen)),
            tuple(map(edge, against)),
            tuple(paths),
            float(total.sum() - total[[*chosen, *against]].sum()),
            whole,
        )

    def local(self, relation: int, head: int, tail: int) -> tuple[int, int]:
        """Rows of the node table as numbers within the relation's source and target type."""
        kind = self.graph.relations[relation]
        return head - self.graph.node_type(kind.source).offset, tail - self.graph.node_type(kind.target).offset

    def pairs_of(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """int64: the numbers of the pairs of training edges between nodes (rows of the node table), in either direction."""
        keys, order = self._sorted_pairs
        return order[np.searchsorted(keys, self._keys(source, target))]

    @cached_property
    def _sorted_pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [pairs]: :meth:`_keys` of all pairs, ascending, and the pairs' numbers."""
        keys = self._keys(*self._ends)
        order = np.argsort(keys)
        return keys[order], order

    def _keys(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """int64: a number for each pair of nodes, in either direction."""
        return np.minimum(source, target).astype(np.int64) * self.graph.num_nodes + np.maximum(source, target)

    def ends_of(self, pairs: np.ndarray) -> np.ndarray:
        """int64 [n, 2]: the rows of the two nodes of each pair."""
        return np.stack([each[pairs] for each in self._ends], 1).astype(np.int64)

    def named(self, explanations: Sequence[Explanation]) -> list[Explanation]:
        """Add the names of the relations that join the nodes of each edge, also to paths without relations, in one pass over
        the graph for all explanations."""
        edges = {(e.source, e.target) for each in explanations for e in (*each.evidence, *each.against)}
        edges |= {ends for each in explanations for path, _ in each.paths for ends in pairwise(path.nodes)}
        about = training_edges_between(self.graph, edges)

        def with_names(e: EdgeShare) -> EdgeShare:
            relations, known = about[e.source, e.target]
            return replace(e, relations=relations, known=known)

        def relations_of(path: Path) -> tuple[str, ...]:
            return tuple("/".join(about[ends][0]) for ends in pairwise(path.nodes))

        return [
            replace(
                each,
                evidence=tuple(map(with_names, each.evidence)),
                against=tuple(map(with_names, each.against)),
                paths=tuple((path, relations or relations_of(path)) for path, relations in each.paths),
            )
            for each in explanations
        ]


def _ends_of_pairs(graph: TypedGraph) -> tuple[np.ndarray, np.ndarray]:
    """int32 [pairs] each: the two nodes of every undirected pair, in the direction of the first relation that joins them."""
    first, second = np.zeros(graph.num_pairs, np.int32), np.zeros(graph.num_pairs, np.int32)
    for relation in reversed(graph.relations):
        pair = graph.edges(relation).pair
        first[pair], second[pair] = graph.ends(relation)
    return first, second


def training_edges_between(
    graph: TypedGraph, ends: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], tuple[tuple[str, ...], dict[str, Any]]]:
    """By two nodes (rows of the node table, in any order): the names of the relations with a training edge between them,
    and of these edges the largest weight and confidence, the last time, and the evidence; only what is known."""
    keys = {(a, b): min(a, b) * graph.num_nodes + max(a, b) for a, b in ends}
    wanted = np.array(sorted(set(keys.values())), np.int64)
    names: dict[int, dict[str, None]] = {key: {} for key in wanted.tolist()}
    known: dict[int, dict[str, Any]] = {key: {} for key in names}
    for relation in graph.relations:
        edges = graph.edges(relation)
        columns = {"weight": edges.weight, "confidence": edges.confidence, "time": edges.timestamp}
        src, dst = graph.ends(relation)
        key_of = np.minimum(src, dst) * graph.num_nodes + np.maximum(src, dst)
        training = np.flatnonzero(in_sorted(key_of, wanted) & (np.asarray(edges.split) == 0))
        for edge, key in zip(training.tolist(), key_of[training].tolist(), strict=True):
            names[key][relation.name] = None
            for name, values in columns.items():
                value = NO_TIME if values is None else values[edge].item()
                if value == value and value != NO_TIME:
                    known[key][name] = max(known[key].get(name, value), value)
    for key, text in graph.evidence(wanted).items():
        known[key]["evidence"] = text
    return {pair: (tuple(names[key]), known[key]) for pair, key in keys.items()}


def strongest_paths(
    ends: Mapping[int, tuple[int, int]], shares: Mapping[int, float], head: int, tail: int, count: int
) -> list[Path]:
    """The ``count`` strongest paths of two or three edges with positive shares, without the pair of head and tail itself.

    ``ends``: pair → its two nodes; ``shares``: pair → its share. A path is as strong as its weakest edge. Of equally
    strong paths, the shorter comes first.
    """
    around: dict[int, list[tuple[int, int]]] = {}
    for pair, (u, v) in ends.items():
        if shares.get(pair, 0.0) > 0 and u != v and {u, v} != {head, tail}:
            around.setdefault(u, []).append((v, pair))
            around.setdefault(v, []).append((u, pair))
    last: dict[int, list[int]] = {}
    for node, pair in around.get(tail, ()):
        last.setdefault(node, []).append(pair)
    result: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for middle, first in around.get(head, ()):
        result += [((head, middle, tail), (first, end)) for end in last.get(middle, ())]
        for other, second in around.get(middle, ()):
            if other not in (head, tail):
                result += [((head, middle, other, tail), (first, second, end)) for end in last.get(other, ())]
    paths = [Path(nodes, min(shares[pair] for pair in pairs)) for nodes, pairs in result]
    return sorted(paths, key=lambda path: (-path.strength, len(path.nodes), path.nodes))[:count]


def joined(names: Sequence[str], relations: Sequence[str]) -> str:
    """``a –r– b –s– c`` from the nodes' names and the edges' relations."""
    parts = [names[0]]
    for relation, name in zip(relations, names[1:], strict=True):
        parts.append(f"–{relation}– {name}")
    return " ".join(parts)
