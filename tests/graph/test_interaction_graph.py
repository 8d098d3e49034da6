"""Rows of users as a graph that is read back alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphmill.graph.interaction_graph import write_interactions
from graphmill.graph.interactions import CsrPattern, interaction_view
from graphmill.graph.storage import MANIFEST


def rows(*items: list[int]) -> CsrPattern:
    columns = np.array([i for row in items for i in row], np.int32)
    return CsrPattern(np.cumsum([0, *map(len, items)]), columns)


def test_the_rows_that_were_written_are_read_back_in_their_numbering(tmp_path: Path) -> None:
    """More than ten of both, whose numbers as text have another order; user 3 and items 0 and 12 have nothing."""
    train = rows([1, 11], [2], [10, 3], [], *([user] for user in range(4, 12)))
    valid = rows([2], [], [4], [], *([] for _ in range(8)))
    view = interaction_view(write_interactions({"train": train, "valid": valid}, 13, tmp_path / "graph"))
    assert (view.num_users, view.num_items) == (12, 13)
    for found, written in ((view.train, train), (view.valid, valid)):
        assert found.indptr.tolist() == written.indptr.tolist()
        for user in range(12):
            own = slice(written.indptr[user], written.indptr[user + 1])
            assert found.columns[own].tolist() == sorted(written.columns[own].tolist())
    assert not len(view.test)


def test_the_same_rows_are_left_alone_and_others_replace_them(tmp_path: Path) -> None:
    first = write_interactions({"train": rows([0, 1], [1])}, 2, tmp_path / "graph")
    before = (first.path / MANIFEST).stat().st_ino
    again = write_interactions({"train": rows([0, 1], [1])}, 2, tmp_path / "graph")
    assert (again.path / MANIFEST).stat().st_ino == before
    other = write_interactions({"train": rows([0, 1], [0])}, 2, tmp_path / "graph")
    assert other.content_hash != first.content_hash
    assert interaction_view(other).train.columns.tolist() == [0, 1, 0]
