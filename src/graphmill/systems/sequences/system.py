"""The system of SASRec and TiSASRec: next-item prediction over windows of sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.evaluation.ranking.recommendation import ExcludeSeen, KnownItems, excluded, top_k
from graphmill.graph.histories import Histories
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.full_softmax import full_softmax_sum
from graphmill.kernels.products import product
from graphmill.kernels.sequence_attention import Bucket
from graphmill.kernels.table_rows import table_rows
from graphmill.sampling.ranges import ranges
from graphmill.systems.base_system import BaseSystem, blocks_of
from graphmill.systems.sequences.data import NEXT_ITEM, SequenceBatch, SequenceData, SequenceSampler, Times
from graphmill.systems.sequences.evaluate import HistoryScorer, SequenceEvaluator
from graphmill.systems.sequences.fold_in import fold_in
from graphmill.systems.sequences.hyper_connections import INITIAL_GATE, SINKHORN_ITERATIONS, STREAMS, HyperConnection
from graphmill.systems.sequences.layers import SequenceInputs
from graphmill.systems.sequences.layout import BUCKET_OVERHEAD, LAUNCHED_BUCKET_OVERHEAD, Layout, lay_out
from graphmill.systems.sequences.next_item_losses import expected_log_counts, item_logistic_sum, sampled_softmax_sum
from graphmill.systems.sequences.sasrec import SASRec, TiSASRec
from graphmill.systems.sequences.settings import SasrecSettings, TisasrecModel
from graphmill.training.contract import Compilable, EmbeddingBlock, Encoded, ParameterGroup, Phase, Term
from graphmill.training.planning import Part, Setup

ENCODE_USERS = 512
"""The number of histories encoded at a time in evaluation and export."""
LAYER_NORM_EPS = 1e-8
"""Added to the variance in LayerNorm, as in both papers' code."""


class SequenceModule(nn.Module):
    """The module that a checkpoint stores: the network, whose item table scores the items."""

    def __init__(self, network: SASRec) -> None:
        super().__init__()
        self.network = network


class SequenceSystem(BaseSystem[SequenceModule]):
    """The system of both systems; ``settings.system`` chooses one. ``batching`` is "full": a step has whole windows."""

    algorithm_version = 2

    def __init__(self, graph: TypedGraph, settings: SasrecSettings, batching: str) -> None:
        super().__init__(graph, settings)
        self.settings: SasrecSettings = settings
        m = settings.model
        unit = m.time_unit if isinstance(m, TisasrecModel) else ""
        self.data = SequenceData(graph, m.max_length, settings.objective.windows, unit)
        size = settings.step_size()
        self.sampler = SequenceSampler(self.data, settings.objective, size, settings.training.seed)
        steps = settings.training.steps_per_epoch or self.sampler.steps_per_epoch
        self.phases = [Phase("train", steps, size, settings.base_batch)]
        logs = expected_log_counts(torch.from_numpy(self.sampler.probability), settings.objective.drawn)
        self.log_expected = logs.float()
        self.evaluator = SequenceEvaluator(self.data.sequences, settings)

    # ---------------------------------------------------------------- model

    def make_model(self) -> SequenceModule:
        """The network."""
        m = self.settings.model
        sizes = self.data.sequences.num_items, m.max_length, m.embedding_dim, m.num_blocks, m.num_heads
        parts = *sizes, m.dropout, m.norm, LAYER_NORM_EPS
        mhc = self._connection if m.mhc != "none" else None
        if isinstance(m, TisasrecModel):
            return SequenceModule(TiSASRec(*parts, m.time_span, mhc))
        return SequenceModule(SASRec(*parts, mhc))

    def _connection(self, layer: int) -> HyperConnection:
        m = self.settings.model
        return HyperConnection(m.embedding_dim, STREAMS, m.mhc, SINKHORN_ITERATIONS, INITIAL_GATE, layer)

    def to(self, device: torch.device) -> None:
        """Moves the sampler's probabilities to the device."""
        super().to(device)
        self.log_expected = self.log_expected.to(device)

    def parameter_groups(self, model: SequenceModule, phase: Phase) -> list[ParameterGroup]:
        """Weight decay acts on matrices, not on tables, biases, norms and the maps of hyper-connections."""
        return self.groups(
            model, lambda name, parameter: parameter.dim() >= 2 and ".blocks." in name and ".mhc." not in name
        )

    def row_keys(self, model: SequenceModule) -> dict[str, tuple[str, list[str]]]:
        """Keys of the item table are item ids; keys of positions are distances from the newest; other parameters have
        no row keys."""
        s = self.data.sequences
        ids = self.graph.node_table().column("id").slice(s.item_offset, s.num_items).to_pylist()
        newest_first = [str(i) for i in range(self.settings.model.max_length - 1, -1, -1)]
        keys = {"items": ids} | dict.fromkeys(("positions", "position_keys", "position_values"), newest_first)
        return {name: (name, keys.get(name.split(".")[1], [])) for name, _ in model.named_parameters()}

    # ---------------------------------------------------------------- a step

    def step(self, phase: Phase, epoch: int, index: int) -> SequenceBatch:
        """Windows, their next items and negatives, with their layout: everything that threads can prepare ahead."""
        batch = replace(self.sampler.step(epoch, index), bucket_overhead=self._bucket_overhead)
        batch.layout  # noqa: B018 - made here, kept with the batch
        return batch

    @property
    def _bucket_overhead(self) -> int:
        return BUCKET_OVERHEAD if self.device.type == "cpu" else LAUNCHED_BUCKET_OVERHEAD

    def encode(self, model: SequenceModule, batch: SequenceBatch) -> Encoded:
        """The state after every interaction, in the rows of the batch's layout: [R, d]."""
        model.network.gradient_checkpointing = self.checkpointing
        return Encoded({"states": model.network(self.inputs(batch.items, batch.times, batch.lengths, batch.layout))})

    def terms(self, model: SequenceModule, chunk: SequenceBatch, encoded: Encoded | None) -> list[Term]:
        """The next-item loss."""
        assert encoded is not None
        return [Term(NEXT_ITEM, self._loss(model, chunk, encoded.tensors["states"]))]

    def _loss(self, model: SequenceModule, chunk: SequenceBatch, states: Tensor) -> Tensor:
        table = model.network.items.weight
        objective = self.settings.objective
        rows, target = self._tensors(chunk.layout.place[chunk.chosen], chunk.targets[chunk.chosen])
        states = table_rows(states, rows)
        if objective.loss == "softmax":
            return full_softmax_sum(states, table, target)
        if objective.loss == "sampled_softmax":
            sampled = self._tensor(chunk.sampled)
            logs = self.log_expected
            return sampled_softmax_sum(states, table, target, sampled, logs[sampled], logs[target])
        return item_logistic_sum(states, table, target, self._tensor(chunk.negatives[chunk.chosen]))

    def inputs(
        self, items: np.ndarray, times: np.ndarray | None, lengths: np.ndarray, layout: Layout
    ) -> SequenceInputs:
        """The network's inputs from interactions int64 [N], their scaled times, and the length of each sequence."""
        ends = np.repeat(np.cumsum(lengths), lengths)
        positions = self.settings.model.max_length - (ends - np.arange(len(items)))
        padded = np.zeros((2 if times is None else 3, layout.rows), np.int64)
        padded[:, layout.place] = (items, positions) if times is None else (items, positions, times)
        place, position, *time = self._tensors(*padded)
        buckets = [Bucket(*map(int, bucket)) for bucket in layout.buckets]
        return SequenceInputs(place, position, time[0] if time else None, buckets)

    # ---------------------------------------------------------------- evaluation and export

    def last_states(
        self,
        model: SequenceModule,
        items: np.ndarray,
        times: Times,
        users: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
    ) -> Tensor:
        """fp32 [B, d]: each user's state after ``items[start : end]``."""
        lengths = np.minimum(ends - starts, self.settings.model.max_length)
        rows, layout = ranges(ends - lengths, ends), lay_out(lengths, self._bucket_overhead)
        inputs = self.inputs(items[rows], times(rows, np.repeat(users, lengths)), lengths, layout)
        states: Tensor = model.network(inputs)
        return states[self._tensor(layout.last)].float()

    def scorer(self, model: SequenceModule) -> HistoryScorer:
        """Next-item scores from each user's whole history."""
        return HistoryScorer(self.data.sequences, self.score_at(model, lambda: None))

    def evaluate(self, model: SequenceModule, split: str, *, final: bool, poll: Callable[[], None]) -> dict[str, float]:
        """Full-ranking metrics; with ``final`` also metrics without ties of time, and the baselines."""
        return self.evaluator.evaluate(self.score_at(model, poll), split, final=final)

    def score_at(self, model: SequenceModule, poll: Callable[[], None]) -> Callable[[np.ndarray, np.ndarray], Tensor]:
        """Users int64 [b] and the ends of their histories int64 [b] → scores of all items [b, I]."""
        table = model.network.items.weight.detach().float()

        def score(users: np.ndarray, ends: np.ndarray) -> Tensor:
            poll()
            with torch.no_grad():
                return product(self.all_states(model, users, ends), table.T)

        return score

    def held_out(self, split: str) -> int:
        """The number of users with a held-out item."""
        return len(self.evaluator.split(split).users)

    @cached_property
    def candidates(self) -> np.ndarray:
        """Int64, ascending: items with a training interaction. Others are never recommended: their vectors are random."""
        return np.flatnonzero(self.data.popularity > 0)

    def recommend(
        self, model: SequenceModule, k: int, exclude_seen: ExcludeSeen = "auto"
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For every user with a history, the ``k`` best next items. ``auto``: items of the history are left out, unless
        users repeat items (:attr:`Sequences.repeats`).

        Users int64 [U] and items int64 [U, k] are global node numbers, best first (−1: none left); scores [U, k].
        """
        s = self.data.sequences
        users = np.flatnonzero(np.diff(s.indptr) > 0)
        scorer = self.scorer(model)
        exclude = exclude_seen == "always" or (exclude_seen == "auto" and not s.repeats)
        seen = excluded(KnownItems(s.indptr, s.items), s.disliked, exclude)
        items, scores = top_k(lambda u: scorer.score_targets(0, u), users, s.num_items, seen, k, self.candidates)
        return users + s.user_offset, np.where(items >= 0, items + s.item_offset, -1), scores

    def fold_in(
        self, model: SequenceModule, histories: Histories, k: int, exclude_seen: ExcludeSeen = "auto"
    ) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """:func:`graphmill.systems.sequences.fold_in.fold_in`."""
        return fold_in(self, model, histories, k, exclude_seen)

    def all_states(self, model: SequenceModule, users: np.ndarray, ends: np.ndarray) -> Tensor:
        """fp32 [B, d]: each user's state after the interactions before ``ends`` (positions in the flat sequences), computed
        in blocks of users."""
        s, blocks = self.data.sequences, []
        for start in range(0, len(users), ENCODE_USERS):
            block, last = users[start : start + ENCODE_USERS], ends[start : start + ENCODE_USERS]
            blocks.append(self.last_states(model, s.items, self.data.times, block, s.indptr[block], last))
        return torch.cat(blocks)

    def health(self, model: SequenceModule) -> dict[str, float]:
        """Participation ratio, mean cosine and rank of the item table."""
        items = model.network.items.weight.detach().float().cpu().numpy()
        return self.health_of(items, np.zeros(len(items), np.int64))

    rotation_keeps_scores = True
    """Scores are dot products of the exported vectors."""

    def embeddings(self, model: SequenceModule) -> Iterator[EmbeddingBlock]:
        """Vectors of items: the table. Vectors of users: the state after their whole history (zero without interactions).
        Nodes of other types get the mean of the items."""
        model.eval()
        s = self.data.sequences
        items = model.network.items.weight.detach().float().cpu().numpy()
        rows = np.tile(items.mean(0), (self.graph.num_nodes, 1))
        rows[s.item_offset : s.item_offset + s.num_items] = items
        users = rows[s.user_offset : s.user_offset + s.num_users]
        users[:] = 0
        active = np.flatnonzero(np.diff(s.indptr) > 0)
        with torch.no_grad():
            for start in range(0, len(active), ENCODE_USERS):
                part = active[start : start + ENCODE_USERS]
                users[part] = self.all_states(model, part, s.indptr[part + 1]).cpu().numpy()
        return blocks_of(rows)

    def compilables(self, model: SequenceModule) -> list[Compilable]:
        """The feed-forward layers, which are dense and row-wise."""
        return [Compilable(block.feed_forward, "forward") for block in model.network.blocks]

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """The number of predicted interactions."""
        targets = int((self.data.stop - self.data.start - 1).sum())
        return "interactions", targets / self.sampler.steps_per_epoch


_REMEDY = "lower acceleration.batch_size, model.max_length or model.embedding_dim"


def memory_parts(graph: TypedGraph, settings: SasrecSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    m, o, d, blocks = settings.model, settings.objective, settings.model.embedding_dim, settings.model.num_blocks
    sequences = settings.step_size() / settings.acceleration.processes
    lengths, items, interactions = _windows(graph, m.max_length, o.windows)
    rows, attended = sequences * lengths.mean(), sequences * (lengths**2.0).mean()
    span = m.time_span if isinstance(m, TisasrecModel) else 0
    streams = STREAMS if m.mhc != "none" else 1
    tables = (items + m.max_length * (2 if span else 1) + 2 * span) * d
    # Per block and row: norms, q, k, v, attention, residuals, feed-forward's two products, masks. Per block, pair of rows
    # and head: attention weights, their dropout and mask; with times, what is added to them.
    mask = 1.0 if setup.on_cpu else 0.25  # numbers: on a CPU torch keeps factors
    kept = rows * d * (14.5 + 2 * mask + 6 * (streams - 1)) + attended * m.num_heads * ((5 if span else 2) + mask)
    scores = {"softmax": 0.25 * rows * items + 3 * rows * d, "sampled_softmax": 3.0 * rows * o.drawn}
    pairs = 2 * rows * d * (2 + o.drawn)
    # The rows of steps with this many windows have a standard deviation of more than a hundredth of their mean.
    uneven = bool(sequences < len(lengths) and lengths.std() > 0.01 * lengths.mean() * sequences**0.5)
    return [
        Part("embeddings and blocks", "weights", tables + blocks * (6 * d * d + 12 * d)),
        Part("interactions", "always", interactions, 48),
        Part("states of the blocks", "kept", blocks * kept, recomputed=rows * d + kept, uneven=uneven, remedy=_REMEDY),
        Part("states of the sequences and their gradients", "kept", 4 * rows * d, uneven=uneven, remedy=_REMEDY),
        Part("scores of the loss", "loss", scores.get(o.loss, pairs), uneven=uneven, remedy=_REMEDY),
        Part("states and scores of an evaluation", "evaluation", ENCODE_USERS * (lengths.mean() * 8 * d + 4 * items)),
    ]


def _windows(graph: TypedGraph, longest: int, which: str) -> tuple[np.ndarray, int, int]:
    """Lengths of the training windows, the number of items, and the number of interactions."""
    relation = max(graph.relations, key=lambda r: r.edges)
    edges = graph.edges(relation.index)
    train = np.asarray(edges.src)[np.asarray(edges.split) == 0]
    windows = np.bincount(train) - 1
    windows = windows[windows > 0]
    if which == "last":
        windows = np.minimum(windows, longest)
    else:
        full, rest = windows // longest, windows % longest
        windows = np.concatenate([np.full(int(full.sum()), longest), rest[rest > 0]])
    return windows.astype(float) if len(windows) else np.ones(1), graph.node_type(relation.target).count, len(train)
