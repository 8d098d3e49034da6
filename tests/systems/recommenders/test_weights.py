"""Weights of interactions: item-kNN counts what a user has met by its rating where validation gains by it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import graphmill
from graphmill.graph.interactions import interaction_view
from graphmill.graph.splits import TEST, TRAIN, VALID
from graphmill.graph.typed_graph import TypedGraph
from graphmill.usage.exported import Run

NICHE, NICHES = 8, 6
SETTINGS = {"evaluation": {"selection_metric": "recall@5", "top_k": [5], "baselines": []}}


def built(folder: Path, low: float | None = 1.0, name: str = "weight") -> TypedGraph:
    """Each user has met four items of two niches, and likes one of them, whose other items are held out. ``low``: the
    rating of the other niche, beside 5; None: there are no ratings. ``name``: of the column that the graph has of them."""
    rng, rows = np.random.default_rng(0), []
    for user in range(120):
        liked, other = rng.permutation(NICHES)[:2]
        items = liked * NICHE + rng.permutation(NICHE)[:7]
        rows += [(f"u{user}", f"i{i}", 5.0, s) for i, s in zip(items, [TRAIN] * 4 + [VALID] * 2 + [TEST], strict=True)]
        rows += [(f"u{user}", f"i{i}", low or 5.0, TRAIN) for i in other * NICHE + rng.permutation(NICHE)[:4]]
    table = pd.DataFrame(rows, columns=["user", "item", "rating", "split"])
    columns = ["user", "item"] if low is None else ["user", "item", "rating"]
    folder.mkdir()
    table[columns].to_csv(folder / "met.csv", index=False)
    tables = graphmill.read_interactions(folder / "met.csv")
    ids, split = tables.nodes["id"].to_pylist(), {(u, i): s for u, i, _, s in rows}
    ends = (tables.edges[name].to_pylist() for name in ("head", "tail"))
    given = pa.array([split[ids[u], ids[i]] for u, i in zip(*ends, strict=True)], pa.uint8())
    edges = renamed(tables.edges, name).append_column("split", given)
    return graphmill.build_graph(
        graphmill.Tables(tables.nodes, edges, tables.rejects), folder / "graph", add_reverse="never"
    )


def renamed(edges: pa.Table, name: str) -> pa.Table:
    """The edges table with its weights in the column ``name``."""
    return edges.rename_columns([name if column == "weight" else column for column in edges.column_names])


def trained(graph: TypedGraph, folder: Path) -> Run:
    return graphmill.train(graph, "item_knn", output=folder, progress=False, **SETTINGS)


def recall(run: Run) -> float:
    metrics: dict[str, float] = run._restored.system.evaluate(  # type: ignore[attr-defined]
        run._restored.model, "test", final=False, poll=lambda: None
    )
    return metrics["recall@5"]


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("rated")
    return trained(built(folder / "data"), folder / "runs")


def test_ratings_count_where_validation_gains_and_nothing_changes_where_they_are_alike(
    rated: Run, tmp_path: Path
) -> None:
    model = rated._restored.model
    assert model.array("weighted")[0] == 1
    without, alike = (trained(built(tmp_path / f"{low}", low), tmp_path / f"runs {low}") for low in (None, 5.0))
    assert without._restored.model.array("weighted")[0] == 0
    for name in without._restored.system.ARRAYS:  # type: ignore[attr-defined]
        np.testing.assert_array_equal(without._restored.model.array(name), alike._restored.model.array(name))
    assert recall(without) == recall(alike) < 0.7 < recall(rated)


def test_a_new_users_ratings_count_like_those_of_the_training(rated: Run, tmp_path: Path) -> None:
    likes = {"first": (5, 1), "second": (1, 5), "neither": (3, 3)}
    rows = [
        (user, f"i{niche * NICHE + n}", high[niche]) for user, high in likes.items() for niche in (0, 1) for n in (0, 1)
    ]
    pd.DataFrame(rows, columns=["user", "item", "rating"]).to_csv(tmp_path / "history.csv", index=False)
    result = rated.recommend(history=tmp_path / "history.csv", k=6)
    niche = result.item_id.str[1:].astype(int) // NICHE
    assert niche[result.user_id == "first"].tolist() == [0] * 6
    assert niche[result.user_id == "second"].tolist() == [1] * 6
    assert set(niche[result.user_id == "neither"]) == {0, 1}
    alone = rated.recommend(history=["i0", "i1", "i8", "i9"], k=6)  # without ratings all count alike
    assert alone.item_id.tolist() == result[result.user_id == "neither"].item_id.tolist()


def test_a_known_users_history_begins_with_its_ratings(rated: Run, tmp_path: Path) -> None:
    """Seven items of the liked niche with a 5 in the graph count more than seven of a third one with a 4 in the file."""
    graph = rated._restored.graph
    view, ids = interaction_view(graph), graph.node_table()["id"].to_pylist()
    user = ids.index("u7") - view.user_offset
    met = {ids[view.item_offset + int(i)] for i in view.everything().columns[view.everything().row == user]}
    niches = [[f"i{niche * NICHE + n}" for n in range(NICHE)] for niche in range(NICHES)]
    liked = max(niches, key=lambda items: len(met & set(items)))
    third = next(items for items in niches if not met & set(items))
    rows = [("u7", item, 4.0) for item in third[:7]]
    pd.DataFrame(rows, columns=["user", "item", "rating"]).to_csv(tmp_path / "history.csv", index=False)
    result = rated.recommend(history=tmp_path / "history.csv", k=2)
    assert result.item_id[0] == (set(liked) - met).pop()
    assert result.item_id[1] == third[7]


def test_weights_are_relative_to_the_mean_of_the_training(tmp_path: Path) -> None:
    edges = built(tmp_path / "data").edges(0)
    assert edges.weight is not None
    relative = edges.relative_weights()
    assert relative is not None
    train = np.asarray(edges.split) == TRAIN
    np.testing.assert_allclose(relative[train].mean(), 1.0, rtol=1e-5)
    np.testing.assert_allclose(edges.relative_weights(np.array([np.nan, 3.0, 6.0])), [1.0, 1.0, 2.0])
    for useless in (np.full(len(train), 2.0, np.float32), np.where(train, -1, 5).astype(np.float32), None):
        object.__setattr__(edges, "weight", useless)
        assert edges.relative_weights() is None
