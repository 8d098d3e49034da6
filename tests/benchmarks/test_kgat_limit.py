"""What KGAT's steps are held against at a large graph's shape, counted by hand on a small one."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.kgat_limit import Edges, Machine, Pass, attention_passes, cf_passes, kg_passes, limits


def path(second: int = 0, third: int = 1 << 20) -> Edges:
    """0 – 1 – 2 in both directions, and 3 alone."""
    return Edges(np.array([0, 1, 3, 4, 4]), np.array([1, 0, 2, 1]), second, third)


def test_a_step_touches_only_what_its_nodes_reach_in_as_many_hops_as_there_are_layers_to_come() -> None:
    """The last layer is wanted at node 0, the one before at 0 and 1, whose edges need the vectors of 0, 1 and 2."""
    first, second, back_second, back_first = cf_passes(path(), np.array([0, 0]), (2, 4, 3))
    edges = {"first": 8 * 3, "second": 8 * 1}
    assert first == Pass("forward 1", edges["first"] + 4 * 2 * 3, 4 * 4 * 2, 4 * 2 * 3, 0, 2 * 2 * 2 * 4 * 2)
    assert second == Pass("forward 2", edges["second"] + 4 * 4 * 2, 4 * 3 * 1, 4 * 4 * 1, 0, 2 * 2 * 4 * 3 * 1)
    assert back_second == Pass("backward 2", second.read + 4 * 3 * 1, 4 * 4 * 2, second.rows, 0, 2 * second.products)
    # Adam takes the gradient at once, of all four nodes: vectors and two moments, which are the layer's input as well.
    update = 3 * 4 * 2 * 4
    assert back_first == Pass(
        "backward 1", edges["first"] + 4 * 4 * 2 + update, update, first.rows, 0, 2 * first.products
    )


def test_rows_that_a_near_cache_could_hold_are_not_counted_and_those_that_none_can_come_from_memory() -> None:
    """Node 1 is the tail of two of the four edges; the caches hold so many rows of two numbers."""
    found = {
        (near, beyond): attention_passes(path(near * 8, beyond * 8), [(1, 1)], 2)[0]
        for near, beyond in ((0, 4), (1, 4), (0, 1), (1, 2))
    }
    assert {key: (p.rows, p.remote) for key, p in found.items()} == {
        (0, 4): (4 * 8, 0),
        (1, 4): (2 * 8, 0),
        (0, 1): (4 * 8, 2 * 8),
        (1, 2): (2 * 8, 1 * 8),
    }


def test_attention_projects_heads_and_tails_or_brings_back_heads_whichever_is_less() -> None:
    (found,) = attention_passes(path(), [(3, 2), (1, 5)], 2)
    assert found.products == (5 + 2) * 2 * 2 * 2


def test_facts_move_all_moments() -> None:
    (found,) = kg_passes(10, 2, 7, 4)
    assert found.read == found.written == 3 * 4 * (10 * 4 + 2 * (4 * 4 + 4))
    assert found.products == 3 * 3 * 7 * 2 * 4 * 4


def test_a_pass_takes_its_parts_one_after_the_other_and_at_least_the_slowest() -> None:
    machine = Machine(products=10.0, copy=5.0, read=1.0, third=2.0, second_bytes=0, third_bytes=30)
    parts = Pass("some", 40.0, 35.0, 8.0, 1.0, 50.0)
    assert parts.parts(machine) == {"memory": 3.0, "rows": 4.5, "products": 5.0}
    found = limits({"cf": [parts, parts]}, machine)
    assert (found["cf"], found["cf at once"]) == (pytest.approx(25.0), pytest.approx(10.0))
    assert "2 passes" in found["cf note"]


def test_what_the_caches_hold_costs_no_memory() -> None:
    machine = Machine(products=10.0, copy=5.0, read=1.0, third=2.0, second_bytes=0, third_bytes=100)
    assert Pass("some", 40.0, 35.0, 8.0, 1.0, 50.0).parts(machine)["memory"] == 0.0
