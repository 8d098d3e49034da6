"""Explains a predicted link by edges and paths (blend, HGT, NBFNet) or by training triples (ConvE), by id or name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.errors import SettingsError
from graphmill.explain.explanation import ExplainSettings, known_of_edges
from graphmill.explain.links import explainer_of
from graphmill.explain.paths import joined
from graphmill.graph.typed_graph import Relation, TypedGraph
from graphmill.influence.settings import InfluenceSettings
from graphmill.ingest.notebook import page, pairs, rows
from graphmill.predictions.selection import resolve_link
from graphmill.runs.export import Restored
from graphmill.sampling.keyed import generator
from graphmill.systems.registry import entry, names_with
from graphmill.usage.influence import trace_influence

TRACIN = "influence of training triples (TracIn)"


@dataclass(frozen=True)
class ExplainedLink:
    """One link and its explanation, by name.

    ``edges``: head, relation, tail and share, largest share first and negative ones last. ``paths``: path (as text),
    nodes, relations and strength. ``parts``: the terms whose sum is the score. ``method``: how shares are computed.
    ``whole``: the neighbourhood contains all edges, with none left out. ``deletion`` (with ``verify``): the score
    without the listed positive edges, and the score without equally many random edges around the two nodes.
    """

    head: str
    relation: str
    tail: str
    score: float
    method: str
    edges: list[dict[str, Any]]
    paths: list[dict[str, Any]]
    parts: dict[str, float]
    whole: bool
    deletion: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain values."""
        return asdict(self)

    def _repr_html_(self) -> str:
        edges = rows(("head", "relation", "tail", "share"), (tuple(each.values())[:4] for each in self.edges))
        paths = rows(("path", "strength"), ((each["path"], each["strength"]) for each in self.paths))
        title = f"{self.head} · {self.relation} · {self.tail}: score {self.score:.4g} ({self.method})"
        return page(title, pairs(self.parts), edges, paths)


class EdgeEvidence:
    """The edges that explain a table's best links, as :class:`graphmill.predictions.paths.EdgeShare`.

    It needs a run of a system that explains its links.
    """

    schema = pa.schema([("because", pa.string())])

    def __init__(self, restored: Restored, most: int) -> None:
        self._explainer = explainer_of(restored.system, restored.model, ExplainSettings(edges=3, paths=0))
        self._names, self.most = restored.graph.node_table()["name"], most

    def __call__(self, relation: int, heads: np.ndarray, tails: np.ndarray) -> Mapping[str, Sequence[Any]]:
        """``a –relation– b (+0.123) ; …`` of each link."""
        links = zip(heads.tolist(), tails.tolist(), strict=True)
        result = self._explainer.named([self._explainer.explain(relation, head, tail) for head, tail in links])
        nodes = {node for why in result for e in why.evidence for node in (e.source, e.target)}
        names = {node: str(self._names[node].as_py()) for node in nodes}
        return {"because": [" ; ".join(why.lines(names)) for why in result]}


def explain_link(
    restored: Restored,
    head: str,
    relation: str,
    tail: str,
    settings: ExplainSettings | None = None,
    *,
    verify: bool = False,
) -> ExplainedLink:
    """Explain one link of a run.

    ``head``, ``tail``: node ids, or names that are unique among the nodes that the relation can join. ``relation``: its
    name, or source|name|target. ``verify``: also score the link without the listed edges (not for ConvE).

    Raises:
        SettingsError: the system predicts no links, or its links cannot be explained.
        InputError: no such relation or node, several nodes of that name, or no checkpoints to trace (ConvE).
    """
    settings = settings or ExplainSettings()
    if entry(restored.system.name).recommends:
        raise SettingsError(
            f"{restored.system.name} recommends items; links are explained for {names_with('explains')}"
        )
    result, h, t = resolve_link(restored.graph, head, relation, tail)
    if entry(restored.system.name).traces:
        return _traced(restored, result, h, t, settings)
    explainer = explainer_of(restored.system, restored.model, settings)
    [why] = explainer.named([explainer.explain(result.index, h, t)])
    names = restored.graph.node_table().column("name").to_pylist()
    reported = [*why.evidence, *reversed(why.against)]
    paths = []
    for path, relations in why.paths:
        nodes = [names[node] for node in path.nodes]
        text = f"{joined(nodes, relations)} ({path.strength:.3g})"
        paths.append({"path": text, "nodes": nodes, "relations": list(relations), "strength": path.strength})
    deletion: dict[str, float] = {}
    if verify:
        listed = np.array([e.pair for e in why.evidence], np.int64)
        others = np.setdiff1d(pairs_around(explainer.graph, h, t), listed)
        drawn = generator(0, "explain", "deletion").choice(others, min(len(listed), len(others)), replace=False)
        without = {"without_the_listed_edges": listed, "without_as_many_others": drawn}
        scores = {name: explainer.score_without(result.index, h, t, gone) for name, gone in without.items()}
        deletion = {"edges": len(listed), **scores}
    return ExplainedLink(
        names[h],
        result.name,
        names[t],
        _score(restored, result, h, t),
        explainer.method,
        [
            {"head": names[e.source], "relation": "/".join(e.relations), "tail": names[e.target], "share": e.share}
            | dict(e.known)
            for e in reported
        ],
        paths,
        why.parts,
        why.whole,
        deletion,
    )


def _score(restored: Restored, relation: Relation, h: int, t: int) -> float:
    source, target = restored.graph.node_type(relation.source), restored.graph.node_type(relation.target)
    scores = restored.system.scorer(restored.model).score_targets(relation.index, np.array([h - source.offset]))
    return float(scores[0, t - target.offset])


def pairs_around(graph: TypedGraph, *nodes: int, neighbors: bool = True) -> np.ndarray:
    """int64: undirected pairs with a training edge that touches one of the nodes (rows of the node table) or their
    neighbours."""
    reached = np.zeros(graph.num_nodes, bool)
    reached[list(nodes)] = True
    if neighbors:
        near = reached.copy()
        for src, dst, _ in _training(graph):
            reached[src[near[dst]]] = True
            reached[dst[near[src]]] = True
    return np.unique(
        np.concatenate([np.zeros(0, np.int64), *(p[reached[s] | reached[d]] for s, d, p in _training(graph))])
    )


def _training(graph: TypedGraph) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    for relation in graph.relations:
        edges = graph.edges(relation)
        kept = np.asarray(edges.split) == 0
        yield *graph.training_edges(relation, everywhere=True), np.asarray(edges.pair, np.int64)[kept]


def _traced(restored: Restored, relation: Relation, h: int, t: int, settings: ExplainSettings) -> ExplainedLink:
    nodes, graph = restored.graph.node_table(), restored.graph
    ids, names = nodes.column("id").to_pylist(), nodes.column("name").to_pylist()
    known = [each.name for each in graph.relations]
    word = relation.name if len(set(known)) == len(known) else " · ".join(relation.key)
    requested = InfluenceSettings(mode="single", triple=[ids[h], word, ids[t]], top_k=settings.edges)
    with tempfile.TemporaryDirectory(prefix="graphmill-explain-") as scratch:
        [result] = trace_influence(restored.run.path, requested, out=scratch)["results"]
    row = {node: place for place, node in enumerate(ids)}
    listed = [*result["top_influences"], *reversed(result["top_opponents"])]
    ends = [(row[each["train_head"]], row[each["train_tail"]]) for each in listed]
    about = known_of_edges(graph, ends)
    edges = [
        {
            "head": names[a],
            "relation": each["train_relation"],
            "tail": names[b],
            "share": each["influence"],
            **about[a, b],
        }
        for each, (a, b) in zip(listed, ends, strict=True)
    ]
    score = _score(restored, relation, h, t)
    return ExplainedLink(names[h], relation.name, names[t], score, TRACIN, edges, [], {}, True, {})
