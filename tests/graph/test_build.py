"""Building: whole or not at all, the same bytes from the same data, reused where nothing changed."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from graphmill.errors import InputError, ResourceError, RunLockedError
from graphmill.graph import storage
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from tests.graph.conftest import triples_of
from tests.graph.tables import nodes_table, random_tables


@pytest.fixture
def tables():
    return random_tables(0, {"drug": 20, "gene": 30}, {"binds": ("drug", "gene", 90), "links": ("gene", "gene", 80)})


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_the_same_tables_give_the_same_bytes_wherever_and_whenever(tables, tmp_path):
    first = build_graph(*tables, GraphSettings(), tmp_path / "a" / "b" / "graph")
    second = build_graph(*tables, GraphSettings(), tmp_path / "elsewhere")
    assert contents(first.path) == contents(second.path)
    code = (
        "import sys; from pathlib import Path; from graphmill.graph.build import build_graph;"
        "from graphmill.graph.settings import GraphSettings; from tests.graph.tables import random_tables;"
        "relations = {'binds': ('drug', 'gene', 90), 'links': ('gene', 'gene', 80)};"
        "t = random_tables(0, {'drug': 20, 'gene': 30}, relations);"
        "print(build_graph(*t, GraphSettings(), Path(sys.argv[1])).content_hash)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "other process")]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.strip() == first.content_hash


def test_the_content_hash_changes_with_the_content_and_not_with_how_it_came_about(tables, build):
    nodes, edges = tables
    hashes = [
        build(nodes, edges).content_hash,
        build(nodes, edges.slice(1)).content_hash,
        build(nodes.set_column(1, "id", pa.array([f"x{i}" for i in range(50)])), edges).content_hash,
        build(nodes, edges, split={"seed": 1}).content_hash,
        build(nodes, edges, add_reverse="never").content_hash,
        build(nodes, edges, {"drug": features_of([0], [[1.0]])}).content_hash,
        build(nodes, edges, {"drug": features_of([0], [[2.0]])}).content_hash,
    ]
    assert len(set(hashes)) == len(hashes)
    repeated = pa.concat_tables([edges, edges.slice(0, 3)])
    assert build(nodes, repeated).content_hash == hashes[0]
    assert build(nodes, edges, include_node_types=[n.as_py() for n in nodes["type"].unique()]).content_hash == hashes[0]


def features_of(rows, values):
    width = len(values[0])
    flat = pa.array(np.array(values, np.float32).ravel())
    return pa.table({"node": pa.array(rows, pa.int32()), "values": pa.FixedSizeListArray.from_arrays(flat, width)})


def test_a_graph_is_readable_for_whoever_may_read_its_parent(tables, tmp_path):
    path = build_graph(*tables, GraphSettings(), tmp_path / "graph").path
    assert path.stat().st_mode & 0o777 == 0o755


def test_a_graph_that_is_there_already_is_left_alone(tables, tmp_path):
    out = tmp_path / "graph"
    build_graph(*tables, GraphSettings(), out)
    before = {path.name: path.stat().st_ino for path in out.iterdir()}
    build_graph(*tables, GraphSettings(), out)
    assert {path.name: path.stat().st_ino for path in out.iterdir()} == before


def test_a_damaged_graph_is_built_anew(tables, tmp_path):
    out = tmp_path / "graph"
    good = contents(build_graph(*tables, GraphSettings(), out).path)
    (out / "src.npy").write_bytes(good["src.npy"][:-4] + b"\0\0\0\0")
    build_graph(*tables, GraphSettings(), out).verify()
    assert contents(out) == good
    (out / "manifest.json").write_text("{")
    build_graph(*tables, GraphSettings(), out).verify()
    assert contents(out) == good


def test_another_graph_takes_the_place_of_the_old_one(tables, tmp_path):
    out = tmp_path / "graph"
    nodes, edges = tables
    build_graph(nodes, edges, GraphSettings(), out, {"drug": features_of([0], [[1.0, 2.0]])})
    replaced = build_graph(nodes, edges.slice(5), GraphSettings(), out)
    replaced.verify()
    assert replaced.features("drug") is None
    assert not list(out.glob("features*"))
    assert [path.name for path in tmp_path.iterdir() if "building" in path.name] == []


def test_a_report_that_changed_is_written_even_where_the_content_is_the_same(tables, tmp_path):
    out = tmp_path / "graph"
    nodes, edges = tables
    first = build_graph(nodes, edges, GraphSettings(), out)
    second = build_graph(nodes, pa.concat_tables([edges, edges.slice(0, 3)]), GraphSettings(), out)
    assert second.content_hash == first.content_hash
    assert second.manifest["report"]["duplicates"] == 3
    assert len(first.edges(0).src) == first.relations[0].edges  # a reader of the first goes on: the content is the same


def test_a_build_that_fails_leaves_nothing_behind_and_the_old_graph_in_place(tables, tmp_path, monkeypatch):
    out = tmp_path / "graph"
    old = contents(build_graph(*tables, GraphSettings(), out).path)

    def full(directory, name, values):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "write_array", full)
    with pytest.raises(ResourceError, match="No space left on device"):
        build_graph(tables[0], tables[1].slice(5), GraphSettings(), out)
    assert contents(out) == old
    assert sorted(path.name for path in tmp_path.iterdir()) == [".graph.lock", ".graph.verified.json", "graph"]


def test_what_a_killed_builder_left_is_removed_by_the_next(tables, tmp_path):
    leftover = tmp_path / ".graph.building-abc"
    leftover.mkdir()
    (leftover / "src.npy").write_bytes(b"half")
    build_graph(*tables, GraphSettings(), tmp_path / "graph")
    assert not leftover.exists()


def test_two_builders_of_one_graph_do_not_mix(tables, tmp_path):
    out = tmp_path / "graph"
    with storage.building(out), pytest.raises(RunLockedError, match="another process is building the graph"):
        build_graph(*tables, GraphSettings(), out)
    build_graph(*tables, GraphSettings(), out)


def test_a_place_that_holds_something_else_is_not_replaced(tables, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="exists and is not a typed graph; choose another path"):
        build_graph(*tables, GraphSettings(), tmp_path / "mine")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="exists and is not a typed graph"):
        build_graph(*tables, GraphSettings(), tmp_path / "file")
    (tmp_path / "empty").mkdir()
    build_graph(*tables, GraphSettings(), tmp_path / "empty").verify()


def test_the_manifest_holds_counts_settings_and_hashes_and_no_path_or_time(tables, tmp_path):
    graph = build_graph(*tables, GraphSettings(split={"seed": 3}), tmp_path / "graph")
    manifest = json.loads((graph.path / "manifest.json").read_text())
    assert manifest["format"] == "graphmill.graph"
    assert manifest["settings"]["split"]["seed"] == 3
    assert set(manifest["files"]) == {path.name for path in graph.path.iterdir()} - {"manifest.json"}
    assert all(len(entry["sha256"]) == 64 for entry in manifest["files"].values())
    assert [r["edges"] for r in manifest["relations"]] == [r.edges for r in graph.relations]
    for relation, described in zip(graph.relations, manifest["relations"], strict=True):
        split = np.bincount(graph.edges(relation).split, minlength=3).tolist()
        assert list(described["split"].values()) == split
    assert str(tmp_path) not in json.dumps(manifest)


def test_a_row_order_of_the_edges_table_does_not_change_the_edges(tables, build):
    nodes, edges = tables
    backwards = edges.take(pa.array(np.arange(len(edges))[::-1].copy()))
    assert triples_of(build(nodes, backwards)) == triples_of(build(nodes, edges))


def test_what_needs_more_memory_than_there_is_is_refused_before_it_begins(tables, tmp_path, monkeypatch):
    monkeypatch.setattr("graphmill.graph.build.available_memory", lambda: 1000)
    with pytest.raises(ResourceError, match=r"takes about .* of memory, and 1000 bytes are free; free memory"):
        build_graph(*tables, GraphSettings(), tmp_path / "graph")
    assert not list(tmp_path.iterdir())


def test_the_work_done_in_python_does_not_grow_with_the_edges(tmp_path):
    calls = {}
    for size in (200, 20_000):
        rng = np.random.default_rng(0)
        ends = rng.integers(0, 300, (2, size))
        edges = pa.table(
            {
                "relation": pa.DictionaryArray.from_arrays(
                    pa.array(rng.integers(0, 3, size, dtype=np.int32)), ["a", "b", "c"]
                ),
                "head": pa.array(ends[0], pa.int32()),
                "tail": pa.array(ends[1], pa.int32()),
            }
        )
        count = 0

        def tick(frame, event, argument):
            nonlocal count
            count += 1

        sys.setprofile(tick)
        try:
            build_graph(nodes_table(["n"] * 300), edges, GraphSettings(), tmp_path / str(size))
        finally:
            sys.setprofile(None)
        calls[size] = count
    assert calls[20_000] < 1.2 * calls[200]
