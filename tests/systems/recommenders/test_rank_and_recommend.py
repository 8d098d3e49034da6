"""A recommender's run on the music sample: figures beside the baselines, lists of recommendations, embeddings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from graphmill.evaluation.ranking.comparison import SIMPLER
from graphmill.graph.interactions import knowledge_view
from graphmill.graph.typed_graph import TypedGraph
from graphmill.reports.verdict import run_verdict
from graphmill.runs.export import Restored, export_run, restore
from graphmill.runs.train import train
from graphmill.systems.recommenders.system import RecommenderSystem
from graphmill.usage import baselines as recommender_baseline
from graphmill.usage.ranking import rank_any
from graphmill.usage.recommendations import recommend_run
from tests.graph.test_interactions import built
from tests.systems.recommenders.music import music_graph
from tests.training.runs import Kept


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> TypedGraph:
    return music_graph(repository, tmp_path_factory.mktemp("music") / "graph")


def trained(graph: TypedGraph, root: Path, system: str, **sections: Any) -> Restored:
    values = {
        "system": system,
        "data": str(graph.path),
        "preset": "none",
        "acceleration": {"device": "cpu"},
        **sections,
    }
    return restore(train(values, "test", root=str(root))["run_dir"])


@pytest.fixture(scope="module")
def kgat(graph: TypedGraph, tmp_path_factory: pytest.TempPathFactory) -> Restored:
    return trained(
        graph,
        tmp_path_factory.mktemp("runs") / "kgat",
        "kgat",
        model={"embedding_dim": 16, "layer_dims": [16, 8]},
        training={"epochs": 4, "learning_rate": 0.01},
        evaluation={"eval_every": 2},
    )


def test_the_ranking_stands_beside_every_baseline(kgat: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommender_baseline, "LARGEST_WORK", 25_000)
    rank_any(kgat)
    report = json.loads((kgat.run.path / "ranking.json").read_text(encoding="utf-8"))
    assert report["kind"] == "items"
    assert {"model", "popularity", "item_knn", "ease", "mf"} <= set(report["figures"])
    for figures in report["figures"].values():
        assert {"recall@20", "ndcg@20", "map@20", "hit@20", "mrr@20"} <= set(figures)
    assert {"coverage@20", "popularity_bias@20"} <= set(report["figures"]["model"])
    against, figures = report["against"], report["figures"]
    assert against["figures"]["model"] == pytest.approx(figures["model"]["recall@20"])
    assert against["figures"][against["best"]] == pytest.approx(
        max(figures[n]["recall@20"] for n in SIMPLER if n in figures)
    )
    assert against["low"] < against["figures"]["model"] / against["figures"][against["best"]] < against["high"]
    assert len(list((kgat.run.path.parent / "mf").glob("*/*/report.json"))) == 1


def test_a_baseline_is_chosen_by_the_metric_that_the_run_is_chosen_by(
    kgat: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recommender_baseline, "LARGEST_WORK", 25_000)
    settings = kgat.job.settings
    changed = {"selection_metric": "ndcg@5", "top_k": [5]}
    evaluation = settings.evaluation.model_copy(update=changed)
    other = replace(kgat, job=replace(kgat.job, settings=settings.model_copy(update={"evaluation": evaluation})))
    for run, metric in ((kgat, "recall@20"), (other, "recall@5"), (kgat, "recall@20")):
        figures, of_users = recommender_baseline.mf_figures(recommender_baseline.rival_mf(run), "test", metric)
        assert of_users["mf"].mean() == pytest.approx(figures[f"mf_{metric}"])


def test_a_reused_run_says_by_which_metric_it_was_chosen(graph: TypedGraph, tmp_path: Path) -> None:
    sections = {"training": {"epochs": 2}}
    first = trained(graph, tmp_path, "mf", **sections)
    said = Kept()
    values = {
        "system": "mf", "data": str(graph.path), "preset": "none", "acceleration": {"device": "cpu"}, **sections,
    }  # fmt: skip
    again = train(values, "test", root=str(tmp_path), outlets=[said])
    assert again["reused"]
    assert not [m for m in said.messages if m["kind"] == "note"]
    other = train({**values, "evaluation": {"selection_metric": "ndcg@20"}}, "test", root=str(tmp_path), outlets=[said])
    assert other["run_dir"] == str(first.run.path)
    (note,) = (m["text"] for m in said.messages if m["kind"] == "note")
    assert "evaluation.selection_metric recall@20 (now ndcg@20)" in note
    assert "acceleration.resume: never" in note


def test_baselines_that_are_not_wanted_are_not_trained(kgat: Restored) -> None:
    settings = kgat.job.settings
    evaluation = settings.evaluation.model_copy(update={"baselines": []})
    quiet = replace(kgat, job=replace(kgat.job, settings=settings.model_copy(update={"evaluation": evaluation})))
    assert recommender_baseline.rival_mf(quiet) == {}
    assert recommender_baseline.mf_figures({}, "test", "recall@20") == ({}, {})


def test_a_ranking_that_loses_names_the_command_of_the_simpler_system(tmp_path: Path) -> None:
    """Items of one kind each: a model that has hardly learned is behind item-kNN and EASE."""
    pairs = [(user, 10 * (user % 2) + item, 2 if item == user % 10 else 0) for user in range(40) for item in range(10)]
    graph = built(tmp_path / "graph", pairs, 40, 20)
    run = trained(
        graph,
        tmp_path / "runs",
        "mf",
        model={"embedding_dim": 2},
        training={"epochs": 1, "learning_rate": 1e-6},
        evaluation={
            "baselines": ["item_knn", "ease"],
            "top_k": [2],
            "metrics": ["recall"],
            "selection_metric": "recall@2",
        },
    )
    rank_any(run)
    verdict = run_verdict(run.run.path)
    assert verdict.word == "worse"
    assert "Use the simpler one (`graphmill train " in verdict.sentence


def test_odd_users_and_items_are_ranked_as_said(tmp_path: Path) -> None:
    """User 2 has no training item, user 0 a validation item; items 3 and 4 are in nobody's training list."""
    pairs = [(0, 0, 0), (0, 1, 1), (0, 3, 2), (1, 0, 0), (1, 2, 0), (2, 1, 2)]
    graph = built(tmp_path / "graph", pairs, 3, 5)
    evaluation = {"baselines": [], "top_k": [3], "metrics": ["recall"], "selection_metric": "recall@3"}
    run = trained(
        graph, tmp_path / "run", "mf", model={"embedding_dim": 4}, training={"epochs": 1}, evaluation=evaluation
    )
    lists = pq.read_table(recommend_run(run, 5)["file"]).to_pandas().groupby("user_id")["item_id"].apply(set)
    assert set(lists.index) == {"0"}, (
        "whoever has no training item, or has met all trained ones, gets no recommendations"
    )
    assert lists["0"] == {"2"}, "neither an item that nobody trained on nor one that is known in any split"


def test_recommendations_have_names_and_nothing_that_the_user_knows(kgat: Restored) -> None:
    written = recommend_run(kgat, 5)
    table = pq.read_table(written["file"]).to_pandas()
    assert list(table.columns) == ["user_id", "user_name", "rank", "item_id", "item_name", "score"]
    assert table["item_name"].iloc[0] != table["item_id"].iloc[0]
    assert isinstance(kgat.system, RecommenderSystem)
    view = kgat.system.view
    everything = view.everything()
    known = {(str(u), str(i)) for u, i in zip(everything.row, everything.columns, strict=True)}
    assert not known & set(zip(table["user_id"], table["item_id"], strict=True))
    assert (table.groupby("user_id")["score"].diff().dropna() <= 0).all()
    assert len(table) == 5 * view.num_users


def test_embeddings_have_the_width_of_all_layers_and_a_row_for_every_node(kgat: Restored) -> None:
    export_run(kgat)
    table = pq.read_table(kgat.run.embeddings / "embeddings.parquet")
    assert table.num_rows == kgat.graph.num_nodes
    vectors = np.stack(table["embedding"].to_pylist())
    assert vectors.shape[1] == 16 + 16 + 8
    assert vectors.any(axis=1).all()
    assert isinstance(kgat.system, RecommenderSystem)
    users, items = kgat.system.vectors(kgat.model)
    view = kgat.system.view
    np.testing.assert_allclose(vectors[view.user_offset : view.user_offset + view.num_users], users, rtol=1e-6)
    np.testing.assert_allclose(vectors[view.item_offset : view.item_offset + view.num_items], items, rtol=1e-6)


def test_nodes_that_a_system_knows_nothing_of_get_the_mean_of_their_neighbours(
    graph: TypedGraph, tmp_path: Path
) -> None:
    run = trained(graph, tmp_path, "mf", training={"epochs": 1})
    assert isinstance(run.system, RecommenderSystem)
    rows, facts = run.system.all_vectors(run.model), knowledge_view(graph)
    label = int(facts.tail[facts.relation == facts.names.index("label")][0])
    members = facts.head[facts.tail == label]
    np.testing.assert_allclose(rows[label], rows[members].mean(0), rtol=1e-4, atol=1e-6)
    assert rows.any(axis=1).all()


def test_mf_beats_popularity_on_planted_taste(graph: TypedGraph, tmp_path: Path) -> None:
    run = trained(graph, tmp_path, "mf", training={"epochs": 40}, evaluation={"eval_every": 10})
    result = run.system.evaluate(run.model, "test", final=True, poll=lambda: None)
    assert result["recall@20"] > 1.2 * result["popularity_recall@20"]
    assert result["popularity_bias@20"] > 0
    assert 0 < result["coverage@20"] <= 1


def tail_recall(run: Restored) -> float:
    """Part of the held-out items with few training interactions that is among their users' 20 best."""
    assert isinstance(run.system, RecommenderSystem)
    view, lists = run.system.view, run.system.evaluator.lists(run.system.scorer(run.model).of_users, "test")
    rare = view.train_by_item.counts <= np.median(view.train_by_item.counts)
    result = wanted = 0
    for user, items in zip(lists.users, lists.items, strict=True):
        held_out = view.test.columns[view.test.indptr[user] : view.test.indptr[user + 1]]
        wanted += int(rare[held_out].sum())
        result += int(np.isin(held_out[rare[held_out]], items).sum())
    return result / wanted


@pytest.mark.slow
def test_knowledge_helps_with_rare_tracks(graph: TypedGraph, tmp_path: Path) -> None:
    width, steps = {"embedding_dim": 32}, {"batch_size": 512, "device": "cpu"}
    plain = trained(
        graph,
        tmp_path / "mf",
        "mf",
        model=width,
        acceleration=steps,
        objective={"regularisation": 0.05},
        training={"epochs": 60},
        evaluation={"eval_every": 10, "baselines": []},
    )
    knowing = trained(
        graph,
        tmp_path / "kgat",
        "kgat",
        model={**width, "layer_dims": [32, 16]},
        acceleration=steps,
        objective={"regularisation": 0.01},
        training={"epochs": 6, "learning_rate": 0.005, "init_from": str(plain.run.path)},
        evaluation={"eval_every": 2, "baselines": []},
    )
    assert tail_recall(knowing) > 1.15 * tail_recall(plain)
