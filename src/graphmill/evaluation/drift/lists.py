"""Drift without vectors: the share of the ten best items or tails of a fixed sample of users or heads that changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from graphmill.errors import InputError
from graphmill.evaluation.drift.figures import MOVED, Agreement, DriftFigures, MovedNode

BEST = 10
FEWEST = 10
Lists = Mapping[tuple[str, str], Sequence[str]]
"""Relation (``source | name | target``) and id of a user or head → ids of its best items or tails, best first."""


def list_figures(before: Lists, after: Lists) -> DriftFigures:
    """Compare the lists of those that are in both. Raises :class:`InputError` if there are fewer than ten."""
    keys = sorted(before.keys() & after.keys())
    if len(keys) < FEWEST:
        raise InputError(f"the two models share {len(keys)} users or heads with a list; drift needs at least {FEWEST}")
    kept = np.array([_share(before[key][:BEST], after[key][:BEST]) for key in keys])
    names, numbers = np.unique([relation for relation, _ in keys], return_inverse=True)
    types = tuple(
        Agreement(str(name), int((numbers == n).sum()), overlap_10=float(kept[numbers == n].mean()))
        for n, name in enumerate(names)
    )
    most = np.argsort(kept, kind="stable")[:MOVED].tolist()
    changed = tuple(
        MovedNode(keys[n][0].split(" | ")[0], keys[n][1], "", math.nan, float(kept[n])) for n in most if kept[n] < 1
    )
    overall = Agreement("", len(keys), overlap_10=float(kept.mean()))
    return DriftFigures(overall, types, math.nan, changed, (numbers.astype(np.int64), kept), lists=True)


def _share(before: Sequence[str], after: Sequence[str]) -> float:
    longest = max(len(before), len(after))
    return len(set(before) & set(after)) / longest if longest else 1.0
