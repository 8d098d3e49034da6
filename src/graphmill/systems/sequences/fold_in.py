"""Next items for users who joined after the training: a sequence model needs only their history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphmill.errors import InputError
from graphmill.evaluation.ranking.recommendation import ExcludeSeen, KnownItems, excluded, of_all, top_k
from graphmill.graph.histories import Histories
from graphmill.kernels.products import product
from graphmill.systems.sequences.data import Times, scaled_times, units

if TYPE_CHECKING:
    from graphmill.systems.sequences.system import SequenceModule, SequenceSystem

_USERS = 256


def fold_in(
    system: SequenceSystem, model: SequenceModule, histories: Histories, k: int, exclude_seen: ExcludeSeen
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Items int64 [U, k] (local numbers; −1: none left), scores [U, k], and an empty note."""
    items = system.data.sequences.num_items
    histories = histories.take(np.isin(histories.items, system.candidates))  # the vectors of others are random
    queried = np.flatnonzero(np.diff(histories.indptr) > 0)
    times = _times(system, histories)
    table = model.network.items.weight.detach().float()
    exclude = exclude_seen == "always" or (exclude_seen == "auto" and not system.data.sequences.repeats)
    seen = excluded(KnownItems(histories.indptr, histories.items), histories.disliked, exclude)

    def score(users: np.ndarray) -> Tensor:
        blocks = []
        for part in (users[i : i + _USERS] for i in range(0, len(users), _USERS)):
            starts, ends = histories.indptr[part], histories.indptr[part + 1]
            states = system.last_states(model, histories.items, times, part, starts, ends)
            blocks.append(product(states, table.T))
        return torch.cat(blocks)

    with torch.no_grad():
        lists = top_k(score, queried, items, seen, k, system.candidates)
    return *of_all(len(histories.known), queried, *lists), {}


def _times(system: SequenceSystem, histories: Histories) -> Times:
    """Times of rows and their users scaled as in training, in units since a user's first interaction; None if the model
    does not use times."""
    unit, times, indptr = system.data.time_unit, histories.times, histories.indptr
    if not unit:
        return lambda rows, users: None
    if times is None:
        raise InputError(
            f"{system.name} needs the times of a history, and this one has none; give the file a timestamp column"
        )
    gaps = units(unit, times, indptr, indptr[1:])
    return lambda rows, users: scaled_times(times[rows], times[indptr[users]], gaps[users])
