"""From a finished run to recommendations: for every user the best items, as a Parquet file.

For recipes that recommend: those with a ``recommend`` method.
"""

from __future__ import annotations

import os
from typing import Any, Protocol, cast, get_args, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from torch import nn

from graphmill.errors import SettingsError
from graphmill.evaluation.ranking.recommendation import ExcludeSeen
from graphmill.runs.export import Restored
from graphmill.training.files import PART, writing

FILE = "recommendations.parquet"


@runtime_checkable
class Recommends(Protocol):
    """A recipe that can recommend."""

    def recommend(
        self, model: nn.Module, k: int, exclude_seen: ExcludeSeen = "auto"
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Global node numbers of users [U] and of their best items [U, k], best first (−1: none), and scores."""


def recommend_run(restored: Restored, k: int = 20, exclude_seen: str = "auto") -> dict[str, Any]:
    """Write ``recommendations.parquet`` into the run; returns what was written.

    Columns: user_id, user_name, rank (from 1), item_id, item_name, score; items best first. Seen ones are left
    out by ``exclude_seen``: always, never, or auto (unless the system's data have people who take the same again).

    Raises :class:`SettingsError` for a recipe that does not recommend.
    """
    table, users = recommendation_table(restored, k, exclude_seen)
    path = restored.run.path / FILE
    temporary = path.with_name(f".{FILE}{PART}")
    with writing(path):
        pq.write_table(table, temporary)
        os.replace(temporary, path)
    return {"file": str(path), "users": users, "rows": table.num_rows, "k": k}


def recommendation_table(restored: Restored, k: int = 20, exclude_seen: str = "auto") -> tuple[pa.Table, int]:
    """The table that :func:`recommend_run` writes, and the number of users; raises as it does."""
    if not isinstance(restored.recipe, Recommends):
        raise SettingsError(f"the recipe {restored.recipe.name} does not recommend items; see the ranking of its links")
    if exclude_seen not in get_args(ExcludeSeen):
        raise SettingsError(f"exclude_seen {exclude_seen!r}; it is one of {', '.join(get_args(ExcludeSeen))}")
    if k < 1:
        raise SettingsError(f"k = {k} recommendations a user; it must be 1 or more")
    users, items, scores = cast(Recommends, restored.recipe).recommend(
        restored.model, k, cast(ExcludeSeen, exclude_seen)
    )
    there = items >= 0
    row, place = np.nonzero(there)
    nodes = restored.graph.node_table()
    ids, names = nodes["id"].combine_chunks(), nodes["name"].combine_chunks()
    of_user, of_item = pa.array(users[row]), pa.array(items[there])
    table = pa.table(
        {
            "user_id": ids.take(of_user),
            "user_name": names.take(of_user),
            "rank": pa.array((place + 1).astype(np.int32)),
            "item_id": ids.take(of_item),
            "item_name": names.take(of_item),
            "score": pa.array(scores[there].astype(np.float32)),
        }
    )
    return table, len(users)
