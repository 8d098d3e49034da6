"""The system of ComplEx, DistMult, RotatE and TransE: for typed links, a softmax over the nodes of the target's type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.arrays import array_of
from graphmill.errors import InputError
from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.devices import wide
from graphmill.kernels.table_rows import table_rows
from graphmill.sampling.keyed import generator
from graphmill.systems.base_system import DividedBatch, TableSystem
from graphmill.systems.factor.memory import memory_parts as memory_parts
from graphmill.systems.factor.model import (
    PRODUCTS,
    SCORES,
    SHORTEST,
    FactorTables,
    joined,
    scores_of_all,
    scores_of_pairs,
    scores_of_relations,
)
from graphmill.systems.factor.settings import FactorSettings
from graphmill.systems.link_export import ExportedScorer
from graphmill.training.contract import Encoded, ParameterGroup, Phase, Term

SAMPLED = 1000
"""Known nodes whose lengths new ones are given."""


class FactorSystem(TableSystem[FactorTables]):
    """L = mean −log softmax(score of the target among its type's candidates), over the step's links. For products it adds
    λ mean Σ|v|³, and the cross-entropy of the relation among those between the same types, if there are several.

    In training, a target's degree does not count the link itself.

    Every relation is trained to predict its targets. If the graph does not have a relation's reverse, the model adds an
    inverse relation with its own vector (reciprocal relations, Lacroix et al. 2018). Everything random is keyed by
    ``settings.training.seed``.
    """

    algorithm_version = 1
    can_checkpoint = False

    def __init__(self, graph: TypedGraph, settings: FactorSettings, batching: str) -> None:
        super().__init__(graph, settings)
        self.settings: FactorSettings = settings
        self.edges = TrainEdges(graph)
        types = {t.name: number for number, t in enumerate(graph.node_types)}
        rows, local = [np.zeros((0, 4), np.int64)], [np.zeros(0, np.int64)]
        for relation in self.edges.relations:
            (src, dst), (source, target) = self.edges.edges(relation), self.edges.ends(relation)
            columns = src + source.offset, relation, dst + target.offset, types[target.name]
            rows.append(np.stack(np.broadcast_arrays(*columns), axis=1))
            local.append(dst)
        self.links = np.concatenate(rows)
        if not len(self.links):
            raise InputError(f"{graph.path} has no training edges; reduce graph.split.valid and graph.split.test")
        self.num_relations = (1 if self.edges.reversed else 2) * len(graph.relations)
        targets = self.links[:, 1], np.concatenate(local)
        shape = self.num_relations, max(t.count for t in graph.node_types)
        degree = sp.csr_matrix((np.ones(len(self.links)), targets), shape)
        self.target_degree = np.log(np.asarray(degree[targets]).ravel()).astype(np.float32)
        self.log_degree = degree.log1p().astype(np.float32)
        ends = [tuple(t.name for t in self.edges.ends(relation)) for relation in range(self.num_relations)]
        self.ends = torch.tensor([ends.index(each) for each in ends])
        self.coefficients = {SOFTMAX: 1.0}
        if settings.system in PRODUCTS:
            self.coefficients[N3] = settings.objective.n3
            if settings.objective.relation_weight and len(set(ends)) < len(ends):
                self.coefficients[RELATION] = settings.objective.relation_weight
        self.plan_steps(len(self.links))

    # ---------------------------------------------------------------- model

    def make_model(self) -> FactorTables:
        """The network."""
        return FactorTables(self.graph.num_nodes, self.num_relations, self.embedding_width, self.settings.system)

    def parameter_groups(self, model: FactorTables, phase: Phase) -> list[ParameterGroup]:
        """All parameters are tables: no weight decay."""
        return self.groups(model, lambda *_: False)

    def fold_in_rows(self, model: FactorTables, missing: Mapping[str, np.ndarray]) -> None:
        """A new node's vector is the mean of what its training links look for, head and relation :func:`joined`; for
        products, in the length that known nodes get to their own from such a mean. The mean over all nodes without a link
        to a known one.
        """
        super().fold_in_rows(model, missing)
        table, new = model.entities.detach(), np.zeros(self.graph.num_nodes, bool)
        new[missing["entities"]] = True
        some = np.flatnonzero(~new)[:: max(int((~new).sum()) // SAMPLED, 1)]
        wanted = np.concatenate([missing["entities"], some])
        head, relation, tail, _ = self.links[~new[self.links[:, 0]] & np.isin(self.links[:, 2], wanted)].T
        with torch.no_grad():
            x = joined(table[head], model.relation_vectors(torch.from_numpy(relation)), model.score)
            means = torch.zeros_like(table).index_add_(0, torch.from_numpy(tail), x)
            means /= torch.from_numpy(np.bincount(tail, minlength=len(table))).clamp(min=1)[:, None]
            if model.score in PRODUCTS:
                means *= table[some].norm(dim=1).mean() / means[some].norm(dim=1).mean().clamp(min=SHORTEST)
            reached = np.intersect1d(missing["entities"], tail)
            table[reached] = means[reached]

    def to(self, device: torch.device) -> None:
        """Moves the relations' pairs of types."""
        super().to(device)
        self.ends = self.ends.to(device)

    # ---------------------------------------------------------------- a step

    def step(self, phase: Phase, epoch: int, index: int) -> FactorBatch:
        """Links of one shuffled order per epoch, in steps of even size, and the candidates of each type in the step."""
        chosen = self.rows_of_step(epoch, index)
        head, relation, tail, kind = self.links[chosen].T
        wanted, read = self.settings.objective.candidates, [head, tail]
        candidates, degree = {}, {}
        for number in np.unique(kind).tolist():
            node_type = self.graph.node_types[number]
            local = np.arange(node_type.count)
            if 0 < wanted < node_type.count:
                rng = generator(self.settings.training.seed, "candidates", epoch, index, number)
                local = rng.choice(node_type.count, wanted, replace=False)
            candidates[number] = node_type.offset + local
            queried = np.unique(relation[kind == number])
            degree[number] = queried, self.log_degree[queried][:, local].toarray()
            read.append(candidates[number])
        nodes = np.unique(np.concatenate(read))
        terms = tuple(self.coefficients)
        return FactorBatch(head, relation, tail, kind, self.target_degree[chosen], nodes, candidates, degree, terms)

    def encode(self, model: FactorTables, batch: FactorBatch) -> Encoded | None:
        """The vectors of all nodes that the step reads, [nodes, d]: their gradient is added to the table once a step."""
        return Encoded({NODES: table_rows(model.entities, self._tensor(batch.nodes))})

    def terms(self, model: FactorTables, chunk: FactorBatch, encoded: Encoded | None) -> list[Term]:
        """The cross-entropy summed over links, and the cubes of their vectors."""
        assert encoded is not None
        vectors = encoded.tensors[NODES]
        ends = np.searchsorted(chunk.nodes, np.stack([chunk.head, chunk.tail]))
        kinds = np.unique(chunk.kind).tolist()
        of_kinds = [_arrays_of(chunk, kind) for kind in kinds]
        copied = iter(self._tensors(*ends, chunk.relation, *chain(*of_kinds)))
        head, tail, relation = islice(copied, 3)
        parts = vectors[head], model.relation_vectors(relation), vectors[tail]
        x = joined(*parts[:2], model.score)
        loss = x.new_zeros(())
        for kind, arrays in zip(kinds, of_kinds, strict=True):
            tensors, count = list(islice(copied, len(arrays))), self.graph.node_types[kind].count
            loss = loss + _cross_entropy(model, count, tensors, x, parts[2], vectors)
        sums = {SOFTMAX: loss}
        if N3 in chunk.terms:
            sums[N3] = sum((model.cubes(part) for part in parts), x.new_zeros(()))
        if RELATION in chunk.terms:
            sums[RELATION] = self._relation_cross_entropy(model, relation, parts[0], parts[2])
        return [Term(name, total, self.coefficients[name]) for name, total in sums.items()]

    def _relation_cross_entropy(self, model: FactorTables, relation: Tensor, head: Tensor, target: Tensor) -> Tensor:
        """Σ −log softmax of ``relation`` int64 [B] over those between the same types; ``head``, ``target`` [B, d]."""
        scores = wide(scores_of_relations(head, target, model.relations, model.score))
        others = self.ends[relation][:, None] != self.ends
        return F.cross_entropy(scores.masked_fill(others, -math.inf), relation, reduction="sum")

    # ---------------------------------------------------------------- evaluation and export

    def scorer(self, model: FactorTables) -> FactorScorer:
        """Scores of the graph's relations, and of the inverses that the graph does not have."""
        return FactorScorer(model, self.edges, self.log_degree)

    def scoring(self, model: FactorTables) -> dict[str, np.ndarray]:
        """The arrays for scores besides the exported vectors: :func:`graphmill.systems.factor.system.scoring_arrays`."""
        return scoring_arrays(model, TrainingLinks.of_graph(self.graph))

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """The number of links per step."""
        return "links", self.rows / self.steps_of_rows


class FactorScorer:
    """Scores every candidate of a relation or an inverse; ``log_degree`` [R, candidates]: log(1 + links into it)."""

    def __init__(self, model: FactorTables, edges: TrainEdges, log_degree: sp.csr_matrix) -> None:
        self.model, self.edges, self.log_degree = model.eval(), edges, log_degree
        self.poll: Callable[[], None] = lambda: None

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """Local head numbers int64 [B] → fp32 [B, candidates]."""
        self.poll()
        number, (source, target) = self.edges.known_as(relation), self.edges.ends(relation)
        vectors = self.model.entities
        with torch.no_grad():
            rows = torch.from_numpy(np.ascontiguousarray(heads + source.offset)).to(vectors.device)
            x = joined(wide(vectors[rows]), wide(self.model.relation_vectors([number])), self.model.score)
            scores = scores_of_all(x, wide(vectors[target.offset : target.offset + target.count]), self.model.score)
            degree = self.log_degree[[number], : target.count].toarray()
            return scores + self.model.popularity[number] * torch.from_numpy(degree).to(scores)


def _cross_entropy(
    model: FactorTables, count: int, arrays: list[Tensor], x: Tensor, target: Tensor, vectors: Tensor
) -> Tensor:
    """Σ −log softmax over the links whose targets are of one type, which has ``count`` nodes.

    ``arrays``: :func:`_arrays_of` the type, on the device. ``x``, ``target`` [B, d]: head and relation joined, and the
    target's vector. ``vectors``: of the step's nodes. A sampled candidate counts for several nodes; the target itself is not
    among the candidates.
    """
    rows, tail, nodes, place, query, relation, degree, target_degree = arrays
    x, weight = x[rows], wide(model.popularity[relation])[:, None]
    others = wide(scores_of_all(x, vectors[place], model.score)) + weight * degree.to(weight.dtype)[query]
    positive = scores_of_pairs(x, target[rows], model.score)[:, None] + weight * target_degree.to(weight.dtype)[:, None]
    others = (others + math.log(count / len(nodes))).masked_fill(nodes == tail[:, None], -math.inf)
    return F.cross_entropy(torch.cat([positive, others], dim=1), torch.zeros_like(tail), reduction="sum")


def _arrays_of(chunk: FactorBatch, kind: int) -> list[np.ndarray]:
    """What the loss of the links whose targets are of one type reads: the links' rows in the chunk and their targets; the
    candidates and their places in ``chunk.nodes``; the links' rows of ``degree``, their relations, ``degree`` and
    ``target_degree``."""
    mine, candidates = np.flatnonzero(chunk.kind == kind), chunk.candidates[kind]
    relations, (queried, degree) = chunk.relation[mine], chunk.degree[kind]
    nodes = chunk.tail[mine], candidates, np.searchsorted(chunk.nodes, candidates)
    return [mine, *nodes, np.searchsorted(queried, relations), relations, degree, chunk.target_degree[mine]]


SOFTMAX, N3, RELATION, NODES = "softmax", "n3", "relation", "nodes"


@dataclass(frozen=True)
class FactorBatch(DividedBatch):
    """Links ``head``, ``relation``, ``tail`` int64 [B], global node numbers; ``kind`` int64 [B]: number of the tail's type.

    ``nodes`` int64 [n], ascending: all nodes that the step reads, as heads, tails or candidates.
    ``candidates``: for a type number, the global numbers of the candidates for targets of this type, all its nodes or a
    sample. ``target_degree`` float32 [B]: log of the number of training links into the tail, this link included.
    ``degree``: for a type number, the relations int64 [U], ascending, with targets of this type in the step,
    and float32 [U, candidates]: log(1 + training links of the relation into the candidate). ``terms``: names of the
    loss's terms.
    """

    head: np.ndarray
    relation: np.ndarray
    tail: np.ndarray
    kind: np.ndarray
    target_degree: np.ndarray
    nodes: np.ndarray
    candidates: Mapping[int, np.ndarray] = field(default_factory=dict)
    degree: Mapping[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    terms: tuple[str, ...] = (SOFTMAX,)

    ROWS = ("head", "relation", "tail", "kind", "target_degree")

    @property
    def weights(self) -> Mapping[str, float]:
        """The number of links, for each term."""
        return dict.fromkeys(self.terms, float(len(self)))

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays; arrays of the candidates by type number."""
        return super().arrays() | {f"candidates_{kind}": nodes for kind, nodes in self.candidates.items()}


def scoring_arrays(model: FactorTables, links: TrainingLinks) -> dict[str, np.ndarray]:
    """``relations`` [R, d] (RotatE's of modulus 1) and ``popularity`` [R] of the model, ``score`` [1], its place in
    :data:`~graphmill.systems.factor.model.SCORES`, and the training links."""
    arrays = {"relations": model.relation_vectors(), "popularity": model.popularity}
    values = {name: value.detach().float().cpu().numpy() for name, value in arrays.items()}
    return values | {"score": np.array([SCORES.index(model.score)], np.int64), **links.arrays()}


class FactorExport(ExportedScorer):
    """The model's score of the table's rows float32 [nodes, d]. ``arrays``: :func:`scoring_arrays`."""

    def __init__(self, arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> None:
        super().__init__(vectors, TrainingLinks.read(arrays, len(vectors)))
        dim = self.vectors.shape[1]
        self.relations = torch.from_numpy(array_of(arrays, "relations", (None, dim), "f"))
        count = len(self.relations)  # with the inverse relations, if the system has them
        self.popularity = array_of(arrays, "popularity", (count,), "f")
        number = int(array_of(arrays, "score", (1,), "i")[0])
        if not 0 <= number < len(SCORES):
            raise InputError(f"its score has the number {number}; there are {len(SCORES)}")
        self.score_name = SCORES[number]
        if count < len(self.links.outgoing) or (self.score_name in ("complex", "rotate") and dim % 2):
            raise InputError(f"its {count} relations of {dim} numbers are not those of its links")

    def scores(self, relation: int, heads: Tensor, targets: slice) -> Tensor:
        """:meth:`ExportedScorer.scores`."""
        x = joined(self.vectors[heads], self.relations[[relation]], self.score_name)
        degree = np.log1p(self.links.degrees(relation)).astype(np.float32) * self.popularity[relation]
        return scores_of_all(x, self.vectors[targets], self.score_name) + torch.from_numpy(degree)


scorer_of = FactorExport
