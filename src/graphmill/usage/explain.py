"""Explains a predicted link by edges and paths (blend, HGT, NBFNet) or by training triples (ConvE), by id or name; and the
influence analysis of a run: its checkpoints, its passes over the triples to explain, and its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from graphmill.atomic_files import writing
from graphmill.errors import InputError, SettingsError
from graphmill.explain.explanation import ExplainSettings, joined, training_edges_between
from graphmill.explain.links import explainer_of
from graphmill.graph.typed_graph import Relation, TypedGraph
from graphmill.influence.settings import InfluenceSettings
from graphmill.influence.tracin import TracedCheckpoint, influence, top
from graphmill.ingest.notebook import page, pairs, rows
from graphmill.predictions.selection import resolve_link
from graphmill.runs.export import Restored, restore
from graphmill.sampling.keyed import generator
from graphmill.systems.registry import entry, names_with
from graphmill.training.checkpoint import CheckpointInfo, CheckpointStore
from graphmill.training.contract import Traceable, Tracer
from graphmill.training.memory import parse_size
from graphmill.training.run_directory import RunDirectory
from graphmill.training.run_state import load_model

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
    """The edges that explain a table's best links, as :class:`graphmill.explain.explanation.EdgeShare`.

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
    graph = restored.graph
    names, words = graph.node_table().column("name").to_pylist(), _words(graph)
    triple, wanted = np.array([[h, relation.index, t]]), InfluenceSettings(top_k=settings.edges)
    # A model of its own, since the weights of the traced checkpoints are put into it.
    _, [(proponents, opponents)] = _strongest(restore(restored.run.path), triple, wanted)
    listed = [(*map(int, each), share) for each, share in (*proponents, *reversed(opponents))]
    about = training_edges_between(graph, [(a, b) for a, _, b, _ in listed])
    edges = [
        {"head": names[a], "relation": words[r], "tail": names[b], "share": share, **about[a, b][1]}
        for a, r, b, share in listed
    ]
    score = _score(restored, relation, h, t)
    return ExplainedLink(names[h], relation.name, names[t], score, TRACIN, edges, [], {}, True, {})


def trace_influence(
    run_dir: str | Path,
    settings: InfluenceSettings | None = None,
    *,
    out: str | Path = "",
    poll: Callable[[], None] = lambda: None,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Analyse a finished run; writes ``influence/<split>.json`` into it (or into ``out``), and returns its content.

    Raises:
        InputError: not a run, no checkpoints, or no held-out triple.
        SettingsError: the system cannot be traced, or a setting does not fit it.
    """
    settings = settings or InfluenceSettings()
    restored = restore(run_dir)
    if not restored.entry.traces:
        raise SettingsError(
            f"influence needs a system that trains on triples and offers their gradients; {restored.system.name} does "
            "not (conve does)"
        )
    for text in restored.notes:
        note(text)
    folder = Path(out) if out else restored.run.path / "influence"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    explained = _held_out(restored, settings)
    infos, lists = _strongest(restored, explained, settings, poll, note)
    nodes, words = restored.graph.node_table(), _words(restored.graph)
    ids, names = nodes.column("id").to_pylist(), nodes.column("name").to_pylist()

    def described(triple: np.ndarray, prefix: str) -> dict[str, Any]:
        h, r, t = (int(v) for v in triple)
        values = ids[h], words[r], ids[t], f"{names[h]} → {words[r]} → {names[t]}"
        return {f"{prefix}_{part}": v for part, v in zip(("head", "relation", "tail", "triple"), values, strict=True)}

    records = []
    for triple, of_triple in zip(explained, lists, strict=True):
        record = described(triple, "test")
        for name, listed in zip(("top_influences", "top_opponents"), of_triple, strict=True):
            record[name] = [described(each, "train") | {"influence": value} for each, value in listed]
        records.append(record)
    content = {
        "num_test_triples": len(explained),
        "num_training_triples": len(cast(Traceable, restored.system).traced_triples("train")),
        "top_k": settings.top_k,
        "learning_rate": infos[-1].learning_rate,
        "checkpoints": [{"epoch": i.epoch, "learning_rate": i.learning_rate, "loss": i.loss} for i in infos],
        "settings": settings.model_dump(),
        "fingerprint": restored.fingerprint,
        "results": records,
    }
    RunDirectory(folder).write_json(f"{settings.split}.json", content)
    return content


def _strongest(
    restored: Restored,
    explained: np.ndarray,
    settings: InfluenceSettings,
    poll: Callable[[], None] = lambda: None,
    note: Callable[[str], None] = lambda text: None,
) -> tuple[list[CheckpointInfo], list[list[list[tuple[np.ndarray, float]]]]]:
    """The checkpoints, and for each of the ``explained`` int64 [m, 3] its proponents and its opponents: triples int64 [3]
    of the training with their influences, the strongest first. The model of ``restored`` then has other weights."""
    system = cast(Traceable, restored.system)
    train, infos = system.traced_triples("train"), chosen_checkpoints(restored, settings.checkpoints)
    store = CheckpointStore(restored.run.checkpoints)

    def opened(info: CheckpointInfo) -> Tracer:
        """All checkpoints share one model, whose weights this replaces, so one is used at a time."""
        note(f"checkpoint {infos.index(info) + 1} of {len(infos)}")
        loaded = store.load(info)
        load_model(loaded.snapshot.tensors, restored.model, str(loaded.path))
        return system.tracer(restored.model)

    checkpoints = [TracedCheckpoint(each.epoch, each.learning_rate, partial(opened, each)) for each in infos]
    at_once = max(1, int(parse_size(settings.memory_budget) // (4 * len(train))))
    results = []
    for start in range(0, len(explained), at_once):
        part = explained[start : start + at_once]
        for values in influence(system, checkpoints, train, part, settings.batch_size, poll=poll):
            lists = top(values, settings.top_k)
            results.append([[(train[row], float(values[row])) for row in rows] for rows in lists])
    return infos, results


def _held_out(restored: Restored, settings: InfluenceSettings) -> np.ndarray:
    """int64 [m, 3]: the triples that the settings ask for."""
    triples = cast(Traceable, restored.system).traced_triples(settings.split)
    if not len(triples):
        raise InputError(f"the graph has no triple in its {settings.split} split")
    limit = settings.max_test_triples
    if 0 < limit < len(triples):
        rng = generator(settings.seed, "influence", settings.split)
        triples = triples[np.sort(rng.choice(len(triples), limit, replace=False))]
    return triples


def _words(graph: TypedGraph) -> list[str]:
    """The relations' names, with the types of both ends if several have one name."""
    words = [relation.name for relation in graph.relations]
    return words if len(set(words)) == len(words) else [" · ".join(relation.key) for relation in graph.relations]


def chosen_checkpoints(restored: Restored, limit: int) -> list[CheckpointInfo]:
    """At most ``limit`` checkpoints (0: all), spread evenly over the run's falling loss.

    Raises :class:`InputError` if the run has no checkpoint that was followed by a training step.
    """
    directory = restored.run.checkpoints
    spread = CheckpointStore(directory, keep_influence=limit or 10_000).influence()
    for infos in (spread, CheckpointStore(directory).list()):
        if chosen := [info for info in infos if info.learning_rate > 0]:
            return chosen
    raise InputError(
        f"{restored.run.path} has no checkpoint to trace; train with acceleration.keep_influence: 5 to keep some"
    )
