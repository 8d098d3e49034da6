"""A graph built in many pieces, with its edges in files and many buckets, is the graph built in one, to the byte."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphmill.errors import InputError, ResourceError
from graphmill.graph.buckets import Buckets, Ranges
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from tests.graph.tables import both_directions, edges_table, nodes_table

TYPES = ("drug", "gene", "disease")
SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "edges as given": {"add_reverse": "never"},
    "some types in another order": {"include_node_types": ["gene", "drug"]},
    "without lonely nodes": {"isolated_nodes": "drop"},
    "a larger share held out": {"split": {"method": "pairs", "valid": 0.2, "test": 0.3, "seed": 7}},
    "nothing held out": {"split": {"valid": 0.0, "test": 0.0}},
}


SMALL_PARTS = {"PIECE": 101, "BUCKET": 64, "SMALL": 0}


def tables(seed: int, rows: int = 900) -> tuple[pa.Table, pa.Table]:
    """Edges of four relations among 90 nodes: repeated, reversed, parallel, with themselves, of one type and of two."""
    rng = np.random.default_rng(seed)
    nodes = nodes_table([TYPES[i % 3] for i in range(90)])
    names = ["treats", "binds", "is a", "rare"]
    kinds = rng.choice(4, rows, p=(0.5, 0.3, 0.19, 0.01))
    head, tail = (rng.random((2, rows)) ** 2 * 90).astype(int)
    tail = np.where(kinds == 2, tail // 3 * 3 + head % 3, tail)
    displays = [f"{names[k]} {rng.integers(3)}" for k in kinds]
    triples = [(names[k], int(h), int(t)) for k, h, t in zip(kinds, head, tail, strict=True)]
    return nodes, edges_table(triples, display_relation=displays)


def in_parts(nodes: pa.Table, edges: pa.Table, settings: GraphSettings, folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL_PARTS.items():
            patch.setattr(f"graphmill.ingest.disk.{name}", value)
        return build_graph(nodes, edges, settings, folder).manifest


def same(nodes: pa.Table, edges: pa.Table, settings: GraphSettings, folder: Path) -> bool:
    whole = build_graph(nodes, edges, settings, folder / "whole").manifest
    return in_parts(nodes, edges, settings, folder / "parts") == whole  # with the hash of every file


@pytest.mark.parametrize("chosen", SETTINGS)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_the_graph_built_in_one(chosen: str, seed: int, tmp_path: Path) -> None:
    nodes, edges = tables(seed)
    assert same(nodes, edges, GraphSettings.model_validate(SETTINGS[chosen]), tmp_path)


def test_so_it_is_where_every_edge_is_written_in_both_directions(tmp_path: Path) -> None:
    nodes, edges = tables(2)
    assert same(nodes, both_directions(edges), GraphSettings(), tmp_path)


@pytest.mark.parametrize("given", ["keep", "redraw"])
def test_so_it_is_with_a_split_weights_and_times_of_its_own(given: str, tmp_path: Path) -> None:
    nodes, edges = tables(3)
    rng = np.random.default_rng(3)
    for name, values in (
        ("split", pa.array(rng.choice(3, len(edges), p=(0.8, 0.1, 0.1)), pa.uint8())),
        ("weight", pa.array(rng.random(len(edges)), pa.float32())),
        ("timestamp", pa.array(rng.integers(0, 99, len(edges)), pa.int64())),
    ):
        edges = edges.append_column(name, values)
    settings = GraphSettings.model_validate({"split": {"given": given, "method": "pairs"}})
    assert same(nodes, edges, settings, tmp_path)


def test_so_it_is_with_triples_of_one_type_and_many_relations(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    triples = [(f"r{rng.integers(40)}", int(h), int(t)) for h, t in rng.integers(0, 60, (1200, 2))]
    assert same(nodes_table(["entity"] * 60), edges_table(triples), GraphSettings(add_reverse="never"), tmp_path)


def test_so_it_is_with_a_split_that_is_drawn_in_memory(tmp_path: Path) -> None:
    nodes, edges = tables(6)
    edges = edges.append_column("timestamp", pa.array(range(len(edges)), pa.int64()))
    settings = GraphSettings.model_validate({"split": {"method": "by_time", "valid": 0.2, "test": 0.2}})
    assert same(nodes, edges, settings, tmp_path)


def test_a_table_in_chunks_is_one_table(tmp_path: Path) -> None:
    nodes, edges = tables(5)
    parts = pa.concat_tables([edges.slice(0, 300), edges.slice(300)])
    whole = in_parts(nodes, edges, GraphSettings(), tmp_path / "a")
    assert in_parts(nodes, parts, GraphSettings(), tmp_path / "b") == whole


def test_a_full_disk_is_told_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(ResourceError, match=r"takes about .* TMPDIR"):
        in_parts(*tables(0), GraphSettings(), tmp_path / "graph")


def test_a_wrong_cell_is_told_with_its_row(tmp_path: Path) -> None:
    nodes, edges = tables(0)
    tail = edges["tail"].to_pylist()
    tail[400] = 90
    wrong = edges.set_column(3, "tail", pa.array(tail, pa.int32()))
    with pytest.raises(InputError, match="row 400: tail = 90"):
        in_parts(nodes, wrong, GraphSettings(), tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_buckets_keep_the_order_in_which_rows_came() -> None:
    buckets = Buckets(np.array([3, 2]), {"x": np.int32})
    buckets.put(np.array([1, 0, 0]), {"x": np.array([10, 20, 30])})
    buckets.put(np.array([0, 1]), {"x": np.array([40, 50])})
    assert [buckets.get(number)["x"].tolist() for number in (0, 1)] == [[20, 30, 40], [10, 50]]
    buckets.replace(0, {"x": np.array([7])})
    assert buckets.get(0)["x"].tolist() == [7]


def test_ranges_hold_about_as_many_rows_each_and_a_popular_number_alone() -> None:
    ranges = Ranges(100)
    ranges.count(np.array([5] * 50 + list(range(100))))
    ranges.cut(40)
    assert ranges.sizes.sum() == 150
    assert ranges.sizes.max() == 51
    assert (np.diff(ranges.of(np.arange(100))) >= 0).all()
