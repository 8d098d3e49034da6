"""DRAGON's two homogeneous graphs, made once from the training data: items with similar features, users with common
items."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphmill.errors import SettingsError
from graphmill.evaluation.health.neighbours import Vectors
from graphmill.graph.co_occurrence import top_co_occurrence
from graphmill.graph.interactions import Interactions
from graphmill.kernels.propagation import SparseMatrix, sparse_matrix
from graphmill.systems.recommenders.multimodal import Modality


def item_graph(sets: Sequence[Modality], weights: Sequence[float], k: int) -> SparseMatrix:
    """S = Σ_m w_m S_m [I, I]: row i of S_m has the ``k`` items nearest to i by cosine, i included, with weight 1 / k each.

    ``weights`` are divided by their sum; none: equal. An item without features has only itself as a neighbour, and no
    other item has it. Ties are broken by item number. Items are compared block by block, without an I × I matrix.

    Raises :class:`SettingsError` if the numbers of weights and sets differ.
    """
    if weights and len(weights) != len(sets):
        names = ", ".join(s.name for s in sets)
        raise SettingsError(
            f"model.item_graph_weights has {len(weights)} numbers for {len(sets)} modalities ({names}); write one for each, "
            "or none"
        )
    shares = np.asarray(weights or [1.0] * len(sets), np.float64)
    if not shares.sum() > 0:
        raise SettingsError("model.item_graph_weights are all 0; at least one modality must count")
    items = len(sets[0].features)
    pairs = []
    for modality, share in zip(sets, shares / shares.sum(), strict=True):
        if share:
            row, column = _nearest_pairs(modality, k)
            pairs.append((row * items + column, share / np.bincount(row, minlength=items)[row]))
    keys, values = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    # Entries at the same place (from two modalities) are added up, so that products have fewer of them.
    keys, where = np.unique(keys, return_inverse=True)
    return sparse_matrix(keys // items, keys % items, np.bincount(where, weights=values), (items, items))


def user_graph(view: Interactions, k: int) -> SparseMatrix:
    """α [U, U]: row u has the ``k`` users that share the most training items with u, or fewer if there are fewer,
    weighted by a softmax over the numbers of shared items. A user without shared items has an empty row.

    The authors fill a row with fewer than k neighbours by resampling them in every epoch, before the softmax: a
    neighbour that occurs m times has m times its weight. Here each neighbour occurs once. If all neighbours share
    equally many items, this is the mean of the authors' weights. Otherwise it is only close to it: theirs gives the
    neighbour with the most shared items at most a few hundredths less.
    """
    neighbours, shared = top_co_occurrence(view.train, view.train_by_item, k)
    row = neighbours.row.astype(np.int64)
    weight = np.exp((shared - shared[neighbours.indptr[row]]).astype(np.float64)) if len(row) else np.ones(0)
    total = np.bincount(row, weights=weight, minlength=view.num_users)
    return sparse_matrix(row, neighbours.columns, weight / total[row], (view.num_users, view.num_users))


def _nearest_pairs(modality: Modality, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(item, neighbour) int64 pairs, including each item with itself."""
    items = len(modality.features)
    every = np.arange(items)
    has = np.flatnonzero(modality.present & (modality.features != 0).any(1))
    wanted = min(k - 1, len(has) - 1)
    if wanted < 1:
        return every, every
    neighbours = Vectors(modality.features[has]).nearest(np.arange(len(has)), wanted)
    row = np.repeat(has, wanted)
    return np.concatenate((every, row)), np.concatenate((every, has[neighbours.rows.reshape(-1)]))
