"""Evidence of edges: kept by node pair, joined where edges are merged, bounded; other edges have none."""

from pathlib import Path

import numpy as np
import pytest

import graphmill
from graphmill.graph.numbering import LONGEST
from graphmill.graph.typed_graph import TypedGraph


def texts(graph: TypedGraph) -> dict[frozenset[str], str]:
    """The evidence of each pair of ids."""
    ids, count = graph.node_table()["id"].to_pylist(), graph.num_nodes
    keys = np.array([a * count + b for a in range(count) for b in range(a, count)], np.int64)
    return {frozenset((ids[key // count], ids[key % count])): text for key, text in graph.evidence(keys).items()}


def test_files_with_and_without_evidence_are_one_graph(tmp_path: Path) -> None:
    (tmp_path / "treats.csv").write_text("drug,disease,why\nd1,e1,trial 2\nd1,e1,trial 1\nd2,e1,\nd2,e2,trial 1\n")
    (tmp_path / "binds.csv").write_text("drug,gene\nd1,g1\nd2,g1\n")
    columns = {"head_id": "drug", "tail_id": "disease", "evidence": "why"}
    edges = [
        {"file": "treats.csv", "relation": "treats", "head_type": "drug", "tail_type": "disease", "columns": columns},
        {"file": "binds.csv", "relation": "binds", "head_type": "drug", "tail_type": "gene",
         "columns": {"head_id": "drug", "tail_id": "gene"}},
    ]  # fmt: skip
    graph = graphmill.build_graph(graphmill.read_edges(tmp_path, "kg_files", edges=edges), tmp_path / "graph")
    assert texts(graph) == {frozenset(("d1", "e1")): "trial 1 | trial 2", frozenset(("d2", "e2")): "trial 1"}
    again = graphmill.build_graph(graphmill.read_edges(tmp_path, "kg_files", edges=edges), tmp_path / "again")
    assert again.content_hash == graph.content_hash


@pytest.mark.parametrize("evidence", ["", "x" * 2000])
def test_nothing_and_long_texts_are_bounded(tmp_path: Path, evidence: str) -> None:
    rows = f"head,head_type,relation,tail,tail_type,evidence\na,n,r,b,n,{evidence}\nb,n,r,c,n,\n"
    (tmp_path / "kg.csv").write_text(rows)
    tables = graphmill.read_edges(tmp_path / "kg.csv")
    assert any("column evidence is taken for the edge's evidence" in note for note in tables.notes)
    result = texts(graphmill.build_graph(tables, tmp_path / "graph"))
    assert [len(text) for text in result.values()] == ([LONGEST] if evidence else [])
    assert (tmp_path / "graph" / "evidence.arrow").exists() == bool(evidence)
