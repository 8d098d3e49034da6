"""Assigns roles to a run's checkpoints from their headers. Touches no file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class CheckpointInfo:
    """One checkpoint as its header describes it. ``epoch`` and ``step`` count those completed.

    ``roles``: "last", "best", "final", "influence"; a checkpoint without a role is removed at the next save. ``metric``
    (higher is better) is None where the model was not evaluated; ``loss`` may be nan.
    """

    path: Path
    epoch: int
    step: int
    roles: tuple[str, ...]
    metric: float | None
    learning_rate: float
    loss: float
    bytes: int
    final: bool


def assign(
    infos: Sequence[CheckpointInfo], keep_last: int, keep_best: int, keep_influence: int
) -> list[CheckpointInfo]:
    """Return ``infos``, oldest first, with their roles filled in."""
    newest_first = list(infos)[::-1]
    # During the run, keep twice as many: which ones are evenly spread is known only at the end.
    count = keep_influence * (1 if newest_first and newest_first[0].final else 2)
    holders = {
        "last": newest_first[:keep_last],
        "best": best_first(infos)[:keep_best],
        "final": [info for info in newest_first if info.final][:1],
        "influence": spread(falling(infos), count),
    }
    return [replace(info, roles=tuple(role for role in holders if info in holders[role])) for info in infos]


def best_first(infos: Sequence[CheckpointInfo]) -> list[CheckpointInfo]:
    """The checkpoints with a metric, highest first; of equals, the earlier first."""
    measured = [info for info in infos if info.metric is not None and not math.isnan(info.metric)]
    return sorted(measured, key=lambda info: -float(info.metric or 0.0))


def falling(infos: Sequence[CheckpointInfo]) -> list[CheckpointInfo]:
    """The checkpoints whose finite loss is below that of every earlier one. This leaves out noise and epochs after
    convergence."""
    records: list[CheckpointInfo] = []
    for info in infos:
        if math.isfinite(info.loss) and (not records or info.loss < records[-1].loss):
            records.append(info)
    return records


def spread(candidates: Sequence[CheckpointInfo], count: int) -> list[CheckpointInfo]:
    """At most ``count`` of ``candidates`` (falling loss), evenly spread in loss; the lowest is always among them."""
    kept = list(candidates)
    if count <= 1:
        return kept[-1:] if count else []
    while len(kept) > count:
        closest = min(range(1, len(kept) - 1), key=lambda i: kept[i - 1].loss - kept[i + 1].loss, default=0)
        del kept[closest]
    return kept
