"""The contract between the engine and a system.

A system contains only what differs between systems; the engine owns the rest. Three rules make this work:

* batches are a pure function of (phase, epoch, index), so a resumed run needs only its position;
* losses are sums whose weights are known before the forward pass, so gradient accumulation and several ranks give the
  gradient of the whole batch;
* the encoding that the chunks of a step share is computed once, and backpropagated through once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor, nn

if TYPE_CHECKING:
    from graphmill.evaluation.ranking.ranks import Scorer
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.training.processes import Ranks
    from graphmill.training.sharding import Shards


@dataclass(frozen=True)
class Phase:
    """One kind of optimizer step. ``batch_size / base_batch_size`` is the k of learning-rate scaling.

    ``closed_form``: the one step of the phase computes the model's arrays (:class:`SolvedSystem`); there are no gradients
    and no optimizer.
    """

    name: str
    steps_per_epoch: int
    batch_size: int = 1
    base_batch_size: int = 1
    closed_form: bool = False


@dataclass(frozen=True)
class Term:
    """One part of the loss: the engine adds ``coefficient × sum / total weight`` over micro-batches and ranks.

    ``sum``: 0-d fp32 tensor, over this micro-batch. The total weight is ``StepBatch.weights[name]``.
    """

    name: str
    sum: Tensor
    coefficient: float = 1.0


@dataclass
class Encoded:
    """The tensors that all chunks of a group share, by name. The loss sees them detached; they are backpropagated
    through once."""

    tensors: dict[str, Tensor]


class StepBatch(Protocol):
    """The data of one optimizer step, before or after sharding and splitting. Holds arrays, no model state."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Total weight of each term in this batch, known before the forward pass."""

    @property
    def replicated(self) -> bool:
        """True if every rank computes the same encoding (a full graph). Then the encoding's gradient is summed over the
        ranks."""

    def groups(self) -> Sequence[StepBatch]:
        """The parts that each have their own encoding: [self], or the micro-batches of sampled batching."""

    def split(self, parts: int) -> Sequence[StepBatch]:
        """Chunks of the loss: at most ``parts``, none empty; the last may be smaller."""

    def shard(self, rank: int, world: int) -> StepBatch:
        """This rank's part, which may be empty. The weights of all shards sum to those of the whole batch."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the batch. They are saved if the batch made the loss non-finite."""


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
class StepSizes:
    """Sizes that change memory and time but never the gradient. The ladder (``ladder.py``) makes them smaller when
    memory runs out."""

    micro_batches: int = 1
    checkpointing: bool = False
    can_checkpoint: bool = True
    """Whether the model has layers that can be computed again in the backward pass."""
    history: list[str] = field(default_factory=list)
    at: str = ""
    """Where the step is: :data:`ENCODING`, :data:`LOSS` or "adding up the gradients"."""

    def sizes(self) -> dict[str, int | bool]:
        """The sizes as plain values."""
        return {"micro_batches": self.micro_batches, "checkpointing": self.checkpointing}


@dataclass(frozen=True)
class Compilable:
    """A function that a step calls: ``owner.attribute`` is replaced by its compiled form."""

    owner: Any
    attribute: str


class OldRows(NamedTuple):
    """The rows of a graph's nodes in another graph, int64 [nodes], −1 for a node that it lacks: among all of its nodes,
    and among those of the node's type. ``same_relations``: both graphs have the same ones, in the same order."""

    of_all: np.ndarray
    of_type: np.ndarray
    same_relations: bool


class SolvedSystem(Protocol):
    """A system with a phase in closed form."""

    def solve(self, model: Any, poll: Callable[[], None]) -> None:
        """Compute the arrays of ``model``. It calls ``poll`` between parts of the work; ``poll`` may raise to stop."""

    def seconds_to_solve(self) -> float:
        """An estimate of the seconds that :meth:`solve` takes on this machine, measured on a small part of the work."""


class System(Protocol):
    """One system, as the engine sees it. ``data`` is the result of the system's own loader on the typed graph."""

    name: str
    graph: TypedGraph
    algorithm_version: int
    phases: Sequence[Phase]
    can_checkpoint: bool
    """Whether the model has layers that gradient checkpointing computes again."""
    folds_in_items: bool
    """Whether a new item gets a vector from its known users."""
    embeds_from_features: bool
    """Whether a new node with features needs no edges to be embedded."""
    evaluator: Any
    """How it ranks items for users, or the next items of sequences; None: it ranks links."""
    shards: Shards | None
    """The rows of the tables that this process holds after :meth:`shard`; None: all."""

    @property
    def embedding_width(self) -> int:
        """Width of the exported vectors."""

    def shard(self, ranks: Ranks) -> None:
        """Divide the graph and the tables by rows over the ranks, before the system goes to its device."""

    def build(self, step_sizes: StepSizes) -> nn.Module:
        """The model, initialised from the seed, on the CPU."""

    def part_runs(self) -> Mapping[str, Mapping[str, Any]]:
        """Settings of the trainings, by name of their system, whose models are parts of this one; they are trained first."""

    def take_parts(self, model: nn.Module, parts: Mapping[str, nn.Module]) -> None:
        """Copy the trained models of :meth:`part_runs` into the model."""

    def to(self, device: Any) -> None:
        """Move constants (graph, features) to the device."""

    def parameter_groups(self, model: nn.Module, phase: Phase) -> list[ParameterGroup]:
        """What the phase's optimizer updates."""

    def row_keys(self, model: nn.Module) -> dict[str, tuple[str, list[str]]]:
        """Parameter name → (a label stable between graphs, its rows' keys or []), for ``init_from`` by node id."""

    def reads_attributes(self) -> Mapping[str, tuple[str, int]]:
        """Parameter [out, columns] → (node type, place of the first column that reads features from its attributes)."""

    def fold_in_rows(self, model: nn.Module, missing: Mapping[str, np.ndarray]) -> None:
        """Give new nodes vectors without a training: fill the ``missing`` rows of tables (parameter → row numbers) from the
        other rows and the graph's training edges."""

    def carry_over(self, model: nn.Module, tensors: Mapping[str, Tensor], old: OldRows) -> int:
        """Put into ``model`` what neither :meth:`row_keys` nor the shapes of buffers take over from the ``tensors`` of a
        model of another graph; returns the number of rows that it lacks. Raises :class:`InputError` if it cannot."""

    def begin_epoch(self, model: nn.Module, epoch: int) -> None:
        """Update state that changes once an epoch (KGAT's attention), in persistent buffers."""

    def step(self, phase: Phase, epoch: int, index: int) -> StepBatch:
        """The batch of one step. It is a pure function: random numbers are keyed by (seed, phase, epoch, index,
        stream)."""

    def encode(self, model: nn.Module, batch: Any) -> Encoded | None:
        """The encoding that the chunks of a group share; None if there is none."""

    def terms(self, model: nn.Module, chunk: Any, encoded: Encoded | None) -> list[Term]:
        """The loss terms of a chunk. Numerically sensitive parts are computed in fp32."""

    def scorer(self, model: nn.Module) -> Scorer:
        """Scores for ranking, from the model in eval mode."""

    def baselines(self, model: nn.Module) -> Mapping[str, Scorer]:
        """The parts of the model that are baselines of its ranking, by name."""

    def evaluate(self, model: nn.Module, split: str, *, final: bool, poll: Callable[[], None]) -> dict[str, float]:
        """Metrics on a split ("valid", "test"), unrounded. It calls ``poll`` often; ``poll`` may raise to stop.

        With several processes, every rank calls it at the same time. ``evaluation.ranking.shared_queries`` divides the
        queries among the ranks, and every rank returns the metrics of all queries.
        """

    def held_out(self, split: str) -> int:
        """Number of queries of ``evaluate`` in a split. With 0 the split cannot choose an epoch."""

    def health(self, model: nn.Module) -> dict[str, float]:
        """Fast statistics that show a collapse of the embedding during training."""

    def embeddings(self, model: nn.Module) -> Iterator[EmbeddingBlock]:
        """The exported vectors in blocks of rows, aligned with the node table."""

    def compilables(self, model: nn.Module) -> list[Compilable]:
        """The functions that ``compile`` may compile."""

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """The unit of throughput, and how many units one step handles, such as ("edges", 123456)."""


# -- gradients of single examples, for influence analysis ---------------------------------------------------------------

# A batch's per-example gradients of a d × F matrix would fill n · d · F numbers; as outer products they are n · (d + F), and
# influence analysis needs only dot products. ``parameter`` names the model's parameter that a factor belongs to.


@dataclass(frozen=True)
class Dense:
    """n gradients in full: ``values`` [n, k], where k is the parameter's size."""

    parameter: str
    values: Tensor


@dataclass(frozen=True)
class Outer:
    """n gradients of a matrix [k1, k2], each ``left[i]`` ⊗ ``right[which[i]]``; left [n, k1], right [m, k2]."""

    parameter: str
    left: Tensor
    right: Tensor
    which: Tensor


@dataclass(frozen=True)
class RowGradients:
    """n gradients of a table [N, k], each the sum of a few rows and, optionally, a rank-one matrix.

    Gradient i has ``values[j][i]`` [k] in row ``keys[j][i]``, summed over j. If ``spread`` is given,
    ``spread[0][which[i]]`` ⊗ ``spread[1][which[i]]`` is added: ``spread`` holds coefficients of the rows [m, N] and
    directions [m, k].
    """

    parameter: str
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    spread: tuple[Tensor, Tensor] | None = None
    which: Tensor | None = None


Factor = Dense | Outer | RowGradients


class Tracer(Protocol):
    """Per-example gradients of one model, with dropout off and batch norms in eval mode."""

    def label_gradients(self, labels: np.ndarray) -> list[Factor]:
        """``labels`` int64 [n, 3], (head, relation or inverse, tail) → gradient of each label's term of its row's loss."""


class Traceable(Protocol):
    """A system whose training examples are triples and which provides factored gradients."""

    def tracer(self, model: nn.Module) -> Tracer:
        """A :class:`Tracer` for the current weights of ``model``."""

    def traced_triples(self, split: str) -> np.ndarray:
        """int64 [T, 3]: the triples of a split in global numbers, without inverses."""

    def traced_labels(self, triples: np.ndarray) -> np.ndarray:
        """int64 [directions, T, 3]: the labels that each triple produces."""
