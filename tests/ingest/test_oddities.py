"""Counting what is odd agrees with counting it by hand."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.ingest.graph_files import edge_oddities, node_oddities
from graphmill.ingest.tables import NODES

edge_lists = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 4)), max_size=40)


def by_hand(edges: list[tuple[int, int, int]]) -> dict[str, int]:
    """The definitions, word for word."""
    return {"duplicate_rows": len(edges) - len(set(edges)), "self_loops": sum(h == t for _, h, t in edges)}


def counted(edges: list[tuple[int, int, int]], nodes: int = 5) -> dict[str, int]:
    columns = np.array(edges, dtype=np.int32).reshape(-1, 3).T
    return edge_oddities(*(np.ascontiguousarray(c) for c in columns), nodes)


class TestEdges:
    @settings(deadline=None)
    @given(edges=edge_lists)
    def test_are_counted_as_the_definitions_say(self, edges: list[tuple[int, int, int]]) -> None:
        assert counted(edges) == by_hand(edges)

    def test_node_numbers_up_to_int32_do_not_overflow(self) -> None:
        last = 2**31 - 2
        edges = [(0, last, 0), (0, 0, last), (0, last, last), (0, last, last)]
        assert counted(edges, last + 1) == {"duplicate_rows": 1, "self_loops": 2}

    def test_more_relations_than_16_bits_hold(self) -> None:
        assert counted([(70_000, 0, 1), (70_000, 0, 1), (70_000 - 2**16, 0, 1)])["duplicate_rows"] == 1


def nodes(*rows: tuple[int, str, str]) -> pa.Table:
    index, ids, types = zip(*rows, strict=True)
    columns = [
        list(index),
        list(ids),
        pa.array(types).dictionary_encode(),
        list(ids),
        pa.array(types).dictionary_encode(),
    ]
    return pa.table(columns, NODES)


class TestNodes:
    def test_ids_of_two_types_and_of_two_indices(self) -> None:
        result = node_oddities(nodes((0, "a", "t"), (1, "a", "u"), (2, "b", "t"), (3, "b", "t")))
        assert (result["ids_in_two_types"], result["ids_with_two_indices"]) == (1, 1)

    def test_white_space_and_composition(self) -> None:
        result = node_oddities(nodes((0, "é", "t"), (1, "e\u0301", "t"), (2, "é", "u"), (3, "x ", "t")))
        assert (result["spaced_ids"], result["lookalike_ids"]) == (1, 1)
