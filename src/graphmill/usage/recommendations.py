"""Writes the recommendations of a finished run: for every user the best items, as a Parquet file.

This works for systems with a method ``recommend``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, cast, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import nn

from graphmill.atomic_files import replacing, writing
from graphmill.errors import SettingsError
from graphmill.evaluation.ranking.recommendation import ExcludeSeen
from graphmill.parquet import write_parquet
from graphmill.runs.export import Restored

FILE = "recommendations.parquet"
_TEXT = pa.string()
SCHEMA = pa.schema(
    [
        ("user_id", _TEXT), ("user_name", _TEXT), ("rank", pa.int32()),
        ("item_id", _TEXT), ("item_name", _TEXT), ("score", pa.float32()),
    ]
)  # fmt: skip
"""The columns of :data:`FILE`."""


class Recommends(Protocol):
    """A system that can recommend."""

    def recommend(
        self, model: nn.Module, k: int, exclude_seen: ExcludeSeen = "auto"
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return global node numbers of users [U] and of their best items [U, k], best first (−1: none), and scores [U,
        k]."""


def recommend_run(restored: Restored, k: int = 20, exclude_seen: str = "auto") -> dict[str, Any]:
    """Write ``recommendations.parquet`` into the run; returns a report.

    Columns: user_id, user_name, rank (from 1), item_id, item_name, score; items best first. ``exclude_seen`` leaves out
    items of the training: always, never, or auto (it depends on whether users of the system's data repeat items).

    Raises :class:`SettingsError` for a system that does not recommend.
    """
    table, users = recommendation_table(restored, k, exclude_seen)
    return {**write_table(restored.run.path / FILE, table), "users": users, "k": k}


def recommendation_table(restored: Restored, k: int = 20, exclude_seen: str = "auto") -> tuple[pa.Table, int]:
    """The table that :func:`recommend_run` writes, and the number of users; raises as it does."""
    require_counts(restored, k, exclude_seen)
    users, items, scores = cast(Recommends, restored.system).recommend(
        restored.model, k, cast(ExcludeSeen, exclude_seen)
    )
    nodes = restored.graph.node_table()
    ids, names = (nodes[name].to_numpy(zero_copy_only=False) for name in ("id", "name"))
    return as_table((ids[users], names[users]), (ids, names), items, scores), len(users)


def require_counts(restored: Restored, k: int, exclude_seen: str) -> None:
    """Raise :class:`SettingsError` for a system that does not recommend, and for a wrong ``k`` or ``exclude_seen``."""
    if not restored.entry.recommends:
        raise SettingsError(
            f"{restored.system.name} does not recommend items but predicts links: graphmill links (run.links) gives them"
        )
    if exclude_seen not in get_args(ExcludeSeen):
        raise SettingsError(f"exclude_seen {exclude_seen!r}; it is one of {', '.join(get_args(ExcludeSeen))}")
    if k < 1:
        raise SettingsError(f"k = {k} recommendations a user; it must be 1 or more")


def as_table(
    users: tuple[NDArray[np.object_], NDArray[np.object_]],
    items: tuple[NDArray[np.object_], NDArray[np.object_]],
    best: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> pa.Table:
    """Build the table of :func:`recommend_run`.

    ``users``: ids and names [U]; ``items``: ids and names of all items; ``best`` [U, k]: rows of ``items``, best
    first, −1 for none.
    """
    row, place = np.nonzero(best >= 0)
    chosen = best[row, place]
    return pa.table(
        {
            "user_id": users[0][row],
            "user_name": users[1][row],
            "rank": (place + 1).astype(np.int32),
            "item_id": items[0][chosen],
            "item_name": items[1][chosen],
            "score": scores[row, place].astype(np.float32),
        },
        SCHEMA,
    )


def write_table(path: Path, table: pa.Table) -> dict[str, Any]:
    """Write the table atomically; returns the file and the number of rows."""
    with writing(path), replacing(path) as part:
        write_parquet(table, part.file)
    return {"file": str(path), "rows": table.num_rows}
