"""Nodes that no training edge tells apart, and nodes without one."""

from pathlib import Path

import numpy as np

from graphmill.evaluation.health.figures import row_figures
from graphmill.graph.build import build_graph
from graphmill.graph.co_occurrence import neighbourhood_groups
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.reports.validation import validate_file
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from tests.graph.tables import edges_table, nodes_table

TRAIN, VALID, TEST = 0, 1, 2


def twins(folder: Path) -> TypedGraph:
    """Genes 1 and 2 have the same neighbours; gene 3 has another, gene 4 the same by another relation, gene 5 none in
    training; 40 genes more have neighbours of their own."""
    rng = np.random.default_rng(0)
    others = [("of", 6 + n, int(d)) for n in range(40) for d in rng.choice(np.arange(46, 60), 4, replace=False)]
    given = [("of", 1, 46), ("of", 2, 46), ("of", 3, 47), ("by", 4, 46), ("by", 0, 46), ("by", 0, 48)]
    triples, splits = (
        [*given, *others, ("of", 5, 48)],
        [*[TRAIN] * len(given), *[VALID, TRAIN, TRAIN, TRAIN] * 40, TEST],
    )
    nodes = nodes_table(["gene"] * 46 + ["disease"] * 14)
    return build_graph(nodes, edges_table(triples, split=splits), GraphSettings(), folder)


def test_groups_are_those_of_equal_training_neighbours(tmp_path: Path) -> None:
    graph = twins(tmp_path / "graph")
    ids = graph.node_table()["id"].to_pylist()
    group = dict(zip(ids, neighbourhood_groups(graph).tolist(), strict=True))
    assert group["id1"] == group["id2"] != 0
    assert len({group[f"id{n}"] for n in (1, 3, 4)}) == 3
    assert group["id5"] == 0
    assert sum(value == 0 for value in group.values()) == len(np.flatnonzero(graph.cold_nodes()))


def test_rows_that_the_edges_explain_are_neither_dead_nor_repeats() -> None:
    X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    X[1], X[2], X[5], X[6] = X[0], X[0], 0, 0
    rows = row_figures(X, 3, np.array([1, 1, 2, 3, 4, 0, 5, 6]))
    assert np.flatnonzero(rows.alike).tolist() == [1]  # of the first row's neighbourhood
    assert np.flatnonzero(rows.repeats).tolist() == [2]  # of another
    assert np.flatnonzero(rows.unconnected).tolist() == [5]
    assert np.flatnonzero(rows.dead).tolist() == [6]
    assert np.flatnonzero(~rows.live).tolist() == [5, 6]


def test_vectors_of_edges_alone_are_sound(tmp_path: Path) -> None:
    """A node without a training edge has no spectral vector, and two with the same neighbours have one: by the edges."""
    graph = twins(tmp_path / "graph")
    values = {
        "system": "spectral",
        "data": str(graph.path),
        "model": {"embedding_dim": 8},
        "evaluation": {"baselines": []},
    }
    run = train(values, "test", root=str(tmp_path / "runs"))["run_dir"]
    export_run(restore(run))
    report = validate_file(Path(run))
    assert report.figures.unconnected >= 1
    assert report.figures.alike >= 1
    assert {report.verdict(name).status for name in ("dead_rows", "duplicated_share")} == {"pass"}
    assert "without a training edge" in report.verdict("dead_rows").meaning
