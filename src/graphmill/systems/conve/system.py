"""The system of ConvE: queries against every entity, on the triples of a typed graph."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.devices import part_bytes, wide
from graphmill.kernels.full_softmax import BLOCK_BYTES, Ragged, full_logistic_sum, full_softmax_sum
from graphmill.sampling.keyed import generator
from graphmill.sampling.negatives import corrupt_tails
from graphmill.systems.base_system import TableSystem
from graphmill.systems.conve.data import ConveBatch, ConveData, both_directions, smoothed_targets, triples_of
from graphmill.systems.conve.exported import ConveScorer, scoring_arrays
from graphmill.systems.conve.exported import scorer_of as scorer_of
from graphmill.systems.conve.model import ConvE, ConvEConfig
from graphmill.systems.conve.settings import ConveSettings
from graphmill.systems.conve.tracer import ConveTracer
from graphmill.training.contract import Compilable, Encoded, ParameterGroup, Phase, Term
from graphmill.training.planning import Part, Setup, ranking_part


class ConveSystem(TableSystem[ConvE]):
    """Everything random is keyed by ``settings.training.seed``. ``batching`` is "full": there are no messages."""

    algorithm_version = 3
    average = "micro"
    ranks_heads = True

    def __init__(self, graph: TypedGraph, settings: ConveSettings, batching: str) -> None:
        super().__init__(graph, settings)
        self.settings: ConveSettings = settings
        self.data = ConveData(graph)
        height, width = settings.model.shape
        sizes = settings.model.model_dump() | {"embedding_height": height, "embedding_width": width}
        self.config = ConvEConfig(self.data.num_entities, 2 * self.data.num_relations, **sizes)
        self.plan_steps(len(self.data.tails) if self.sampled else self.data.num_queries)
        self.targets = smoothed_targets(settings.objective.label_smoothing, self.data.num_entities)

    @property
    def sampled(self) -> bool:
        """Whether the loss uses a few random tails instead of all entities."""
        return self.settings.objective.negatives == "sampled"

    # ---------------------------------------------------------------- model

    def make_model(self) -> ConvE:
        """The network."""
        return ConvE(self.config)

    def parameter_groups(self, model: ConvE, phase: Phase) -> list[ParameterGroup]:
        """Weight decay acts only on the weights of the convolution and the linear layer."""
        dense = ("convolution.weight", "projection.weight")
        return self.groups(model, lambda name, _: name in dense)

    # ---------------------------------------------------------------- a step

    def step(self, phase: Phase, epoch: int, index: int) -> ConveBatch:
        """Rows of one shuffled order per epoch, in steps of even size: none is too small for its batch norm."""
        data, query, candidates = self.data, self.rows_of_step(epoch, index), None
        if self.sampled:
            labels, query = query, data.label_query[query]
            rng = generator(self.settings.training.seed, "negatives", epoch, index)
            count = self.settings.objective.negatives_per_positive
            negative = corrupt_tails(rng, query, data.label_keys, data.num_entities, count)
            candidates = np.column_stack((data.tails[labels], negative))
            row = column = np.zeros(0, np.int64)
        else:
            row, column = data.positives(query)
        head, relation = data.query_head[query], data.query_relation[query]
        return ConveBatch(head, relation, row, column, data.num_entities, self.settings.objective.loss, candidates)

    def encode(self, model: ConvE, batch: ConveBatch) -> Encoded:
        """The tower of the step's whole batch: its norms use all rows."""
        model.checkpointing = self.checkpointing
        return Encoded({"x": model(*self._tensors(batch.head, batch.relation))})

    def terms(self, model: ConvE, chunk: ConveBatch, encoded: Encoded | None) -> list[Term]:
        """The cross-entropy: of each score by itself (bce), or of each known tail among all scores (softmax)."""
        assert encoded is not None
        x = encoded.tensors["x"]
        if chunk.candidates is not None:
            return [Term(chunk.loss, self._among_candidates(model, chunk, chunk.candidates, x))]
        column, row = self._tensors(chunk.column, chunk.row)
        tails = Ragged(row, np.searchsorted(chunk.row, np.arange(len(chunk.head) + 1)))
        given = x, model.entities, column, tails, model.entity_bias
        if chunk.loss == "softmax":
            smoothing = self.settings.objective.label_smoothing
            total = full_softmax_sum(*given, smoothing=smoothing, parts=chunk.parts)
        else:
            one, zero = self.targets
            total = full_logistic_sum(*given, one=one, zero=zero, parts=chunk.parts)
        return [Term(chunk.loss, total)]

    def _among_candidates(self, model: ConvE, chunk: ConveBatch, candidates: np.ndarray, x: Tensor) -> Tensor:
        exists, some = self._tensors(candidates >= 0, np.maximum(candidates, 0))
        scores = wide(model.pair_scores(x, some))
        if chunk.loss == "softmax":
            return -torch.log_softmax(scores.masked_fill(~exists, -torch.inf), dim=1)[:, 0].sum()
        label = torch.zeros_like(scores)
        label[:, 0] = 1.0
        return ((F.softplus(scores) - label * scores) * exists).sum()

    # ---------------------------------------------------------------- evaluation and export

    def scorer(self, model: ConvE) -> ConveScorer:
        """Scores of relations 0 … M − 1 and of their inverses M … 2M − 1."""
        return ConveScorer(model, self.graph)

    def scoring(self, model: ConvE) -> dict[str, np.ndarray]:
        """The arrays for scores besides the exported vectors: :func:`graphmill.systems.conve.exported.scoring_arrays`."""
        return scoring_arrays(model, TrainingLinks.of_graph(self.graph))

    # ---------------------------------------------------------------- influence (training.contract.Traceable)

    def tracer(self, model: ConvE) -> ConveTracer:
        """A tracer: per-example gradients at the weights of ``model``."""
        smoothing = 0.0 if self.sampled else self.settings.objective.label_smoothing
        return ConveTracer(model, self.data, self.settings.objective.loss, smoothing)

    def traced_triples(self, split: str) -> np.ndarray:
        """Triples of a split, without inverses."""
        return self.data.triples if split == "train" else triples_of(self.graph, split)

    def traced_labels(self, triples: np.ndarray) -> np.ndarray:
        """The label of a triple's tail, and the label of its head as the tail of the inverse relation."""
        return both_directions(triples, self.data.num_relations).reshape(2, -1, 3)

    def compilables(self, model: ConvE) -> list[Compilable]:
        """Convolution and norms, which are many small operations. The rest is matrix products and one kernel."""
        return [Compilable(model, "hidden")]

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """The number of queries per step (triples, with sampled negatives)."""
        return ("triples" if self.sampled else "queries"), self.rows / self.steps_of_rows


def memory_parts(graph: TypedGraph, settings: ConveSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    m, o, entities, d = settings.model, settings.objective, graph.num_nodes, settings.model.embedding_dim
    batch = settings.step_size() // settings.acceleration.processes
    height, width = 2 * m.shape[0] - m.kernel_height + 1, m.shape[1] - m.kernel_width + 1
    maps = m.output_channels * height * width
    table = entities * (d + 1)
    kernels = m.output_channels * (m.kernel_height * m.kernel_width + 3) + 3 * d + 2
    held_out = float(sum(np.count_nonzero(graph.edges(r.index).split) for r in graph.relations))
    block = part_bytes(setup.device, BLOCK_BYTES)
    # Scores of a block, what the loss makes of them and the products' copies.
    scores = Part("scores of a block of queries", "loss", 4 * batch * entities, at_most=max(block, 64 * entities))
    if o.negatives == "sampled":
        scores = Part("vectors of the negatives", "loss", 4 * batch * (1 + o.negatives_per_positive) * d)
    return [
        Part(
            "embeddings, convolution and projection",
            "weights",
            table + 2 * len(graph.relations) * d + maps * d + kernels,
        ),
        Part("triples", "always", 2 * sum(r.edges for r in graph.relations), 40),
        # The maps, which their gradient overwrites, and the windows that they are made of.
        Part("feature maps", "kept", 2 * batch * maps),
        Part("gradient of the embeddings while it is added up", "kept", table),
        scores,
        ranking_part(held_out, entities),
        Part("vectors of an evaluation", "evaluation", 2 * table),
    ]
