"""The base of MMGCN and DRAGON: recommenders with feature sets of the items."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from graphmill.errors import InputError
from graphmill.graph.attributes import SET
from graphmill.graph.interactions import UNNAMED, interaction_relation
from graphmill.graph.later_nodes import LaterNodes
from graphmill.kernels.devices import wide, writable_copy
from graphmill.systems.base_system import M
from graphmill.systems.recommenders.system import RecommenderSystem
from graphmill.systems.recommenders.user_item_graph import UserItemGraph, user_item_graph

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.systems.dragon.settings import DragonSettings
    from graphmill.systems.mmgcn.settings import MmgcnSettings
from collections.abc import Sequence
from dataclasses import dataclass

from graphmill.errors import SettingsError
from graphmill.graph.interactions import Interactions

NORM = "regularisation"
"""The term of the tables' squares."""
FOLDS = 5
"""Known items lose their interactions in so many parts, one after the other."""
RIDGE = 0.1


class MultimodalSystem(RecommenderSystem[M]):
    """``self.modalities``: the feature sets in the order of the network's towers."""

    user_item: UserItemGraph

    def __init__(self, graph: TypedGraph, settings: MmgcnSettings | DragonSettings, batching: str) -> None:
        super().__init__(graph, settings, batching)
        self.modalities = modalities(self.view, settings.model.modalities)
        self.on_view()

    def to(self, device: torch.device) -> None:
        """Moves the graph to the device; the features move with the network."""
        super().to(device)
        self.user_item = self.user_item.to(device)

    graph_norm: ClassVar[Literal["symmetric", "mean"]]
    """Weights of the user-item graph: see :func:`user_item_graph`."""
    first_layer: ClassVar[str]
    """The layer of a tower that reads its features."""
    item_tables: ClassVar[tuple[str, ...]] = ()
    """Tables whose last rows are of the items."""
    embeds_from_features = True
    """A new item's vector needs no interaction."""

    def reads_attributes(self) -> dict[str, tuple[str, int]]:
        """The first layer of the tower of attributes."""
        kind, names = interaction_relation(self.graph).target, [each.name for each in self.modalities]
        return {f"towers.{names.index(SET)}.{self.first_layer}.weight": (kind, 0)} if SET in names else {}

    def embed_later(self, model: M, later: LaterNodes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """:meth:`graphmill.usage.embed.EmbedsLater.embed_later` of items: the network's output for their features, over
        the user-item graph with their interactions, if any. Id embeddings of new items are the mean over items.

        The vector of an item without interactions depends only on its features; it is corrected by the mean effect of
        interactions on known items (:class:`WarmedUp`).

        Raises :class:`InputError` for new nodes of another type, :class:`SettingsError` if features were shuffled.
        """
        known, grown = self.view.num_items, self._grown(later)
        with torch.no_grad():
            bigger = grown.make_model().to(self.device)
            bigger.load_state_dict(self._with_means(model, np.arange(known, grown.view.num_items)))
            vectors = grown.vectors(bigger.eval())[1][known:].cpu().numpy()
            alone = grown.view.train_by_item.counts[known:] == 0
            if alone.any():
                vectors[alone] = WarmedUp(*self._without_interactions(model))(vectors[alone])
        return vectors, {}

    def candidates(self) -> np.ndarray:
        """Items with a training interaction or features, from which their vectors follow."""
        known = self.view.train_by_item.counts > 0
        for modality in self.modalities:
            known |= modality.present
        return np.flatnonzero(known)

    def _with_means(self, model: M, items: np.ndarray) -> dict[str, Tensor]:
        """The model's tensors, with the mean over items in the rows ``items`` of id embeddings, including new rows."""
        rows = dict(model.state_dict())
        for name in set(self.item_tables) & rows.keys():
            first = len(rows[name]) - self.view.num_items
            mean, more = rows[name][first:].mean(0), max(int(items.max(initial=-1)) + 1 - self.view.num_items, 0)
            rows[name] = torch.cat((rows[name], mean.expand(more, -1)))
            rows[name][torch.from_numpy(items + first)] = mean
        return rows

    def _without_interactions(self, model: M) -> tuple[np.ndarray, np.ndarray]:
        """float32 [n, d] each: vectors of known items computed without their interactions, and their actual vectors."""
        as_is = self.vectors(model)[1].cpu().numpy()
        alone, other, changed = np.zeros_like(as_is), copy.copy(self), copy.deepcopy(model).eval()
        for fold in range(FOLDS):
            items = np.arange(fold, self.view.num_items, FOLDS)
            other.view = self.view.without_items(items)
            changed.load_state_dict(self._with_means(model, items))
            alone[items] = other.on_interactions().vectors(changed)[1][torch.from_numpy(items)].cpu().numpy()
        met = self.view.train_by_item.counts > 0
        return alone[met], as_is[met]

    def _grown(self, later: LaterNodes) -> Self:
        """The same system on the graph with the new items after the known ones."""
        kinds = [t.name for t in self.graph.node_types]
        relation = interaction_relation(self.graph)
        number = kinds.index(relation.target)
        if others := [
            kind for kind, count in zip(kinds, later.counts, strict=True) if count and kind != relation.target
        ]:
            raise InputError(
                f"{self.name} has vectors for new items, and the file has new nodes of type {', '.join(others)}; people are "
                "recommended to from their history: graphmill recommend --history"
            )
        count = later.counts[number]
        more = {
            name or UNNAMED: later.features.get((number, name)) for name in self.graph.feature_sets(relation.target)
        }
        grown = copy.copy(self)
        grown.modalities = [m.with_items(more[m.name], count) for m in self.modalities]
        grown.view = self.view.with_items(count, later.edges[relation.index])
        return grown.on_view()

    def on_interactions(self) -> Self:
        """The system itself, with its user-item graph rebuilt from the interactions of ``view``."""
        train, shape = self.view.train, (self.view.num_users, self.view.num_items)
        self.user_item = user_item_graph(train.row, train.columns, *shape, self.graph_norm).to(self.device)
        return self

    def on_view(self) -> Self:
        """The system itself, with all graphs rebuilt from ``view`` and ``modalities``."""
        return self.on_interactions()

    def features(self) -> list[Tensor]:
        """fp32 [I, f] per modality, copies."""
        return [writable_copy(np.asarray(modality.features, np.float32)) for modality in self.modalities]


def squares(x: Tensor) -> Tensor:
    """Σ x², at least fp32."""
    return wide(x).square().sum()


class WarmedUp:
    """Maps vectors of items without interactions to vectors with interactions, on average: w ≈ A c + b.

    A and b minimise Σ ‖w − A c − b‖² + λ ‖A − s I‖² over known items, where c and w are their vectors without and with
    interactions (n × d each, centred), s is the scalar that fits best, and λ is a tenth of the mean of Σ c² over
    dimensions.
    """

    def __init__(self, alone: np.ndarray, as_is: np.ndarray) -> None:
        self.before, self.after = (rows.mean(0, dtype=np.float64) for rows in (alone, as_is))
        c, w = alone - self.before, as_is - self.after
        gram = c.T @ c
        size = max(float(np.trace(gram)), 1e-30)
        ridge = RIDGE * size / len(gram) * np.eye(len(gram))
        factor = float((c * w).sum()) / size
        self.map = np.linalg.solve(gram + ridge, c.T @ w + factor * ridge)

    def __call__(self, alone: np.ndarray) -> np.ndarray:
        """float32 [n, d]."""
        return ((alone - self.before) @ self.map + self.after).astype(np.float32)


@dataclass(frozen=True)
class Modality:
    """One feature set: fp32 [I, f], and bool [I]: whether an item has it (otherwise its row is zero)."""

    name: str
    features: np.ndarray
    present: np.ndarray

    def with_items(self, features: np.ndarray | None, count: int) -> Modality:
        """The set with ``count`` more items; ``features`` [count, f]: their features, zero rows for items without;
        None: no new item has features."""
        more = np.zeros((count, self.features.shape[1]), np.float32) if features is None else features
        present = np.concatenate((self.present, (more != 0).any(1)))
        return Modality(self.name, np.concatenate((self.features, more)), present)


def chosen_sets(known: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """``names``, which must be ``known`` feature sets of the items; all known sets if it is empty.

    Raises :class:`InputError` if the graph has no item features, :class:`SettingsError` for an unknown name.
    """
    if not known:
        raise InputError(
            "the graph has no item features, which mmgcn and dragon learn from; build it with features or attributes "
            "of items, or use the systems mf or kgat"
        )
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SettingsError(
            f"model.modalities: {unknown[0]!r} is not a feature set of the items (known: {', '.join(known)})"
        )
    return names or known


def modalities(view: Interactions, names: Sequence[str]) -> list[Modality]:
    """The sets with ``names``; without names, all sets in the graph's order.

    Raises the errors of :func:`chosen_sets`.
    """
    chosen = chosen_sets(list(view.features), names)
    return [Modality(name, np.asarray(view.features[name]), np.asarray(view.present[name])) for name in chosen]
