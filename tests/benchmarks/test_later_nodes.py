"""Nodes that join later, on the shipped sample: their links are ranked nearly as well as after a retraining."""

from pathlib import Path

from benchmarks.parts import later_nodes

from graphmill.api import build_graph, read_edges
from graphmill.ingest.samples import write_sample

SETTINGS = {
    "system": "blend",
    "preset": "none",
    "model": {"embedding_dim": 256, "parts": ["spectral", "knn", "paths"]},
    "acceleration": {"device": "cpu"},
}


def test_hidden_nodes_keep_four_fifths_of_what_a_retraining_gives_them(tmp_path: Path) -> None:
    path = write_sample("biomed", tmp_path)
    graph = build_graph(read_edges(path), tmp_path / "graph")
    result = [later_nodes.measure(graph, SETTINGS, tmp_path / str(seed), seed) for seed in (0, 1)]
    assert all(each["queries"] > 50 for each in result)
    assert sum(each["ours"] for each in result) >= 0.8 * sum(each["theirs"] for each in result)


def test_a_system_without_vectors_takes_part(tmp_path: Path) -> None:
    graph = build_graph(read_edges(write_sample("biomed", tmp_path)), tmp_path / "graph")
    few = {"training": {"epochs": 1, "steps_per_epoch": 30}, "model": {"hidden_dim": 8}, "preset": "none"}
    settings = {"system": "nbfnet", "acceleration": {"device": "cpu"}, **few}
    result = later_nodes.measure(graph, settings, tmp_path / "runs")
    assert result["queries"] > 50
    assert result["ours"] >= 0.5 * result["theirs"]
