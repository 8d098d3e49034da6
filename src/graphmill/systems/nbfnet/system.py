"""The system of NBFNet: queries (head, relation) of training links, each without its own pair's edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.errors import InputError
from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.devices import to_device, wide
from graphmill.kernels.frontier import Layer
from graphmill.sampling.keyed import generator
from graphmill.systems.base_system import BaseSystem, DividedBatch, pairs_are_split
from graphmill.systems.nbfnet.graph import MessageGraph
from graphmill.systems.nbfnet.memory import QUERIES
from graphmill.systems.nbfnet.memory import memory_parts as memory_parts
from graphmill.systems.nbfnet.model import NBFNet
from graphmill.systems.nbfnet.settings import NbfnetSettings
from graphmill.training.contract import Encoded, ParameterGroup, Phase, Term

SOFTMAX = "softmax"
VALIDATED = 20_000
"""Validation links of all relations together on which an epoch is judged, at most about: to rank more of them would take
longer than the training."""


@dataclass(frozen=True)
class QueryBatch(DividedBatch):
    """Links ``head``, ``relation``, ``tail`` int64 [B], local numbers; ``key`` uint64 [B]: of the query's dropped edges.

    ``candidates`` int64, ascending global numbers: the targets in the step's softmax, besides the tails; None: all.
    ``degrees``: float32 [targets] by relation, :meth:`MessageGraph.thinned`.
    """

    head: np.ndarray
    relation: np.ndarray
    tail: np.ndarray
    key: np.ndarray
    candidates: np.ndarray | None = None
    degrees: Mapping[int, np.ndarray] = field(default_factory=dict)

    ROWS = ("head", "relation", "tail", "key")

    @property
    def weights(self) -> Mapping[str, float]:
        """The number of links."""
        return {SOFTMAX: float(len(self))}


class NbfnetSystem(BaseSystem[NBFNet]):
    """L = mean −log softmax(score of the target among the nodes of its type that are no other known targets)."""

    algorithm_version = 2
    can_checkpoint = False

    def __init__(self, graph: TypedGraph, settings: NbfnetSettings, batching: str) -> None:
        super().__init__(graph, settings)
        self.settings: NbfnetSettings = settings
        self.edges = TrainEdges(graph)
        self.messages = MessageGraph(self.edges, not pairs_are_split(graph))
        if not self.messages.links:
            raise InputError(f"{graph.path} has no training edges; reduce graph.split.valid and graph.split.test")
        counts = self.messages.counts.astype(float)
        shares = np.where(counts > 0, counts**settings.objective.relation_power, 0.0)
        self.shares = shares / shares.sum()
        batch = settings.step_size()
        steps = settings.training.steps_per_epoch or -(-self.messages.links // batch)
        self.phases = [Phase("train", steps, batch, settings.base_batch)]

    # ---------------------------------------------------------------- model

    def make_model(self) -> NBFNet:
        """The network."""
        m = self.settings.model
        return NBFNet(len(self.messages.counts), m.hidden_dim, m.num_layers)

    def parameter_groups(self, model: NBFNet, phase: Phase) -> list[ParameterGroup]:
        """Weight decay acts on matrices."""
        return self.groups(model, lambda _, parameter: parameter.ndim > 1)

    def row_keys(self, model: NBFNet) -> dict[str, tuple[str, list[str]]]:
        """Vectors and numbers of relations by the relation; matrices as a whole."""
        keys = self.messages.named(["|".join(relation.key) for relation in self.graph.relations])
        rows = {
            "query",
            "popularity",
            "unreached",
            *(n for n, _ in model.named_parameters() if n.endswith(".relation")),
        }
        return {name: (name, keys if name in rows else []) for name, _ in model.named_parameters()}

    # ---------------------------------------------------------------- a step

    def step(self, phase: Phase, epoch: int, index: int) -> QueryBatch:
        """Links drawn with replacement: first the relations, then a link of each."""
        rng = generator(self.settings.training.seed, "queries", epoch, index)
        relation = np.sort(rng.choice(len(self.shares), phase.batch_size, p=self.shares))
        link = self.messages.first_link[relation] + rng.integers(0, self.messages.counts[relation])
        head, tail = self.messages.link_ends(link)
        key = rng.integers(0, 2**63, phase.batch_size).astype(np.uint64)
        wanted, chosen = self.settings.objective.candidates, []
        for kind in np.unique(self.messages.target_type[relation]).tolist() if wanted else ():
            node_type = self.graph.node_types[kind]
            chosen.append(
                node_type.offset + np.sort(rng.choice(node_type.count, min(wanted, node_type.count), replace=False))
            )
        drop = self.settings.objective.edge_dropout
        degrees = {r: self.messages.thinned(r, drop, rng) for r in np.unique(relation).tolist()}
        return QueryBatch(head, relation, tail, key, np.concatenate(chosen) if wanted else None, degrees)

    def encode(self, model: NBFNet, batch: QueryBatch) -> Encoded | None:
        """None: queries share nothing, so each chunk of them propagates by itself."""
        return None

    def terms(self, model: NBFNet, chunk: QueryBatch, encoded: Encoded | None) -> list[Term]:
        """The cross-entropy summed over links."""
        loss = model.popularity.sum() * 0.0  # a process may hold no link
        kinds = self.messages.target_type[chunk.relation]
        for kind in np.unique(kinds).tolist():
            mine = chunk.take(np.flatnonzero(kinds == kind))
            layers = self.layers(mine.relation, mine.head, mine)
            degree = self.messages.log_degree(mine.relation, mine.tail, mine.degrees)
            scores = query_scores(self.messages, model, mine.relation, mine.head, layers, degree)
            row, known = self.messages.known(mine.relation, mine.head)
            other = known != mine.tail[row]
            places = self._tensor(row[other]), self._tensor(known[other])
            scores = scores.index_put(places, scores.new_tensor(-torch.inf))
            if chunk.candidates is not None:
                scores = self._sampled(scores, mine.tail, kind, chunk.candidates)
            loss = loss + F.cross_entropy(wide(scores), self._tensor(mine.tail), reduction="sum")
        return [Term(SOFTMAX, loss)]

    def _sampled(self, scores: Tensor, tails: np.ndarray, kind: int, nodes: np.ndarray) -> Tensor:
        """The scores of the candidates, each counting for several nodes, and of the targets; −∞ for other nodes."""
        node_type = self.graph.node_types[kind]
        first, end = np.searchsorted(nodes, [node_type.offset, node_type.offset + node_type.count])
        shift = np.full(node_type.count, -np.inf, np.float32)
        shift[nodes[first:end] - node_type.offset] = np.log(node_type.count / max(end - first, 1))
        tail = self._tensor(tails)[:, None]
        return (scores + self._tensor(shift).to(scores.dtype)).scatter(1, tail, scores.gather(1, tail))

    def layers(self, relation: np.ndarray, head: np.ndarray, batch: QueryBatch | None = None) -> list[Layer]:
        """The frontiers of queries int64 [B]; ``batch``: in training, without the edges of the pair and of a share of
        others, and with candidates alone in the last layer."""
        m, drop, tail, key, reads = self.settings.model, 0.0, None, None, None
        if batch is not None:
            drop, tail, key = self.settings.objective.edge_dropout, batch.tail, batch.key
            if batch.candidates is not None:
                reads = np.zeros(self.graph.num_nodes, bool)
                reads[batch.candidates] = True
        return self.messages.layers(relation, head, tail, key, m.num_layers, m.nodes_per_layer, drop, reads)

    # ---------------------------------------------------------------- evaluation and export

    def validated_links(self) -> int:
        """Of a large graph a sample, unless the settings name a number."""
        relations = self.ranking_queries("valid").relations
        many = sum(len(each.heads) for each in relations) > VALIDATED
        return self.settings.evaluation.max_queries or (VALIDATED // len(relations) if many else 0)

    def scorer(self, model: NBFNet) -> NbfnetScorer:
        """Scores of the graph's relations, and of the inverses that the graph does not have."""
        return NbfnetScorer(self.messages, model, self.settings.model.nodes_per_layer)

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """The number of queries per step."""
        return "queries", float(phase.batch_size)


def query_scores(
    messages: MessageGraph,
    model: NBFNet,
    relation: np.ndarray,
    head: np.ndarray,
    layers: Sequence[Layer],
    degree: np.ndarray | None = None,
    weights: Sequence[Tensor] = (),
) -> Tensor:
    """Scores [B, targets] of queries int64 [B] whose relations have targets of one type, from their ``layers``.

    ``degree``: the log degrees, in training; ``weights``: of the layers' edges, with gradients.
    """
    degree = messages.log_degree(relation) if degree is None else degree
    heads, first = head + messages.source_offset[relation], int(messages.target_offset[relation[0]])
    of_targets = to_device(torch.from_numpy(np.ascontiguousarray(degree)), model.query.device)
    return model(layers, heads, relation, first, of_targets.to(model.query.dtype), weights)


class NbfnetScorer:
    """Scores every candidate of a relation or an inverse relation."""

    def __init__(
        self, messages: MessageGraph, model: NBFNet, nodes_per_layer: int, poll: Callable[[], None] = lambda: None
    ) -> None:
        self.messages, self.model, self.nodes_per_layer, self.poll = messages, model.eval(), nodes_per_layer, poll

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """Local head numbers int64 [B] → fp32 [B, candidates]."""
        number, depth, blocks = self.messages.number_of(relation), len(self.model.layers), []
        with torch.no_grad():
            for begin in range(0, len(heads), QUERIES):
                self.poll()
                part = np.ascontiguousarray(heads[begin : begin + QUERIES], dtype=np.int64)
                queries = np.full(len(part), number)
                layers = self.messages.layers(queries, part, None, None, depth, self.nodes_per_layer, 0.0)
                blocks.append(wide(query_scores(self.messages, self.model, queries, part, layers)))
        return torch.cat(blocks)
