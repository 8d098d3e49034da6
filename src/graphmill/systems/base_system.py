"""Base classes of systems: seeds, devices, parameter groups, shuffled orders, tables as exports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.evaluation.health.figures import quick_health
from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.queries import LinkQueries, both_sides, count_links, link_queries
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.graph.splits import TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.devices import in_one_copy, to_device
from graphmill.sampling.keyed import generator, key_of
from graphmill.training.contract import Compilable, EmbeddingBlock, OldRows, ParameterGroup, Phase, StepSizes
from graphmill.training.sharding import Shards

EXPORT_ROWS = 65_536

M = TypeVar("M", bound=nn.Module)
"""The class of a system's model."""


class RowBatch:
    """The base of batches of rows; a dataclass of arrays adds ``weights``, ``split`` and ``shard``."""

    replicated = False
    """Whether every rank encodes the same."""

    def groups(self) -> Sequence[Self]:
        """The batch itself, even if a rank has no row of it: all ranks run the encoding together."""
        return (self,)

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by the names of their fields."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


class DividedBatch(RowBatch):
    """A batch whose chunks and ranks get some of its rows: those of the arrays ``ROWS``, and all other fields whole."""

    ROWS: ClassVar[tuple[str, ...]]

    def __len__(self) -> int:
        return len(getattr(self, self.ROWS[0]))

    def split(self, parts: int) -> Sequence[Self]:
        """At most ``parts`` chunks of rows, in their order."""
        if parts == 1 and len(self):
            return [self]
        return [self.take(rows) for rows in np.array_split(np.arange(len(self)), parts) if len(rows)]

    def shard(self, rank: int, world: int) -> Self:
        """Every ``world``-th row."""
        return self.take(slice(rank, None, world))

    def take(self, rows: np.ndarray | slice) -> Self:
        """The batch of some rows."""
        return replace(self, **{name: getattr(self, name)[rows] for name in self.ROWS})  # type: ignore[type-var]


class BaseSystem(Generic[M]):
    """Everything random is keyed by ``settings.training.seed``."""

    average: Literal["macro", "micro"] = "macro"
    """The mean by which links are ranked: over relations, or over queries."""
    can_checkpoint = True
    """Whether the model has layers that gradient checkpointing computes again."""
    folds_in_items = False
    """Whether a new item gets a vector from its known users."""
    embeds_from_features = False
    """Whether a new node with features needs no edges to be embedded."""
    edges: Any = None
    """The training links in both directions, of a system that scores them and their inverses."""
    evaluator: Any = None
    """How it ranks items for users, or the next items of sequences; None: it ranks links."""

    def __init__(self, graph: TypedGraph, settings: Any) -> None:
        self.graph, self.settings, self.name = graph, settings, str(settings.system)
        self.device = torch.device("cpu")
        self.step_sizes = StepSizes()
        self.shards: Shards | None = None
        self._orders: dict[tuple[int, int], np.ndarray] = {}
        self._queries: dict[tuple[str, int], LinkQueries] = {}

    def build(self, step_sizes: StepSizes) -> M:
        """The model, initialised on the CPU from the seed, so that every device and rank starts with the same weights."""
        torch.manual_seed(key_of(self.settings.training.seed, "initialise") & 0x7FFF_FFFF_FFFF_FFFF)
        self.step_sizes = step_sizes
        step_sizes.can_checkpoint = self.can_checkpoint
        return self.make_model()

    def make_model(self) -> M:
        """The network, from seeded random numbers."""
        raise NotImplementedError  # unreachable: a system that builds otherwise has its own ``build``

    @property
    def checkpointing(self) -> bool:
        """Whether layers are computed again in the backward pass: by the settings, or because memory ran out."""
        return bool(self.settings.acceleration.gradient_checkpointing or self.step_sizes.checkpointing)

    def to(self, device: torch.device) -> None:
        """Sets the device, to which each batch is copied; a system moves its own constants."""
        self.device = device

    @property
    def embedding_width(self) -> int:
        """Width of the exported vectors: by default ``model.embedding_dim``."""
        return int(self.settings.model.embedding_dim)

    def part_runs(self) -> dict[str, dict[str, Any]]:
        """By default, none."""
        return {}

    def take_parts(self, model: M, parts: Mapping[str, nn.Module]) -> None:
        """By default there are none."""

    def baselines(self, model: M) -> dict[str, Scorer]:
        """By default, none."""
        return {}

    def reads_attributes(self) -> Mapping[str, tuple[str, int]]:
        """By default, none."""
        return {}

    def fold_in_rows(self, model: M, missing: Mapping[str, np.ndarray]) -> None:
        """By default a new row is the mean of the table's others: layers then add what the node's edges say."""
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            for name, rows in missing.items():
                known = torch.ones(len(parameters[name]), dtype=torch.bool)
                known[rows] = False
                parameters[name][~known] = parameters[name][known].mean(0)

    def carry_over(self, model: M, tensors: Mapping[str, Tensor], old: OldRows) -> int:
        """By default nothing."""
        return 0

    def begin_epoch(self, model: M, epoch: int) -> None:
        """By default nothing changes between epochs."""

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """One step. Systems with batches say what is in them."""
        return "steps", 1.0

    def compilables(self, model: M) -> list[Compilable]:
        """By default, nothing."""
        return []

    def groups(
        self, model: M, dense: Callable[[str, nn.Parameter], bool], prefixes: tuple[str, ...] = ("",)
    ) -> list[ParameterGroup]:
        """The parameters whose names have one of the prefixes; weight decay acts on those for which
        ``dense(name, parameter)`` is true."""
        by_decay = {True: ParameterGroup([], [], 1.0), False: ParameterGroup([], [], 0.0)}
        for name, parameter in model.named_parameters():
            if name.startswith(prefixes):
                group = by_decay[bool(dense(name, parameter))]
                group.names.append(name)
                group.parameters.append(parameter)
        return [group for group in by_decay.values() if group.names]

    def health(self, model: M) -> dict[str, float]:
        """By default there are no vectors that could collapse."""
        return {}

    def embeddings(self, model: M) -> Iterator[EmbeddingBlock]:
        """By default, none."""
        return iter(())

    def health_of(self, vectors: np.ndarray, types: np.ndarray | None = None) -> dict[str, float]:
        """Participation ratio, mean cosine and the smallest within-type rank; ``types``: by default the types of all
        nodes."""
        if types is None:
            kinds = self.graph.node_types
            types = np.repeat(np.arange(len(kinds)), [kind.count for kind in kinds])
        return quick_health(vectors, types, seed=self.settings.training.seed)

    def held_out(self, split: str) -> int:
        """Links of the split. Raises InputError if there are none: before training rather than at the first evaluation."""
        return count_links(self.graph, split)

    @property
    def ranks_heads(self) -> bool:
        """Whether a ranking of links also asks for heads, as tails of inverse relations that the scorer knows: on a graph
        without reverses."""
        return self.edges is not None and not self.edges.reversed

    def ranking_queries(self, split: str, limit: int = 0) -> LinkQueries:
        """The links of a split as queries, made once; at most ``limit`` of each relation, 0: all."""
        if (split, limit) not in self._queries:
            ask = both_sides if self.ranks_heads else link_queries
            self._queries[split, limit] = ask(self.graph, split, max_per_relation=limit)
        return self._queries[split, limit]

    def validated_links(self) -> int:
        """Largest number of links of each relation in an evaluation during training; 0: all."""
        return self.settings.evaluation.max_queries

    def measured(self, figures: Mapping[str, float], *, final: bool) -> dict[str, float]:
        """The metrics of a ranking that the settings ask for."""
        evaluation = self.settings.evaluation
        wanted = (*evaluation.WHOLE, *evaluation.AT_K) if final else evaluation.metrics
        return {name: value for name, value in figures.items() if name.split("@")[0] in wanted}

    def scorer_for(self, model: M, split: str) -> Any:
        """The scores of links of a split: ``scorer``, or one by weights that were chosen on other links than those."""
        return cast(Any, self).scorer(model)

    def evaluate(self, model: M, split: str, *, final: bool, poll: Callable[[], None]) -> dict[str, float]:
        """Filtered link ranking by :attr:`average`: ``mrr``, ``hits@k``, ..."""
        evaluation, scorer = self.settings.evaluation, self.scorer_for(model, split)
        scorer.poll = poll
        queries = self.ranking_queries(split, 0 if final else self.validated_links())
        ranking = rank_links(scorer, queries, ks=tuple(evaluation.top_k))
        return self.measured(getattr(ranking, self.average), final=final)

    def order(self, rows: int, epoch: int, turn: int = 0) -> np.ndarray:
        """A permutation of ``rows`` numbers for an epoch; threads may ask for two epochs at once."""
        order = self._orders.get((epoch, turn))
        if order is None:
            order = generator(self.settings.training.seed, "order", epoch, turn).permutation(rows)
            # Prefetching threads may still use the epoch before.
            self._orders = {k: v for k, v in self._orders.items() if k[0] >= epoch - 1} | {(epoch, turn): order}
        return order  # not read again: another thread may have replaced the kept order

    def _tensor(self, array: np.ndarray) -> Tensor:
        """Copies the array to the device."""
        return to_device(torch.from_numpy(np.ascontiguousarray(array)), self.device)

    def _tensors(self, *arrays: np.ndarray) -> list[Tensor]:
        """Copies the arrays to the device; to CUDA in one copy."""
        return (
            in_one_copy(arrays, self.device)
            if self.device.type == "cuda"
            else [self._tensor(array) for array in arrays]
        )


class TableSystem(BaseSystem[M]):
    """A system whose vectors are a table of all nodes, trained on rows in one shuffled order per epoch (ConvE, ComplEx)."""

    def plan_steps(self, rows: int) -> None:
        """Divides the ``rows`` of an epoch into steps of even size, none of them too small; sets ``phases`` and
        ``batch_size``."""
        self.rows, self.batch_size = rows, min(self.settings.step_size(), rows)
        self.steps_of_rows = -(-rows // self.batch_size)
        steps = self.settings.training.steps_per_epoch or self.steps_of_rows
        self.phases = [Phase("train", steps, self.batch_size, self.settings.base_batch)]

    def rows_of_step(self, epoch: int, index: int) -> np.ndarray:
        """The numbers of the rows in a step."""
        turn, at = divmod(index, self.steps_of_rows)
        low, high = (place * self.rows // self.steps_of_rows for place in (at, at + 1))
        return self.order(self.rows, epoch, turn)[low:high]

    def row_keys(self, model: M) -> dict[str, tuple[str, list[str]]]:
        """Parameter name → (label, its rows' keys): tables by node id and relation, the rest as a whole."""
        ids = self.graph.node_table().column("id").to_pylist()
        names = ["|".join(r.key) for r in self.graph.relations]
        relations = [*names, *(f"inverse of {n}" for n in names)]
        keys = {"entities": ids, "entity_bias": ids, "relations": relations, "popularity": relations}
        return {name: (name, keys[name][: len(x)] if name in keys else []) for name, x in model.named_parameters()}

    def health(self, model: M) -> dict[str, float]:
        """Participation ratio, mean cosine and the smallest within-type rank of the table of nodes."""
        return self.health_of(_table(model))

    def embeddings(self, model: M) -> Iterator[EmbeddingBlock]:
        """The table of nodes."""
        return blocks_of(_table(model))


def _table(model: nn.Module) -> np.ndarray:
    return model.entities.detach().float().cpu().numpy()  # type: ignore[operator]


def blocks_of(vectors: np.ndarray) -> Iterator[EmbeddingBlock]:
    """``vectors`` [N, d] of all nodes, for an export."""
    for start in range(0, len(vectors), EXPORT_ROWS):
        yield EmbeddingBlock(start, vectors[start : start + EXPORT_ROWS])


def pairs_are_split(graph: TypedGraph) -> bool:
    """Whether a held-out pair of nodes has a training edge, of another relation."""
    held, train = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for relation in graph.relations:
        edges = graph.edges(relation)
        mine = np.asarray(edges.split) == TRAIN
        held.append(np.asarray(edges.pair)[~mine])
        train.append(np.asarray(edges.pair)[mine])
    return bool(np.isin(np.concatenate(held), np.concatenate(train)).any())
