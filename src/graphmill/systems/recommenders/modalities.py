"""The feature sets of items that a multimodal recommender uses, in the order of its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphmill.errors import InputError, SettingsError
from graphmill.graph.interactions import Interactions


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
