"""What the engine and a recipe promise each other.

A recipe says only what differs between systems; the engine owns everything that does not. Three ideas carry the rest:

* batches are a pure function of (phase, epoch, index), so resuming is an integer;
* losses are sums with weights known before the forward, so accumulation and several ranks give the big-batch gradient;
* what the chunks of a step share is encoded once, and backpropagated through once ("split-graph backward").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from torch import Tensor, nn

if TYPE_CHECKING:
    from graphmill.training.processes import Ranks
    from graphmill.training.settings import TrainingSettings
    from graphmill.training.sharding import Shards


@dataclass(frozen=True)
class Phase:
    """One kind of optimizer step. ``batch_size / base_batch_size`` is the k of learning-rate scaling.

    ``training``: settings whose optimizer, rate and decay the phase has in place of the run's.
    """

    name: str
    steps_per_epoch: int
    batch_size: int = 1
    base_batch_size: int = 1
    training: TrainingSettings | None = None


@dataclass(frozen=True)
class Term:
    """One part of the loss: the engine adds ``coefficient × sum / total weight`` over micro-batches and ranks.

    ``sum`` is a 0-d fp32 tensor; ``weight`` is this micro-batch's share of ``StepBatch.weights[name]``.
    """

    name: str
    sum: Tensor
    weight: float
    coefficient: float = 1.0


@dataclass
class Encoded:
    """What all chunks of a group share, by name: detached for the loss, then backpropagated through once."""

    tensors: dict[str, Tensor]


class StepBatch(Protocol):
    """The data of one optimizer step, before or after sharding and splitting. Holds arrays, no model state."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Total weight of each term in this batch; known before any forward."""

    @property
    def replicated(self) -> bool:
        """True when every rank encodes the same thing (a full graph): then the encoding's gradient is reduced."""

    def groups(self) -> Sequence[StepBatch]:
        """The parts with an encoding of their own: [self], or the micro-batches of a sampled mode."""

    def split(self, parts: int) -> Sequence[StepBatch]:
        """Chunks of the loss, at most ``parts``, none empty, ragged tail included."""

    def shard(self, rank: int, world: int) -> StepBatch:
        """This rank's part; may be empty. The weights of all shards add up to the whole's."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything needed to look at the batch afterwards; saved when it made the loss non-finite."""


class Scorer(Protocol):
    """Scores of every candidate target: what ranking, recommendation and influence are written against."""

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """``heads`` int64 [B] → scores fp32 [B, candidates of the relation]."""


@dataclass(frozen=True)
class EmbeddingBlock:
    """Consecutive rows of the exported embedding: ``start`` is the global node number of the first."""

    start: int
    vectors: np.ndarray


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters of a phase that share a weight decay: ``decay`` times the setting."""

    names: list[str]
    parameters: list[nn.Parameter]
    decay: float = 1.0


ENCODING, LOSS, GRADIENTS = "the encoding", "the loss", "adding up the gradients"
"""Where in a step memory can run out."""


@dataclass
class Execution:
    """The rungs of the shrink ladder: sizes that change memory and time but never the gradient."""

    loss_chunks: int = 1
    checkpointing: bool = False
    history: list[str] = field(default_factory=list)
    at: str = ""
    """Where the step is: :data:`ENCODING`, :data:`LOSS` or "adding up the gradients"."""

    def sizes(self) -> dict[str, int | bool]:
        """The rungs as plain values."""
        return {"loss_chunks": self.loss_chunks, "checkpointing": self.checkpointing}


@dataclass(frozen=True)
class Compilable:
    """A function that a step really calls: ``owner.attribute`` is replaced by its compiled form."""

    owner: Any
    attribute: str


class Recipe(Protocol):
    """One system, as the engine sees it. ``data`` is whatever the recipe's own loader made of the typed graph."""

    name: str
    algorithm_version: int
    phases: Sequence[Phase]
    shards: Shards | None
    """Which rows of the tables this process holds, once :meth:`shard` has divided them; None: all."""

    def shard(self, ranks: Ranks) -> None:
        """Divide the graph and the tables by rows over the ranks, before the recipe goes to its device."""

    def build(self, execution: Execution) -> nn.Module:
        """The model, initialised from the seed, on the CPU."""

    def to(self, device: Any) -> None:
        """Move constants (graph, features) to the device."""

    def parameter_groups(self, model: nn.Module, phase: Phase) -> list[ParameterGroup]:
        """What the phase's optimizer updates."""

    def row_keys(self, model: nn.Module) -> dict[str, tuple[str, list[str]]]:
        """Parameter name → (a label stable between graphs, its rows' keys or []), for ``init_from`` by node id."""

    def begin_epoch(self, model: nn.Module, epoch: int) -> None:
        """State that changes once an epoch (KGAT's attention) goes into persistent buffers here."""

    def step(self, phase: Phase, epoch: int, index: int) -> StepBatch:
        """Pure: random numbers are keyed by (seed, phase, epoch, index, stream)."""

    def encode(self, model: nn.Module, batch: Any) -> Encoded | None:
        """What the chunks of a group share; None if nothing."""

    def terms(self, model: nn.Module, chunk: Any, encoded: Encoded | None) -> list[Term]:
        """The loss terms of a chunk; delicate parts in fp32."""

    def scorer(self, model: nn.Module) -> Scorer:
        """Scores for ranking, from the model in eval mode."""

    def evaluate(self, model: nn.Module, split: str, *, final: bool, poll: Callable[[], None]) -> dict[str, float]:
        """Metrics on a split ("valid", "test"), unrounded; calls ``poll`` often, which may raise to stop.

        With several processes every rank calls it at the same time; ``evaluation.ranking.shared_queries`` says which part of
        the queries is whose, and every rank returns the figures of the whole.
        """

    def held_out(self, split: str) -> int:
        """How much ``evaluate`` has to ask in a split; 0: nothing, and it can choose no epoch."""

    def health(self, model: nn.Module) -> dict[str, float]:
        """Cheap figures that show a collapse while training."""

    def embeddings(self, model: nn.Module) -> Iterator[EmbeddingBlock]:
        """The exported vectors, streamed, row-aligned with the node table."""

    def compilables(self, model: nn.Module) -> list[Compilable]:
        """What ``compile`` may compile."""

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """What throughput counts and how much of it one step handles, such as ("edges", 123456)."""
