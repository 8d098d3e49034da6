"""Spectral vectors and kNN: the systems are the baselines of their names, and score new nodes without training."""

from pathlib import Path

import numpy as np
import pytest

import graphmill
from graphmill.errors import SettingsError
from graphmill.evaluation.ranking.queries import link_queries
from graphmill.explain.links import explainer_of
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.settings import LinkSettings
from graphmill.runs.export import Restored, export_run, restore
from graphmill.runs.resolve import parse_settings
from graphmill.runs.train import train
from graphmill.usage.baselines import LinkBaselines
from graphmill.usage.links import link_model, write_links
from graphmill.usage.ranking import rank_any
from tests.ingest.kg_text import COLUMNS
from tests.training.cases import CLOSED_LINKS, triples_graph, typed_graph

NAMES = list(CLOSED_LINKS)


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(tmp_path_factory.mktemp("typed") / "graph")


@pytest.fixture(scope="module")
def runs(typed: TypedGraph, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Restored]:
    result = {}
    for name, case in CLOSED_LINKS.items():
        values = case.job(typed).settings.model_dump()
        result[name] = restore(train(values, "test", root=str(tmp_path_factory.mktemp(name)))["run_dir"])
        export_run(result[name])
    return result


@pytest.mark.parametrize("name", NAMES)
def test_it_ranks_as_the_baseline_of_its_name(
    name: str, runs: dict[str, Restored], typed: TypedGraph, tmp_path: Path
) -> None:
    baseline, _ = LinkBaselines(typed, link_queries(typed, "test"), tmp_path, width=16).ranking(name)
    run = runs[name]
    result = run.system.evaluate(run.model, "test", final=True, poll=lambda: None)
    assert result["mrr"] == pytest.approx(baseline.macro["mrr"], rel=1e-5)
    assert result["mrr"] > 0.2
    assert rank_any(run)["mrr"]["model"] == pytest.approx(result["mrr"], rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_links_are_predicted_and_explained_by_edges(name: str, runs: dict[str, Restored], typed: TypedGraph) -> None:
    run, relation = runs[name], typed.relations[0]
    assert write_links(link_model(run.run.path), LinkSettings(k=2, csv=False))["rows"] > 0
    scores = run.system.scorer(run.model).score_targets(relation.index, np.array([3]))[0]
    best = int(scores.argmax())
    head, tail = 3 + typed.node_type(relation.source).offset, best + typed.node_type(relation.target).offset
    explainer = explainer_of(run.system, run.model)
    (why,) = explainer.named([explainer.explain(relation.index, head, tail)])
    assert why.score == pytest.approx(float(scores[best]), rel=1e-4)
    assert why.evidence
    gone = np.array([e.pair for e in why.evidence])
    assert explainer.score_without(relation.index, head, tail, gone) < why.score
    nothing = explainer.score_without(relation.index, head, tail, np.zeros(0, np.int64))
    assert nothing == pytest.approx(why.score, rel=1e-4)


def test_an_export_of_vectors_scores_as_its_run(runs: dict[str, Restored], typed: TypedGraph) -> None:
    run = runs["spectral"]
    alone, of_run = graphmill.load(run.run.path).scorer, run.system.scorer(run.model)
    for relation in typed.relations:
        heads = np.arange(5)
        wanted = of_run.score_targets(relation.index, heads).numpy()
        np.testing.assert_allclose(alone.score_targets(relation.index, heads).numpy(), wanted, atol=1e-5)


def test_graphs_of_triples_are_ranked_on_both_sides(tmp_path: Path) -> None:
    graph = triples_graph(tmp_path / "graph")
    for name, case in CLOSED_LINKS.items():
        _, system = case.build(graph)
        assert len(system.ranking_queries("test").relations) == 2 * len(graph.relations), name


def test_a_new_node_has_links_without_training(runs: dict[str, Restored], typed: TypedGraph, tmp_path: Path) -> None:
    ids, relation = typed.node_table()["id"].to_pylist(), typed.relations[0]
    source, target = typed.node_type(relation.source), typed.node_type(relation.target)
    edges = typed.edges(relation)
    tails = [ids[target.offset + n] for n in edges.dst[(edges.src == 3) & (edges.split == 0)]]
    file = tmp_path / "edges.csv"
    rows = [f"twin,{source.name},{relation.name},{tail},{target.name}\n" for tail in tails]
    file.write_text("head,head_type,relation,tail,tail_type\n" + "".join(rows))
    run = graphmill.load(runs["spectral"].run.path)
    run.embed(file, tmp_path / "later", columns=COLUMNS)
    later = graphmill.load(tmp_path / "later")
    near = later.links("twin", "|".join(relation.key), k=5)
    assert len(near) == 5
    assert not set(near["tail_id"]) & set(tails)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"system": "knn", "model": {"embedding_dim": 4}}, "unknown setting 'model.embedding_dim'"),
        ({"system": "spectral", "training": {"learning_rate": 0.1}}, "learning_rate is not read with spectral"),
        ({"system": "knn", "acceleration": {"processes": 2}}, "processes is not read with knn"),
    ],
)
def test_what_it_cannot_honour_is_refused(values: dict, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_settings(values, "test")


def test_an_explanation_says_what_is_known_of_its_edges(tmp_path: Path) -> None:
    rows = [f"d{n},drug,treats,e{(n + m) % 6},disease,{n + 1},{m / 4},paper {n}" for n in range(12) for m in range(4)]
    rows += [row.rpartition(",")[0] + "," + said for row in rows[:4] for said in ("trial", "")]  # merged into one edge
    header = "head,head_type,relation,tail,tail_type,weight,confidence,evidence"
    (tmp_path / "kg.csv").write_text("\n".join([header, *rows]) + "\n")
    tables = graphmill.read_edges(tmp_path / "kg.csv")
    assert any("confidence is taken for the edge's confidence" in note for note in tables.notes)
    graph = graphmill.build_graph(tables, tmp_path / "graph", split={"valid": 0.1, "test": 0.1})
    run = graphmill.train(graph, "knn", progress=False, evaluation={"baselines": []})
    result = run.explain("d1", "drug|treats|disease", "e2")
    assert result.edges
    for edge in result.edges:
        drug, disease = sorted((edge["head"], edge["tail"]))
        assert edge["weight"] == int(drug[1:]) + 1
        assert edge["confidence"] == (int(disease[1:]) - int(drug[1:])) % 6 / 4
        assert edge["evidence"] == f"paper {drug[1:]}" + " | trial" * (drug == "d0")
