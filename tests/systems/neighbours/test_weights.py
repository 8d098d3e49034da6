"""Weights of edges in spectral vectors, kNN and a blend: counted where validation gains by it, in all that scores links."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import graphmill
from graphmill.evaluation.baselines.neighbours import setting_of
from graphmill.explain.links import explainer_of
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import Restored, export_run, restore
from graphmill.runs.train import train
from graphmill.systems import registry
from graphmill.usage.embed import embed_run, grown_graph, join
from graphmill.usage.exported import Run
from tests.systems.recommenders.test_weights import NICHE, built, renamed

MODELS: dict[str, dict[str, Any]] = {
    "knn": {},
    "spectral": {"embedding_dim": 32},
    "blend": {"embedding_dim": 32, "parts": ["spectral", "knn"]},
}


def trained(name: str, graph: TypedGraph, root: Path) -> Restored:
    values = {"system": name, "preset": "none", "data": str(graph.path), "model": MODELS[name]}
    run = restore(train({**values, "evaluation": {"baselines": []}}, "test", root=str(root))["run_dir"])
    export_run(run)
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Restored]:
    folder = tmp_path_factory.mktemp("rated")
    graph = built(folder / "data")
    return {name: trained(name, graph, folder / name) for name in MODELS}


def settings_of(run: Restored) -> list[Any]:
    system, model = run.system, run.model
    parts: Any = [model.parts[name] for name in system.fitted] if system.name == "blend" else [model]  # type: ignore[union-attr,index,attr-defined]
    return [setting_of(part.array("setting")) for part in parts]


@pytest.mark.parametrize("name", MODELS)
def test_weights_count_where_validation_gains_and_nothing_changes_where_they_are_alike(
    name: str, runs: dict[str, Restored], tmp_path: Path
) -> None:
    assert all(setting.weighted for setting in settings_of(runs[name]))
    if name == "blend":
        return
    without, alike = (trained(name, built(tmp_path / f"{low}", low), tmp_path / f"runs {low}") for low in (None, 5.0))
    assert not settings_of(without)[0].weighted
    for array in without.system.ARRAYS:  # type: ignore[attr-defined]
        np.testing.assert_array_equal(without.model.array(array), alike.model.array(array))
    mrr = [r.system.evaluate(r.model, "test", final=False, poll=lambda: None)["mrr"] for r in (without, runs[name])]
    assert mrr[0] < 0.9 * mrr[1]


@pytest.mark.parametrize("name", MODELS)
def test_links_are_explained_by_the_weights_that_score_them(name: str, runs: dict[str, Restored]) -> None:
    run = runs[name]
    scores = run.system.scorer(run.model).score_targets(0, np.array([3]))[0]
    best = int(scores.argmax())
    first, second = (run.graph.node_type(kind).offset for kind in ("user", "item"))
    explainer = explainer_of(run.system, run.model)
    (why,) = explainer.named([explainer.explain(0, 3 + first, best + second)])
    assert why.score == pytest.approx(float(scores[best]), rel=1e-4)
    assert sum(why.parts.values()) == pytest.approx(why.score, rel=1e-4)
    for pairs in (np.zeros(0, np.int64), np.array([why.evidence[0].pair])):
        rest = explainer.score_without(0, 3 + first, best + second, pairs)
        assert (rest < why.score) if len(pairs) else (rest == pytest.approx(why.score, rel=1e-4))


@pytest.mark.parametrize("name", ["spectral", "blend"])
def test_an_export_scores_as_its_run_and_new_nodes_by_their_weights(
    name: str, runs: dict[str, Restored], tmp_path: Path
) -> None:
    run, heads = runs[name], np.arange(5)
    wanted = run.system.scorer(run.model).score_targets(0, heads).numpy()
    alone = graphmill.load(run.run.path).scorer
    np.testing.assert_allclose(alone.score_targets(0, heads).numpy(), wanted, rtol=1e-4, atol=1e-5)
    embed_run(run, new_users(tmp_path), "new.csv", tmp_path / "grown")
    require_taste(run, Run(tmp_path / "grown").scorer)


def test_knn_scores_new_nodes_by_their_weights(runs: dict[str, Restored], tmp_path: Path) -> None:
    run, tables = runs["knn"], new_users(tmp_path)
    graph = grown_graph(run.graph, tables, join(run.graph, tables, "new.csv", edges_alone=True), tmp_path / "grown")
    before, after = (each.edges(0).weight for each in (run.graph, graph))
    assert before is not None
    assert after is not None
    assert sorted(after.tolist()) == sorted([*before.tolist(), *[5.0] * 8, *[1.0] * 8])
    require_taste(run, registry.create("knn", graph, run.job.settings, "full").scorer(run.model))


@pytest.mark.parametrize("name", ["knn", "spectral"])
def test_confidences_count_as_weights_where_there_are_none(
    name: str, runs: dict[str, Restored], tmp_path: Path
) -> None:
    run = trained(name, built(tmp_path / "sure", name="confidence"), tmp_path / "runs")
    for array in run.system.ARRAYS:  # type: ignore[attr-defined]
        np.testing.assert_array_equal(run.model.array(array), runs[name].model.array(array))
    tables = new_users(tmp_path)
    tables = graphmill.Tables(tables.nodes, renamed(tables.edges, "confidence"), tables.rejects)
    joined = join(run.graph, tables, "new.csv", edges_alone=True)
    graph = grown_graph(run.graph, tables, joined, tmp_path / "grown")
    before, after = (each.edges(0).confidence for each in (run.graph, graph))
    assert before is not None
    assert after is not None
    assert sorted(after.tolist()) == sorted([*before.tolist(), *[5.0] * 8, *[1.0] * 8])
    if name == "knn":
        require_taste(run, registry.create("knn", graph, run.job.settings, "full").scorer(run.model))


def new_users(folder: Path) -> graphmill.Tables:
    """Two users who have rated four items of niche 0 and of niche 1, one with 5 and 1, the other with 1 and 5."""
    likes = {"first": (5, 1), "second": (1, 5)}
    rows = [(u, f"i{n * NICHE + k}", high[n]) for u, high in likes.items() for n in (0, 1) for k in range(4)]
    pd.DataFrame(rows, columns=["user", "item", "rating"]).to_csv(folder / "new.csv", index=False)
    return graphmill.read_interactions(folder / "new.csv")


def require_taste(run: Restored, scorer: Any) -> None:
    """The new users' scores follow their ratings."""
    users, items = run.graph.node_type("user"), run.graph.node_type("item")
    scores = scorer.score_targets(0, np.arange(users.count, users.count + 2)).numpy()
    ids = run.graph.node_table()["id"].to_pylist()[items.offset :][: items.count]
    niche = np.array([int(each[1:]) // NICHE for each in ids])
    of_niches = [[scores[user][niche == number].mean() for number in (0, 1)] for user in (0, 1)]
    assert of_niches[0][0] > 1.2 * of_niches[0][1]
    assert of_niches[1][1] > 1.2 * of_niches[1][0]
