"""Reading a graph: the arrays of the contract, and every way in which a directory can be wrong."""

import json
import os
import pickle
import subprocess
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill import verified_files
from graphmill.errors import InputError
from graphmill.graph import storage
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from tests.graph.conftest import triples_of
from tests.graph.tables import edges_table, nodes_table, random_tables


@pytest.fixture
def graph(build):
    return build(
        *random_tables(
            0, {"drug": 20, "gene": 30, "lonely": 4}, {"binds": ("drug", "gene", 90), "links": ("gene", "gene", 80)}
        )
    )


def edit_manifest(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.update(changes)
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_edges_are_sorted_by_destination_then_source_with_row_pointers(graph):
    for relation in graph.relations:
        edges = graph.edges(relation)
        assert (edges.src.dtype, edges.dst.dtype, edges.pair.dtype) == (np.int32,) * 3
        assert (edges.indptr.dtype, edges.split.dtype) == (np.int64, np.uint8)
        order = list(zip(edges.dst.tolist(), edges.src.tolist(), strict=True))
        assert order == sorted(order)
        count = graph.node_type(relation.target).count
        assert len(edges.indptr) == count + 1
        assert (edges.indptr[0], edges.indptr[-1]) == (0, relation.edges)
        assert np.array_equal(np.repeat(np.arange(count), np.diff(edges.indptr)), edges.dst)
        assert edges.src.max() < graph.node_type(relation.source).count
        assert edges.weight is None
        assert edges.timestamp is None


def test_pairs_are_numbered_over_the_whole_graph(graph):
    ends = {}
    for relation in graph.relations:
        edges = graph.edges(relation)
        a = edges.src + graph.node_type(relation.source).offset
        b = edges.dst + graph.node_type(relation.target).offset
        for pair, *nodes in zip(edges.pair.tolist(), a.tolist(), b.tolist(), strict=True):
            ends.setdefault(pair, set()).add(frozenset(nodes))
    assert sorted(ends) == list(range(graph.num_pairs))
    assert all(len(nodes) == 1 for nodes in ends.values())  # one pair of nodes a number,
    assert len(set().union(*ends.values())) == graph.num_pairs  # and one number a pair of nodes


def test_arrays_are_mapped_read_only_and_opened_once(graph):
    edges = graph.edges(0)
    assert edges is graph.edges(graph.relations[0])
    base = edges.src
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        edges.src[0] = 1


def test_opening_reads_the_manifest_alone(graph, monkeypatch):
    monkeypatch.setattr(storage, "read_array", lambda *_: pytest.fail("an array was opened"))
    opened = TypedGraph.open(graph.path)
    assert (opened.num_nodes, opened.num_edges, opened.num_pairs) == (54, 340, 170)
    assert opened.content_hash == graph.content_hash
    assert repr(opened).endswith("54 nodes of 3 types, 340 edges in 3 relations)")


def test_edge_attributes_go_with_their_edges_and_with_added_reverses(build):
    edges = edges_table([("r", 0, 2), ("r", 1, 2), ("r", 0, 1)], weight=[0.5, 1.5, 2.5], timestamp=[10, 2**40, -3])
    graph = build(nodes_table(["a", "a", "b"]), edges)
    seen = {}
    for relation in graph.relations:
        got = graph.edges(relation)
        assert (got.weight.dtype, got.timestamp.dtype) == (np.float32, np.int64)
        for s, d, weight, when in zip(got.src, got.dst, got.weight, got.timestamp, strict=True):
            seen[relation.source, int(s), relation.target, int(d)] = (float(weight), int(when))
    expected = {("a", 0, "b", 0): (0.5, 10), ("a", 1, "b", 0): (1.5, 2**40), ("a", 0, "a", 1): (2.5, -3)}
    assert seen == expected | {(c, d, a, b): value for (a, b, c, d), value in expected.items()}
    assert graph.describe()["edge_attributes"] == ["weight", "timestamp"]


def test_the_description_is_plain_and_complete(graph):
    described = json.loads(json.dumps(graph.describe()))
    assert described["nodes"] == 54
    assert described["node_types"] == {"drug": 20, "gene": 30, "lonely": 4}
    assert described["relations"] == {"drug | binds | gene": 90, "gene | links | gene": 160, "gene | binds | drug": 90}
    assert sum(described["split"].values()) == described["edges"] == 340
    assert described["isolated_nodes"]["lonely"] == 4
    assert described["leakage"]["leaked_pairs"] == 0
    assert described["content_hash"] == graph.content_hash


def test_a_pickled_graph_is_its_path(graph):
    graph.edges(0)
    data = pickle.dumps(graph)
    assert len(data) < 500
    assert triples_of(pickle.loads(data)) == triples_of(graph)


def test_unknown_node_types_and_relations_are_named_with_the_known_ones(graph):
    with pytest.raises(InputError, match="no node type 'protein'; it has 'drug', 'gene', 'lonely'"):
        graph.node_type("protein")
    with pytest.raises(InputError, match=r"no relation .*; it has \('gene', 'links', 'gene'\), "):
        graph.relation("drug", "links", "gene")
    assert graph.relation("gene", "binds", "drug").added_reverse


def test_a_directory_without_a_graph_says_what_to_do(tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(InputError, match=r"no manifest\.json; build the graph"):
            TypedGraph.open(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "graphmill.embeddings"}, "describes 'graphmill.embeddings', not a typed graph"),
        ({"version": 0}, "older than 1: build the graph again"),
        (
            {"version": 2, "written_by": "graphmill 9.9"},
            "written by graphmill 9.9; this version reads 1: update graphmill",
        ),
        ({"num_edges": 7}, "its contents do not match its content_hash"),
    ],
)
def test_manifests_of_other_formats_and_versions_are_refused(graph, changes, message):
    edit_manifest(graph.path, **changes)
    with pytest.raises(InputError, match=message):
        TypedGraph.open(graph.path)


@pytest.mark.parametrize("text", ["", "{", "[]", "\udcff"])
def test_a_manifest_that_cannot_be_read_is_refused(graph, text):
    (graph.path / "manifest.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"manifest\.json"):
        TypedGraph.open(graph.path)


@pytest.mark.parametrize("name", ["src.npy", "indptr.npy", "pair.npy", "nodes.arrow"])
def test_truncated_and_missing_files_are_named_on_opening(graph, name):
    path = graph.path / name
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=rf"{name} is damaged: it has \d+ bytes; the manifest says \d+"):
        TypedGraph.open(graph.path)
    path.unlink()
    with pytest.raises(InputError, match=f"{name} is damaged: it is missing; build the graph again"):
        TypedGraph.open(graph.path)


def flip(path, at=-9):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["split.npy", "src.npy", "dst.npy", "nodes.arrow"])
@pytest.mark.parametrize("damage", ["flipped", "zeroed"])
def test_damage_that_keeps_the_size_is_found_on_opening_and_the_file_named(graph, name, damage):
    TypedGraph.open(graph.path)
    path = graph.path / name
    flip(path) if damage == "flipped" else path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(InputError, match=rf"{name} is damaged: its SHA-256 is not .*; build the graph again from its"):
        TypedGraph.open(graph.path)


def test_files_are_hashed_when_they_are_new_or_changed_and_not_again(graph, monkeypatch):
    hashed = []
    plain = verified_files.describe_file
    monkeypatch.setattr(verified_files, "describe_file", lambda path: hashed.append(path.name) or plain(path))
    TypedGraph.open(graph.path)
    assert hashed == [], "the builder has hashed them"
    os.utime(graph.path / "src.npy")
    TypedGraph.open(graph.path)
    TypedGraph.open(graph.path)
    assert hashed == ["src.npy"]
    moved = graph.path.rename(graph.path.with_name("moved"))
    TypedGraph.open(moved)
    assert len(hashed) == 1 + len(graph.manifest["files"]), "nothing is known of another place"
    TypedGraph.open(moved, verify="always")
    assert len(hashed) == 1 + 2 * len(graph.manifest["files"])


def damaged_unseen(graph):
    """Changes ``split.npy`` as a disk would: size, times and inode are those at the last verification."""
    path = graph.path / "split.npy"
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\2")
    note = verified_files.note_of(graph.path)
    marks = json.loads(note.read_text())
    for records in (marks, verified_files._of_this_process):
        for name, (since, digest, *_) in list(records.items()):
            if name.endswith("split.npy"):
                records[name] = [since, digest, *verified_files._mark(path.stat())]
    note.write_text(json.dumps(marks))


def test_damage_that_leaves_no_trace_is_found_where_every_opening_verifies_or_after_a_week(graph, monkeypatch):
    damaged_unseen(graph)
    assert TypedGraph.open(graph.path)
    with pytest.raises(InputError, match=r"split\.npy is damaged"):
        TypedGraph.open(graph.path, verify="always")
    with pytest.raises(InputError, match=r"split\.npy is damaged"):
        graph.verify()
    later = time.time() + verified_files.VALID_SECONDS + 1
    monkeypatch.setattr(verified_files.time, "time", lambda: later)
    with pytest.raises(InputError, match=r"split\.npy is damaged"):
        TypedGraph.open(graph.path)


def test_a_copy_or_a_time_set_back_does_not_carry_the_note_along(graph, tmp_path_factory):
    path = graph.path / "split.npy"
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    copy = tmp_path_factory.mktemp("copy") / "copy"
    subprocess.run(["cp", "-a", str(graph.path.parent), str(copy)], check=True)
    for place in (graph.path, copy / graph.path.name):
        with pytest.raises(InputError, match=r"split\.npy is damaged"):
            TypedGraph.open(place)


def test_what_was_verified_may_be_forgotten_or_damaged(graph):
    book = graph.path.parent / f".{graph.path.name}.verified.json"
    for text in ("{", "[]", "{}", '{"src.npy": 5}'):
        book.write_text(text)
        assert TypedGraph.open(graph.path).num_edges == graph.num_edges


def test_a_node_table_that_is_no_arrow_file_is_named(graph):
    path = graph.path / "nodes.arrow"
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(InputError, match=r"nodes\.arrow is damaged"):
        TypedGraph.open(graph.path).node_table()


def test_a_graph_that_was_replaced_after_it_was_opened_does_not_mix_old_and_new_files(graph):
    old = TypedGraph.open(graph.path)
    src = graph.edges(0).src.copy()
    build_graph(nodes_table(["n"] * 2), edges_table([("r", 0, 1)]), GraphSettings(), graph.path)
    assert np.array_equal(graph.edges(0).src, src)  # mapped before: still the old graph
    with pytest.raises(InputError, match=r"was replaced .*open it again"):
        old.edges(0)


@settings(max_examples=20, deadline=None)
@given(
    types=st.lists(st.sampled_from(["a", "b", "c"]), min_size=2, max_size=8),
    ends=st.lists(
        st.tuples(st.sampled_from(["r", "s"]), st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=30
    ),
    add_reverse=st.sampled_from(["missing", "never"]),
)
def test_any_multigraph_survives_the_way_to_disk_and_back(tmp_path_factory, types, ends, add_reverse):
    triples = [(name, head % len(types), tail % len(types)) for name, head, tail in ends]
    out = tmp_path_factory.mktemp("any") / "graph"
    graph = build_graph(nodes_table(types), edges_table(triples), GraphSettings(add_reverse=add_reverse), out)
    expected = {(100 + head, name, 100 + tail) for name, head, tail in triples}
    if add_reverse == "missing":
        expected |= {(tail, name, head) for head, name, tail in expected}
    assert [edge[:3] for edge in triples_of(graph)] == sorted(expected)
