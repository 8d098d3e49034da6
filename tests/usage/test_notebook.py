"""The calls of a notebook: files → tables → graph → run, and what a run answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphmill
from graphmill.errors import InputError, SettingsError
from graphmill.predictions import top_tails
from graphmill.runs.messages import Terminal
from tests.usage.test_api import write_kg

TINY: dict[str, Any] = {
    "epochs": 1, "device": "cpu", "progress": False, "model": {"embedding_dim": 8, "hidden_dim": 8, "num_heads": 2},
}  # fmt: skip
RATINGS = "userId,movieId,rating\n" + "".join(
    f"u{user},m{(user * 3 + step) % 23},4\n" for user in range(12) for step in range(8)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def run(folder: Path) -> graphmill.Run:
    write_kg(folder / "kg.csv")
    tables = graphmill.read_edges(folder / "kg.csv")
    return graphmill.train(graphmill.build_graph(tables, folder / "kg" / "graph"), "hgt", **TINY)


@pytest.fixture(scope="module")
def recommender(folder: Path) -> graphmill.Run:
    (folder / "ratings.csv").write_text(RATINGS)
    graph = graphmill.build_graph(graphmill.read_interactions(folder / "ratings.csv"), folder / "films" / "graph")
    return graphmill.train(graph, "mf", epochs=1, device="cpu", progress=False, model={"embedding_dim": 8})


def test_importing_and_reading_pay_for_neither_torch_nor_dagster(folder: Path) -> None:
    write_kg(folder / "light.csv")
    code = f"""import sys, graphmill
print(sorted(set(dir(graphmill)) - {{"__version__"}}) == sorted(set(graphmill.__all__) - {{"__version__"}}))
graphmill.build_graph(graphmill.read_edges({str(folder / "light.csv")!r}), {str(folder / "light")!r})
print([name for name in ("torch", "dagster") if name in sys.modules])"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split("\n")[:2] == ["True", "[]"]


# -- reading ---------------------------------------------------------------------------------------------------------


def test_the_columns_of_another_csv_are_guessed_or_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("source;target;relation\na;b;likes\nb;c;likes\n")
    (tmp_path / "b.csv").write_text("this,that,how\na,b,likes\nb,c,likes\n")
    guessed = graphmill.read_edges(tmp_path / "a.csv")
    assert any("taken for head and tail" in note for note in graphmill.read_edges(tmp_path / "b.csv").notes), (
        "a guess is told"
    )
    named = graphmill.read_edges(tmp_path / "b.csv", columns={"head_id": "this", "tail_id": "that", "relation": "how"})
    assert guessed.edges.num_rows == named.edges.num_rows == 2
    assert guessed.nodes["id"].to_pylist() == named.nodes["id"].to_pylist()
    assert repr(named).startswith("Tables(kg_csv: 2 rows")


def test_features_are_read_onto_the_nodes(folder: Path, recommender: graphmill.Run, tmp_path: Path) -> None:
    tables = graphmill.read_interactions(folder / "ratings.csv")
    (tmp_path / "films.csv").write_text("id,length\n" + "".join(f"m{item},{item}\n" for item in range(23)))
    tables = graphmill.read_features(tables, tmp_path / "films.csv", "item")
    graph = graphmill.build_graph(tables, tmp_path / "graph")
    features = graph.features("item")
    assert features is not None
    assert features.shape == (23, 1)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda file: graphmill.read_edges(file, format="mmrec"), r"read_edges: there is no format 'mmrec' \(known"),
        (lambda file: graphmill.read_edges(file, limit=3), "limit"),
        (lambda file: graphmill.build_graph(graphmill.read_edges(file), valid=0.1), "valid"),
        (lambda file: graphmill.train("nowhere", epoch=3), r"train\(\): unknown setting 'epoch'"),
        (lambda file: graphmill.train("nowhere", "hgt", sampling={"edges": 3}), "unknown setting 'sampling.edges'"),
        (lambda file: graphmill.train("nowhere", "conve", sampling={}), r"train\(\): unknown setting 'sampling'"),
        (lambda file: graphmill.train("nowhere", "hgtt"), "system 'hgtt' is unknown"),
    ],
)
def test_a_typo_is_a_sentence(folder: Path, run: graphmill.Run, call: Any, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        call(folder / "kg.csv")


# -- a run -----------------------------------------------------------------------------------------------------------


def test_a_run_shows_what_it_is_and_how_it_went(run: graphmill.Run) -> None:
    assert repr(run).endswith("hgt, 48 vectors of 8)")
    assert {"valid_mrr", "test_mrr"} <= set(run.metrics)
    assert run.settings["training"]["epochs"] == 1
    assert {"epoch", "valid_mrr"} <= set(run.history.columns)
    assert run.validate().status in ("pass", "warn", "fail")
    page = run.report()
    assert page == repr(page) == page._repr_markdown_()
    assert "48 vectors of 8 numbers" in page
    assert "from epoch 1." in page
    assert "| mrr |" in page


def test_a_notebook_shows_tables_graph_run_and_explanation(folder: Path, run: graphmill.Run) -> None:
    tables, best = graphmill.read_edges(folder / "kg.csv"), run.links(k=1).iloc[0]
    why = run.explain(best.head_id, best.relation, best.tail_id)
    for output, has in (
        (tables, "drug"),
        (run._restored.graph, "edges in train"),
        (run, "valid_mrr"),
        (why, best.relation),
    ):
        page = output._repr_html_()
        assert has in page
        assert "<table" in page


def test_the_same_call_reuses_and_another_file_of_epochs_goes_on(run: graphmill.Run) -> None:
    graph = run.settings["data"]
    assert graphmill.train(graph, "hgt", **TINY).path == run.path
    assert graphmill.load(run.path).metrics == run.metrics


def test_links_are_the_best_that_the_graph_lacks(run: graphmill.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    restored = run._restored
    relation = next(each for each in restored.graph.relations if each.source == "drug")
    source, target = (restored.graph.node_type(name) for name in (relation.source, relation.target))
    scores = (
        restored.system.scorer(restored.model).score_targets(relation.index, np.arange(source.count)).numpy().copy()
    )
    edges = restored.graph.edges(relation.index)
    scores[np.asarray(edges.src), np.asarray(edges.dst)] = -np.inf
    result = run.links(relation=relation.name, k=7)
    result = result[result.head_type == relation.source]
    assert np.allclose(result.score, np.sort(scores[np.isfinite(scores)])[::-1][:7])
    ids = [str(node) for node in run.embeddings.ids]
    of_first = run.links(ids[source.offset], relation.name, k=3)
    assert np.allclose(of_first.score, np.sort(scores[0])[::-1][:3], atol=1e-4)
    assert set(of_first.tail_type) == {target.name}
    monkeypatch.setattr(top_tails, "BLOCK_SCORES", 1)
    assert run.links(relation=relation.name, k=7).equals(run.links(relation=relation.name, k=7))
    assert np.allclose(result.score, run.links(relation=relation.name, k=7).score[: len(result)])


def test_known_links_are_there_when_asked_for(run: graphmill.Run) -> None:
    restored = run._restored
    relation = restored.graph.relations[0]
    count = restored.graph.node_type(relation.target).count
    node = str(run.embeddings.ids[restored.graph.node_type(relation.source).offset])
    new, everything = (run.links(node, relation.name, k=count, known=known) for known in (False, True))
    assert len(everything) == count > len(new)


def test_what_a_run_cannot_answer_is_a_sentence(run: graphmill.Run, recommender: graphmill.Run) -> None:
    with pytest.raises(InputError, match="'cures'"):
        run.links(relation="cures")
    with pytest.raises(InputError, match="has no node 'X'"):
        run.links("X")
    with pytest.raises(SettingsError, match="does not recommend"):
        run.recommend()
    with pytest.raises(SettingsError, match="mf predicts no links but recommends items"):
        recommender.links()
    with pytest.raises(InputError, match="report"):
        _ = graphmill.load(run.path / "embeddings").metrics


def test_recommendations_are_new_items(recommender: graphmill.Run) -> None:
    one = recommender.recommend("u3", k=4)
    assert list(one["rank"]) == [1, 2, 3, 4]
    assert set(one.user_id) == {"u3"}
    everyone = recommender.recommend(k=4)
    assert everyone[everyone.user_id == "u3"].item_id.tolist() == one.item_id.tolist()
    assert not set(one.item_id) & {f"m{(9 + step) % 23}" for step in range(8)}


def test_the_ranking_stands_beside_baselines(recommender: graphmill.Run) -> None:
    table = recommender.rank("valid")
    assert {"model", "popularity"} <= set(table.columns)
    assert "Ranking of the valid split" in recommender.report()


# -- progress --------------------------------------------------------------------------------------------------------


def test_a_notebook_has_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", type("IPython", (), {"get_ipython": staticmethod(lambda: shell)}))
    outlet = Terminal()
    where = {"run_dir": "runs/a", "device": "cpu", "device_reason": "auto"}
    outlet.send({"kind": "started", "reused": False, "epochs": 4, "resumed_from_epoch": 1, "system": "hgt", **where})
    outlet.send({"kind": "progress", "epoch": 3, "epochs": 4, "losses": {"link": 0.5}})
    outlet.send({"kind": "note", "text": "nothing"})
    outlet.close()
    output = capsys.readouterr()
    assert "3/4" in output.err + output.out
    assert "link: 0.5000" in output.err + output.out
