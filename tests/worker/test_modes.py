"""The worker's later stations: what each mode writes for each kind of system, stops, and mistakes."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from graphmill.errors import EXIT_OK, EXIT_STOPPED, EXIT_USER_ERROR
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.interactions_csv import read_sequence
from graphmill.runs.train import train
from graphmill.training.signals import StopRequest
from graphmill.usage.ranking import grouped
from graphmill.worker import __main__ as worker
from tests.systems.conve.graphs import random_graph

QUICK = {"preset": "none", "training": {"epochs": 2}, "acceleration": {"keep_influence": 2}}


@pytest.fixture(scope="module")
def conve(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conve")
    model = {"embedding_dim": 12, "output_channels": 3}
    values = QUICK | {"system": "conve", "model": model, "data": str(random_graph(folder / "graph").path)}
    values["evaluation"] = {"baselines": ["knn"]}
    return Path(train(values, "test", root=str(folder / "runs"))["run_dir"])


@pytest.fixture(scope="module")
def sasrec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sasrec")
    lines = [f"u{user} i{(7 * user + step) % 20} {step}" for user in range(30) for step in range(6)]
    (folder / "views.txt").write_text("\n".join(lines) + "\n")
    tables = read_sequence(folder / "views.txt")
    graph = build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), folder / "graph")
    values = QUICK | {"system": "sasrec", "model": {"embedding_dim": 8}, "data": str(graph.path)}
    return Path(train(values, "test", root=str(folder / "runs"))["run_dir"])


def run(tmp_path: Path, **job: Any) -> int:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({name: str(v) if isinstance(v, Path) else v for name, v in job.items()}))
    return worker.main(["--job", str(path)])


def test_links_are_ranked_on_both_sides(conve: Path, tmp_path: Path) -> None:
    assert run(tmp_path, mode="rank", run_dir=conve) == EXIT_OK
    report = json.loads((conve / "ranking.json").read_text())
    assert (report["kind"], report["split"]) == ("links", "test")
    assert {"comparison", "parts", "predicted"} <= set(report)
    names = [row["name"] for row in report["comparison"]["relations"]]
    assert sum(name.startswith("inverse of") for name in names) == len(names) / 2
    assert 0 < report["comparison"]["micro"]["model"]["mrr"] <= 1


def test_items_are_ranked_with_rivals_and_protocols_apart(sasrec: Path, tmp_path: Path) -> None:
    assert run(tmp_path, mode="rank", run_dir=sasrec) == EXIT_OK
    report = json.loads((sasrec / "ranking.json").read_text())
    assert report["kind"] == "items"
    assert {"model", "popularity", "markov", "session_knn"} <= set(report["figures"])
    assert all("ndcg@10" in figures for figures in report["figures"].values())


def test_a_mode_on_a_run_says_once_that_it_compiles(
    sasrec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    numba = pytest.importorskip("numba")
    from graphmill.usage import recommendations

    def compiling(*_: Any) -> dict[str, Any]:
        for add in (1, 2):
            numba.njit(lambda x, add=add: x + add)(1)
        return {}

    monkeypatch.setattr(recommendations, "recommend_run", compiling)
    assert run(tmp_path, mode="recommend", run_dir=sasrec) == EXIT_OK
    assert capsys.readouterr().err.count("compiling CPU kernels") == 1


def test_recommendations_are_as_many_as_asked_for(sasrec: Path, tmp_path: Path) -> None:
    assert run(tmp_path, mode="recommend", run_dir=sasrec, k=3) == EXIT_OK
    table = pq.read_table(sasrec / "recommendations.parquet")
    assert table.num_rows == 30 * 3
    assert {"user_id", "rank", "item_id", "score"} <= set(table.column_names)


def test_influence_takes_its_settings_and_tells_how_far_it_is(
    conve: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {"max_test_triples": 2, "top_k": 2}
    assert run(tmp_path, mode="influence", run_dir=conve, influence=request) == EXIT_OK
    assert json.loads((conve / "influence" / "test.json").read_text())["num_test_triples"] == 2
    assert "checkpoint 1 of" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["rank", "influence"])
def test_a_later_station_ends_when_it_is_asked_to(
    conve: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    class SelectedLinks(StopRequest):
        def __enter__(self) -> "SelectedLinks":
            self.request("test")
            return self

    monkeypatch.setattr("graphmill.training.signals.StopRequest", SelectedLinks)
    assert run(tmp_path, mode=mode, run_dir=conve) == EXIT_STOPPED


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ({"mode": "influence", "influence": {"top": 3}}, "unknown setting 'top'"),
        ({"mode": "recommend"}, "conve does not recommend"),
    ],
)
def test_mistakes_are_one_sentence(
    conve: Path, tmp_path: Path, job: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, run_dir=conve, **job) == EXIT_USER_ERROR
    output = capsys.readouterr().err
    assert sentence in output
    assert "Traceback" not in output


def test_figures_are_grouped_by_who_made_them() -> None:
    flat = {"ndcg@10": 1.0, "map@20": 2.0, "mrr": 3.0, "item_knn_hit@5": 4.0, "popularity_map@20": 5.0}
    assert grouped(flat | {"popularity_bias@10": 6.0, "seconds": 7.0}) == {
        "model": {"ndcg@10": 1.0, "map@20": 2.0, "mrr": 3.0, "popularity_bias@10": 6.0},
        "item_knn": {"hit@5": 4.0},
        "popularity": {"map@20": 5.0},
    }
