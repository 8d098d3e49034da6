"""Predicted links of every system that has them, served from the version's folder alone: run and graph are gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from graphmill.predictions import calibration
from graphmill.predictions.settings import LinkSettings
from graphmill.promotion.promote import promote_run
from graphmill.promotion.versions import Versions
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from graphmill.serving import links as served_links
from graphmill.serving.application import application
from graphmill.usage.links import link_model, write_links
from tests.training.cases import CASES, CLOSED_LINKS, typed_graph
from tests.training.runs import settings_of

SYSTEMS = {
    **{"blend": "blend-untrained", "hgt": "hgt-softmax", "layers": "hgt-full", "conve": "conve-kvsall"},
    **{name: name for name in ("complex", "rotate", "transe")},
}
K = 4
Served = Callable[..., tuple[TestClient, list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A client of the version of a run, and the rows of its table; what they were made from is removed."""

    @cache
    def made(
        system: str, *, table: bool = True, keep: bool = False, head: str = ""
    ) -> tuple[TestClient, list[dict[str, Any]]]:
        project = tmp_path_factory.mktemp(system)
        graph = typed_graph(project / "data" / "06_models" / "toy" / "graph")
        values = settings_of(CASES[SYSTEMS[system]], graph, {"training": {"epochs": 1}, "export": {"csv": False}})
        run = Path(train(values, "test", root=str(project / "data" / "06_models" / "toy" / "m"))["run_dir"])
        export_run(restore(run))
        rows: list[dict[str, Any]] = []
        if table:
            write_links(link_model(run), LinkSettings(k=K, median_heads=4, csv=False, heads=[head] if head else []))
            rows = pq.read_table(run / "links" / "links.parquet").to_pylist()
        promote_run(run, Versions(project / "data" / "07_promoted" / "toy" / "m"), by="a test", person=True, force=True)
        if not keep:
            shutil.rmtree(project / "data" / "06_models")
        return TestClient(application(project / "data" / "07_promoted"), base_url="http://127.0.0.1"), rows

    return made


@pytest.fixture(autouse=True)
def small_relations_have_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "LEAST_LINKS", 5)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_table_answers_and_scores_go_on_where_it_ends(
    system: str, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_links, "HELD_GROUPS", 1)
    client, rows = served(system)
    first = next((row for row in rows if row.get("because")), rows[0])
    relation, head = first["relation"], first["head_id"]
    listed = [row for row in rows if (row["relation"], row["head_id"]) == (relation, head)]
    where = f"/v1/toy/m/current/links?id={head}&relation={relation}"
    result = client.get(f"{where}&k={K + 3}").json()["links"]
    assert [link["id"] for link in result[:K]] == [row["tail_id"] for row in listed]
    for name in ("rank", "median_rank", "relative_rank", "probability"):
        assert [link[name] for link in result[:K]] == pytest.approx([row[name] for row in listed], abs=1e-6)
    assert [link["from"] for link in result] == ["table"] * K + ["scores"] * 3
    assert [link["rank"] for link in result] == list(range(1, K + 4))
    scores = [link["score"] for link in result]
    assert scores == sorted(scores, reverse=True)
    assert len({link["id"] for link in result}) == K + 3
    after = client.get(f"{where}&k=3&offset={K}").json()["links"]
    assert after == result[K:]
    assert all(link["probability"] is None for link in after)
    explained = [link["because"] for link in result[:K]]
    assert any(explained) == (system in ("blend", "hgt", "layers"))
    trained = client.get(f"{where}&k=100&known=true").json()["links"]
    assert {link["from"] for link in trained} == {"table", "scores"}
    assert any(link["known"] for link in trained)


def test_without_a_table_every_head_is_scored(served: Served) -> None:
    client, _ = served("conve", table=False)
    result = client.get("/v1/toy/m/current/links?id=n0&k=2").json()["links"]
    assert result
    assert {link["from"] for link in result} == {"scores"}
    assert all(path["steps"] for link in result for path in link["paths"])


def test_of_heads_that_the_table_leaves_out_scores_answer(served: Served) -> None:
    client, rows = served("complex", head="n0")
    kinds = {row["head_id"] for row in rows}
    assert kinds == {"n0"}
    assert {link["from"] for link in client.get("/v1/toy/m/current/links?id=n0&k=2").json()["links"]} == {"table"}
    assert {link["from"] for link in client.get("/v1/toy/m/current/links?id=n1&k=2").json()["links"]} == {"scores"}


@pytest.mark.parametrize("system", ["blend", "conve"])
def test_where_the_run_is_here_an_explanation_is_computed(system: str, served: Served) -> None:
    client, rows = served(system, keep=True)
    row = next((row for row in rows if row.get("because")), rows[0])
    request = f"id={row['head_id']}&relation={row['relation']}&target={row['tail_id']}&edges=4"
    result = client.get(f"/v1/toy/m/current/explain?{request}").json()
    assert (result["from"], result["why_not"]) == ("run", "")
    assert result["target"]["id"] == row["tail_id"]
    assert result["score"] == pytest.approx(row["score"], abs=1e-4)
    assert result["edges"]
    assert {"head", "relation", "tail", "share"} == set(result["edges"][0])
    if system == "blend":
        assert sum(result["parts"].values()) == pytest.approx(row["score"], abs=1e-3)
        assert result["because"] == row["because"].split(" ; ")
    else:
        assert "TracIn" in result["method"]


def test_without_the_run_the_table_says_why(served: Served) -> None:
    client, rows = served("blend")
    row = next(row for row in rows if row["because"])
    where = f"/v1/toy/m/current/explain?id={row['head_id']}&relation={row['relation']}"
    result = client.get(f"{where}&target={row['tail_id']}").json()
    assert result["from"] == "table"
    assert result["because"] == row["because"].split(" ; ")
    assert "is not on this machine" in result["why_not"]
    assert (result["edges"], result["parts"]) == ([], {})


def test_a_system_whose_scores_have_no_edges_says_so(served: Served) -> None:
    client, rows = served("complex", keep=True)
    request = f"id={rows[0]['head_id']}&relation={rows[0]['relation']}&target={rows[0]['tail_id']}"
    answer = client.get(f"/v1/toy/m/current/explain?{request}")
    assert answer.status_code == 404
    assert "complex scores links by its vectors alone" in answer.json()["error"]


def test_a_table_of_another_epoch_does_not_go_with_the_version(tmp_path: Path) -> None:
    graph = typed_graph(tmp_path / "toy" / "graph")
    values = settings_of(CASES["complex"], graph, {"training": {"epochs": 1}, "export": {"csv": False}})
    run = Path(train(values, "test", root=str(tmp_path / "toy" / "m"))["run_dir"])
    export_run(restore(run))
    write_links(link_model(run), LinkSettings(k=2, csv=False))
    report = run / "links" / "links.json"
    report.write_text(report.read_text().replace('"epoch": 1', '"epoch": 7'))
    store = Versions(tmp_path / "promoted" / "toy" / "m")
    result = promote_run(run, store, by="a test", person=True, force=True)
    assert not (Path(result["path"]) / "links.parquet").exists()


def test_a_run_beside_any_folder_of_versions_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = CLOSED_LINKS["knn"].job(typed_graph(tmp_path / "graph")).settings.model_dump()
    run = Path(train(values, "test", root="runs")["run_dir"])
    export_run(restore(run))
    assert not run.is_absolute()
    promote_run(run, Versions(Path("models/toy/m")), by="a test", person=True, force=True)
    monkeypatch.chdir("/")
    client = TestClient(application(tmp_path / "models"), base_url="http://127.0.0.1")
    node = restore(tmp_path / run).graph.node_table()["id"][0].as_py()
    relation = restore(tmp_path / run).graph.relations[0]
    answer = client.get("/v1/toy/m/current/links", params={"id": node, "relation": "|".join(relation.key), "k": 2})
    assert answer.status_code == 200, answer.json()
