"""The benchmark of links asks for both ends of a directed fact, and makes no fact undirected."""

import pyarrow as pa
from benchmarks.link_quality import with_inverses


def test_a_directed_fact_is_asked_from_both_ends_and_not_reversed() -> None:
    names = pa.array(["isa", "isa", "treats"]).dictionary_encode()
    ends = {"head": pa.array([0, 1, 2], pa.int32()), "tail": pa.array([1, 2, 0], pa.int32())}
    edges = pa.table({"relation": names, **ends, "split": pa.array([0, 2, 1], pa.uint8())})
    rows = [tuple(row.values()) for row in with_inverses(edges).to_pylist()]
    assert sorted(rows) == [
        ("inverse of isa", 1, 0, 0),
        ("inverse of isa", 2, 1, 2),
        ("inverse of treats", 0, 2, 1),
        ("isa", 0, 1, 0),
        ("isa", 1, 2, 2),
        ("treats", 2, 0, 1),
    ]
