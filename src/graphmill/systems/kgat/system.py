"""The system of KGAT: a phase on interactions ("cf") and a phase on facts ("kg"), each with its own optimizer.

Attention is recomputed from the current vectors at the start of every epoch after the first, and kept in the model's
buffer. Evaluation and export compute it from the current vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.errors import SettingsError
from graphmill.graph.interactions import knowledge_view
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.losses import fact_losses
from graphmill.kernels.propagation import SparseMatrix
from graphmill.kernels.table_rows import table_rows
from graphmill.kernels.translation import grouped_projection
from graphmill.systems.kgat.graph import (
    FACT_NORM,
    FACTS,
    TOGETHER,
    CollaborativeGraph,
    FactBatch,
    RankGraph,
    fitted_to_facts,
    node_bytes,
)
from graphmill.systems.kgat.model import Kgat
from graphmill.systems.kgat.settings import KgatSettings
from graphmill.systems.recommenders.memory import evaluation_part, pairs_part, sizes_of
from graphmill.systems.recommenders.sharded_product import ShardedMatrix
from graphmill.systems.recommenders.system import PairBatch, PairRows, RecommenderSystem
from graphmill.training.contract import Encoded, ParameterGroup, Phase, Term
from graphmill.training.planning import Part, Setup
from graphmill.training.processes import Ranks
from graphmill.training.sharding import RowExchange, Shards, divide

NORM = "norm"
NODES, NUMBERS = "nodes", "numbers"
"""Where tables are divided, an encoding says which nodes' rows it has."""
CF, KG = "cf", "kg"
KG_REGULARISATION = 0.00001
"""λ of ½‖·‖² of the projected vectors in the knowledge phase, as published."""


class KgatSystem(RecommenderSystem[Kgat]):
    """See :class:`graphmill.systems.kgat.model.Kgat`."""

    settings: KgatSettings
    term_names = (NORM,)
    draw = "users"  # and one item of each, as published
    negatives = "all"
    algorithm_version = 3

    def __init__(self, graph: TypedGraph, settings: KgatSettings, batching: str) -> None:
        super().__init__(graph, settings, batching)
        self.facts = CollaborativeGraph(self.view, knowledge_view(graph), graph.num_nodes)
        self.mine: RankGraph | None = None
        self._weighted: tuple[Tensor, int, SparseMatrix | ShardedMatrix] | None = None
        (cf,), o, pairs = self.phases, settings.objective, self.sampler.num_pairs
        if o.mask_pairs and 2 * cf.batch_size > pairs:
            raise SettingsError(
                f"objective.mask_pairs leaves a step's {cf.batch_size:,} pairs out of its propagation, more than half of "
                f"the {pairs:,} there are; lower acceleration.batch_size to {pairs // 2:,} or less, or set mask_pairs: false"
            )
        self.phases = [replace(cf, name=CF)]
        size = o.kg_batch_size or 2 * cf.batch_size
        steps = settings.training.steps_per_epoch or len(self.facts) // size + 1
        self.phases.append(Phase(KG, steps, size, 2 * cf.base_batch_size))

    # ---------------------------------------------------------------- model

    def make_model(self) -> Kgat:
        """The network, with the weights of the first epoch."""
        m, counts = self.settings.model, [kind.count for kind in self.graph.node_types]
        first = torch.from_numpy(self.facts.first_values.copy())
        layers = m.layer_dims, m.aggregation, m.message_dropout, m.leaky_slope, m.layer_length
        return Kgat(counts, self.facts.num_relations, first, m.embedding_dim, *layers)

    def shard(self, ranks: Ranks) -> None:
        """Divides the nodes of all types into ranges, and with them each table and the attention of the edges."""
        self._nodes_of = divide(node_bytes(self.facts, self.settings.model.embedding_dim), ranks.world)
        bounds = {
            f"tables.{number}": tuple(min(max(b - kind.offset, 0), kind.count) for b in self._nodes_of)
            for number, kind in enumerate(self.graph.node_types)
        }
        bounds["attention"] = tuple(int(self.facts.indptr[b]) for b in self._nodes_of)
        self.shards = Shards(ranks, bounds)

    def to(self, device: torch.device) -> None:
        """Moves the graph to the device; with sharded tables, only the edges of this rank's nodes."""
        super().to(device)
        self.facts.to(device)
        if self.shards is not None:
            self.mine = RankGraph(self.facts, self.shards.ranks, self._nodes_of, device)
            self.facts.release()
        self._weighted = None

    def parameter_groups(self, model: Kgat, phase: Phase) -> list[ParameterGroup]:
        """Both phases train the nodes' vectors, each with its own moments; weight decay acts on the layers."""
        prefixes = ("tables.", "layers.") if phase.name == CF else ("tables.", "translations", "projections")
        return self.groups(model, lambda name, p: p.dim() == 2 and name.startswith("layers."), prefixes)

    def row_keys(self, model: Kgat) -> dict[str, tuple[str, list[str]]]:
        """Keys of tables are node type and id (with MF's labels), keys of relations are names; layers have no row
        keys."""
        ids = self.ids("all")
        out: dict[str, tuple[str, list[str]]] = {name: (name, []) for name, _ in model.named_parameters()}
        for number, kind in enumerate(self.graph.node_types):
            label = {self.view.user_offset: "user", self.view.item_offset: "item"}.get(kind.offset, kind.name)
            out[f"tables.{number}"] = (label, ids[kind.offset : kind.offset + kind.count])
        return out | {name: (name, self.facts.names) for name in ("translations", "projections")}

    def fold_in_rows(self, model: Kgat, missing: Mapping[str, np.ndarray]) -> None:
        """The vectors that fit the facts and interactions of the new nodes best."""
        super().fold_in_rows(model, missing)
        offsets = [self.graph.node_types[int(name.removeprefix("tables."))].offset for name in missing]
        new = np.concatenate([rows + offset for rows, offset in zip(missing.values(), offsets, strict=True)])
        fitted = fitted_to_facts(model, self.facts, new, model.nodes().detach().numpy()[new])
        parts = np.split(fitted, np.cumsum([len(rows) for rows in missing.values()])[:-1])
        for (name, rows), part in zip(missing.items(), parts, strict=True):
            model.get_parameter(name).data[torch.from_numpy(rows)] = torch.from_numpy(part)

    def begin_epoch(self, model: Kgat, epoch: int) -> None:
        """Computes the attention of this epoch from the current vectors."""
        if epoch:
            model.attention.copy_(self._part.attention(model))

    # ---------------------------------------------------------------- a step

    def step(self, phase: Phase, epoch: int, index: int) -> Any:
        """Training triples of users and items, or facts."""
        if phase.name == CF:
            batch = super().step(phase, epoch, index)
            batch = replace(batch, nodes=sorted_unique(np.concatenate([n.reshape(-1) for n in self._nodes(batch)])))
            if not self.settings.objective.mask_pairs:
                return batch
            users, items = batch.users + self.view.user_offset, batch.positives + self.view.item_offset
            return replace(batch, masked=self.facts.interactions(users, items))
        key = (self.settings.training.seed, KG, epoch, index)
        return FactBatch(*self.facts.draw(phase.batch_size, *key))

    def candidates(self) -> np.ndarray:
        """Items with a training interaction or a fact, from which their vectors follow."""
        first, facts = self.view.item_offset, knowledge_view(self.graph)
        known = self.view.train_by_item.counts > 0
        for ends in (facts.head - first, facts.tail - first):
            known[ends[(ends >= 0) & (ends < len(known))]] = True
        return np.flatnonzero(known)

    def _nodes(self, batch: PairBatch) -> tuple[np.ndarray, np.ndarray]:
        """Global numbers of a batch's users [B], and of their items and negatives [B, 1 + k]."""
        return batch.users + self.view.user_offset, batch.items + self.view.item_offset

    def encode(self, model: Kgat, batch: Any) -> Encoded:
        """kg: the trainable vectors of all nodes; cf: those of the batch's nodes, and every layer's result.

        On a CPU the layers look up the rows, so there is no gradient of the size of all nodes, and the last layer
        computes only these rows. With sharded tables: for the nodes that this rank's part of the batch reads, and their
        numbers.
        """
        states = [model.nodes()]
        if not isinstance(batch, FactBatch):
            model.checkpointing = self.checkpointing
            matrix = self._matrix(model) if model.training else self._current_matrix(model)
            if batch.masked is not None:
                matrix = self._part.without(matrix, self._tensor(batch.masked))  # type: ignore[arg-type]
            states = model(states[0], matrix, None if self.shards else self._tensor(batch.nodes))
        names = [NODES, *(f"layer{n}" for n in range(len(states) - 1))]
        if self.shards is None:
            return Encoded(dict(zip(names, states, strict=True)))
        if isinstance(batch, FactBatch):
            read: tuple[np.ndarray, ...] = batch.heads, batch.tails, batch.wrong_tails
        else:  # with a small batch, some ranks have no rows
            read = self._nodes(batch) if len(batch) else (np.zeros(0, np.int64),)
        wanted = sorted_unique(np.concatenate([n.reshape(-1) for n in read]))
        exchange = RowExchange(self.shards.ranks, self._nodes_of, wanted, self.device)
        fetched = {name: exchange.fetch(state) for name, state in zip(names, states, strict=True)}
        return Encoded({NUMBERS: torch.from_numpy(wanted), **fetched})

    @property
    def _part(self) -> CollaborativeGraph | RankGraph:
        """The edges that this process computes."""
        return self.facts if self.mine is None else self.mine

    def vectors(self, model: Kgat) -> tuple[Tensor, Tensor]:
        """Final vectors of users and items, with the attention of the current vectors."""
        rows, view = torch.from_numpy(self.all_vectors(model)).to(self.device), self.view
        return (
            rows[view.user_offset : view.user_offset + view.num_users],
            rows[view.item_offset : view.item_offset + view.num_items],
        )

    def _matrix(self, model: Kgat) -> SparseMatrix | ShardedMatrix:
        """The graph with the weights in the buffer; sorted once per epoch."""
        buffer, version = model.attention, model.attention._version
        if self._weighted is None or self._weighted[0] is not buffer or self._weighted[1] != version:
            self._weighted = (buffer, version, self._part.matrix.with_values(buffer.detach().clone()))
        return self._weighted[2]

    def _current_matrix(self, model: Kgat) -> SparseMatrix | ShardedMatrix:
        """The graph with the attention of the current vectors, with which the next epoch would start."""
        return self._part.matrix.with_values(self._part.attention(model))

    def terms(self, model: Kgat, chunk: Any, encoded: Encoded | None) -> list[Term]:
        """cf: the loss of pairs and the vectors' norm; kg: softplus(g⁺ − g⁻), g = ‖W_r e_h + e_r − W_r e_t‖², and a norm."""
        assert encoded is not None
        if not isinstance(chunk, FactBatch):
            return self._triple_terms(model, chunk, encoded)
        # One product per relation for all heads, tails and false tails. A fact's three rows are adjacent: facts are
        # sorted by relation, so the rows are too.
        rows = np.stack((chunk.heads, chunk.tails, chunk.wrong_tails), 1).reshape(-1)
        nodes, numbers = encoded.tensors[NODES], encoded.tensors.get(NUMBERS)
        if numbers is not None:
            rows = np.searchsorted(numbers.numpy(), rows)
        bounds = 3 * np.searchsorted(chunk.relations, np.arange(self.facts.num_relations + 1))
        projected = grouped_projection(table_rows(nodes, self._tensor(rows)), bounds.tolist(), model.projections)
        projected = projected.view(len(chunk), 3, projected.shape[1])
        loss, norm = fact_losses(projected, model.translations, self._tensor(chunk.relations))
        return [Term(FACTS, loss), Term(FACT_NORM, norm, KG_REGULARISATION)]

    def _triple_terms(self, model: Kgat, chunk: PairBatch, encoded: Encoded) -> list[Term]:
        """The vectors of the chunk's nodes, each once, scaled to length 1 in every layer."""
        assert chunk.nodes is not None, "every step of this phase names its nodes"
        numbers = encoded.tensors.get(NUMBERS)
        states = [tensor for name, tensor in encoded.tensors.items() if name != NUMBERS]
        looked_up = chunk.nodes if numbers is None else numbers.numpy()
        users, items = (np.searchsorted(looked_up, nodes) for nodes in self._nodes(chunk))
        mine = sorted_unique(np.concatenate((users, items.reshape(-1))))
        if len(mine) < len(states[0]):
            users, items = np.searchsorted(mine, users), np.searchsorted(mine, items)
            states = [table_rows(state, self._tensor(mine)) for state in states]
        rows = model.final(states)
        loss, norm = self.pair_losses(PairRows(rows, rows, *self._tensors(users, items)))
        return [Term(self.loss, loss), Term(NORM, norm, self.settings.objective.regularisation)]

    # ---------------------------------------------------------------- export

    def all_vectors(self, model: Kgat) -> np.ndarray:
        """fp32 [N, d]: the final vectors of all nodes, entities included."""
        training = model.training
        model.eval()
        with torch.no_grad():
            matrix = self._current_matrix(model)  # before the copy of all vectors, which the attention makes too
            rows = model.final(model(model.nodes(), matrix)).float()
            rows = self.shards.whole(self._nodes_of, rows) if self.shards else rows
        model.train(training)
        return np.asarray(rows.cpu().numpy())

    @property
    def embedding_width(self) -> int:
        """The width of the node's vector and every layer's result."""
        m = self.settings.model
        return m.embedding_dim + sum(m.layer_dims)

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """The number of edges of the graph, or of facts."""
        return ("edges", float(len(self.facts))) if phase.name == CF else ("facts", float(phase.batch_size))


_BYTES_PER_EDGE = 190
"""Ends and relation, the matrix in both orders with and without attention, edges by relation, keys, the buffer."""
_BYTES_TO_MASK = 24
"""Keys, places in the transpose, and the step's weights in both orders."""


def memory_parts(graph: TypedGraph, settings: KgatSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    m, o, d, k, nodes = (
        settings.model,
        settings.objective,
        settings.model.embedding_dim,
        settings.model.embedding_dim,
        graph.num_nodes,
    )
    knowledge = knowledge_view(graph)
    relations, edges = 2 + 2 * len(knowledge.names), 2 * (sizes_of(graph).edges + len(knowledge))
    dims = [d, *m.layer_dims]
    wide, both = 2 if m.aggregation == "graphsage" else 1, m.aggregation == "bi_interaction"
    layers = sum((wide * a + 1) * b + both * (a + 1) * b for a, b in pairwise(dims))
    # The nodes that a step looks up: on every process those of the whole batch. The last layer computes only these.
    looked_up = min(settings.step_size() * (2 + o.negatives_per_positive), nodes)
    states = 0.0
    for place, (a, b) in enumerate(pairwise(dims), 1):
        # The products' inputs, each result before and after its ReLU, the dropout's mask, messages.
        rows = looked_up if setup.on_cpu and place == len(m.layer_dims) else nodes
        states += rows * ((wide + 1 + both) * a + (4 + 2 * both) * b)
    layer = nodes * max(a + b for a, b in pairwise(dims))
    # Before the vectors of an evaluation, the attention: projected heads and tails and what translates them, for one
    # relation or a group, and logits.
    evaluated = max(nodes * 3 * sum(dims), 2 * max(2 * nodes, TOGETHER) * (d + k)) + 3 * edges
    return [
        Part("embeddings and layers", "weights", nodes * d + layers + relations * (k + d * k)),
        Part("edges and attention", "always", edges, _BYTES_PER_EDGE + _BYTES_TO_MASK * o.mask_pairs),
        # The second phase's optimizer has moments of the vectors, too.
        Part("moments of the knowledge phase", "always", 2 * nodes * d),
        Part("states of the layers", "kept", states + layer, recomputed=nodes * sum(dims[:-1]) + layer),
        # Of what is looked up: each state, its gradient, the vector that is scaled, and the vector's gradient.
        Part("rows that a step looks up", "kept", looked_up * sum(dims) * 4),
        Part("gradients before they are added up", "kept", 3 * nodes * d),
        pairs_part(settings, sum(dims), setup),
        evaluation_part(evaluated),
    ]
