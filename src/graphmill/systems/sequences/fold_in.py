"""Next items for users who joined after the training: a sequence model needs only their history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphmill.errors import InputError
from graphmill.evaluation.ranking.recommendation import ExcludeSeen, KnownItems, no_items, top_k
from graphmill.graph.histories import Histories
from graphmill.kernels.products import product
from graphmill.sampling.sequences import lay_out, ranges, scaled_times, smallest_gaps
from graphmill.systems.sequences.data import SECONDS

if TYPE_CHECKING:
    from torch import nn

    from graphmill.systems.sequences.recipe import SequenceRecipe

_USERS = 256


def fold_in(
    recipe: SequenceRecipe, model: nn.Module, histories: Histories, k: int, exclude_seen: ExcludeSeen
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Items int64 [U, k] (local numbers; −1: none left), scores [U, k], and an empty note."""
    items = recipe.data.sequences.num_items
    histories = histories.take(histories.items < items)
    there = np.flatnonzero(np.diff(histories.indptr) > 0)
    best, scores = np.full((len(histories.known), k), -1, np.int64), np.full((len(histories.known), k), -np.inf)
    times = _times(recipe, histories)
    table: Tensor = model.network.items.weight.detach().float()  # type: ignore[union-attr, operator]
    exclude = exclude_seen == "always" or (exclude_seen == "auto" and not recipe.data.sequences.repeats)
    seen = KnownItems(histories.indptr, histories.items) if exclude else no_items(len(histories.known))

    def score(users: np.ndarray) -> Tensor:
        parts = [users[i : i + _USERS] for i in range(0, len(users), _USERS)]
        return torch.cat([product(_states(recipe, model, histories, times, part), table.T) for part in parts])

    with torch.no_grad():
        found = top_k(score, there, items, seen, k)
    width = found[0].shape[1]
    best[there, :width], scores[there, :width] = found
    return best, scores, {}


def _states(
    recipe: SequenceRecipe, model: nn.Module, histories: Histories, times: np.ndarray | None, users: np.ndarray
) -> Tensor:
    ends = histories.indptr[users + 1]
    starts = np.maximum(histories.indptr[users], ends - recipe.settings.model.max_length)
    rows, layout = ranges(starts, ends), lay_out(ends - starts)
    inputs = recipe.inputs(histories.items[rows], None if times is None else times[rows], ends - starts, layout)
    states: Tensor = model.network(inputs)  # type: ignore[operator]
    return states[torch.from_numpy(layout.last).to(states.device)].float()


def _times(recipe: SequenceRecipe, histories: Histories) -> np.ndarray | None:
    """Times scaled as in training, in units since a user's first interaction; None if the model does not use times."""
    unit = recipe.data.time_unit
    if not unit:
        return None
    if histories.times is None:
        raise InputError(
            f"{recipe.name} needs the times of a history, and this one has none; give the file a timestamp column"
        )
    gaps = np.full(len(histories.known), SECONDS.get(unit, 1))
    if unit == "per_user":
        gaps = smallest_gaps(histories.times, histories.indptr, histories.indptr[1:])
    users = histories.users
    return scaled_times(histories.times, histories.times[histories.indptr[:-1][users]], gaps[users])
