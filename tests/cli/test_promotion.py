"""``graphmill promote``, ``rollback`` and ``versions`` as a user meets them."""

import gc
import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.errors import GraphmillError, InputError
from graphmill.evaluation.embedding_files import read_embeddings
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from tests.training.cases import CASES, typed_graph
from tests.training.runs import settings_of


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


def latest_promotion(home: Path) -> Any:
    """The last event of ``toy/hgt_promoted``. SQLite fails to read while another connection, as it is closed, removes the
    files beside the database; the next attempt reads."""
    for last in (False, False, True):
        try:
            with dg.DagsterInstance.from_config(str(home)) as instance:
                return instance.get_latest_materialization_event(dg.AssetKey(["toy", "hgt_promoted"]))
        except sa.exc.OperationalError:
            gc.collect()  # closes what the command has left open
            if last:
                raise
    return None


def mistake(*arguments: str) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, InputError), result.exception
    return str(result.exception)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of ``toy/hgt``, the second one far better."""
    folder = tmp_path_factory.mktemp("project") / "data" / "06_models" / "toy"
    graph, out = typed_graph(folder / "graph"), []
    far_better = {"model": {"inputs": "spectral"}, "training": {"epochs": 40, "learning_rate": 0.02}}
    for more in ({"training": {"seed": 1}}, far_better):
        values = settings_of(CASES["hgt-full"], graph, more, {"export": {"csv": False}})
        path = Path(train(values, "test", root=str(folder / "hgt"))["run_dir"])
        export_run(restore(path))
        out.append(path)
    return out


def test_from_promotion_to_rollback(runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    folder = tmp_path / "promoted"
    result = run("promote", str(runs[0]), "--to", str(folder))
    assert isinstance(result.exception, GraphmillError)
    assert result.exception.exit_code == 1
    assert "embeddings are not sound" in str(result.exception)
    first = json.loads(run("promote", str(runs[0]), "--to", str(folder), "--force", "--json").stdout)
    assert (first["outcome"], first["reason"]) == ("promoted", "by hand")
    second = json.loads(run("promote", str(runs[1]), "--to", str(folder), "--if", "better", "--json").stdout)
    assert second["outcome"] == "promoted"
    again = run("promote", str(runs[1]), "--to", str(folder), "--if", "better")
    assert again.exit_code == 1
    assert "is this run already" in again.stdout

    rows = json.loads(run("versions", "toy/hgt", "--folder", str(folder), "--json").stdout)
    assert [row["version"] for row in rows] == [second["version"], first["version"]]
    assert [row["live"] for row in rows] == [True, False]
    assert all(row["by"] and row["when"] and row["why"] for row in rows)
    output = run("versions", "toy/hgt", "--folder", str(folder)).stdout
    assert f"→ {second['version']}" in output
    assert second["version"] in run("versions", "--folder", str(folder)).stdout

    back = json.loads(run("rollback", "toy/hgt", "--folder", str(folder), "--why", "complaints", "--json").stdout)
    assert (back["version"], back["before"], back["reason"]) == (first["version"], second["version"], "complaints")
    moved = run("drift", "toy/hgt", str(runs[1]), "--folder", str(folder), "--out", str(tmp_path / "report"), "--json")
    report = json.loads(moved.stdout)
    assert moved.exit_code == (report["status"] == "fail")
    assert report["against"] == first["version"]
    assert run("drift", "toy/hgt", str(runs[1]), "--folder", str(folder), "--out", str(runs[1] / "drift")).exit_code < 2
    assert f"Compared with {first['version']}." in run("card", str(runs[1])).stdout
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"drift.json"}
    output = run("drift", "toy/hgt", f"toy/hgt/{second['version']}", "--folder", str(folder)).stdout
    assert "Moved most" in output
    assert "node pairs, 0 gone, 0 new" in output

    live = graphmill.load(folder / "toy" / "hgt" / "current")
    assert live.path.name == first["version"]
    vectors = live.to_pandas().filter(regex=r"d\d+")
    for what in ("toy/hgt", f"toy/hgt/{first['version']}", str(runs[0])):
        written = run("export", what, str(tmp_path / "live.parquet"), "--folder", str(folder), "--json")
        assert json.loads(written.stdout)["rows"] == len(live)
        assert read_embeddings(tmp_path / "live.parquet").vectors.tolist() == vectors.to_numpy().tolist()
    assert "'live.xlsx' is not a target" in mistake("export", "toy/hgt", "live.xlsx", "--folder", str(folder))
    assert "toy/gnn is not a run directory, a version" in mistake(
        "export", "toy/gnn", "live.csv", "--folder", str(folder)
    )
    assert len(live["n1"]) == 16


def test_it_is_recorded_where_dagster_has_an_instance(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    made = json.loads(
        run("promote", str(runs[1]), "--to", str(tmp_path / "promoted"), "--why", "looks good", "--json").stdout
    )
    event = latest_promotion(home)
    materialization = event.asset_materialization
    output = {name: value.value for name, value in materialization.metadata.items()}
    assert (output["decision"], output["reason"], output["live_version"]) == ("promoted", "looks good", made["version"])
    assert materialization.tags["dagster/data_version"] == made["version"]
    again = ("promote", str(runs[0]), "--to", str(tmp_path / "promoted"), "--force", "--json")
    second = json.loads(run(*again).stdout)
    run("rollback", "toy/hgt", "--folder", str(tmp_path / "promoted"))
    event = latest_promotion(home)
    assert second["version"] != made["version"]
    assert event.asset_materialization.tags["dagster/data_version"] == made["version"]


def test_mistakes_are_one_sentence(runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    folder = str(tmp_path / "promoted")
    assert "DATASET/MODEL" in mistake("versions", "toy")
    assert "../hgt' is not a model" in mistake("versions", "../hgt")
    assert "has no version of toy/hgt" in mistake("versions", "toy/hgt", "--folder", folder)
    promoted = run("promote", str(runs[1]), "--to", folder)
    assert promoted.exit_code == 0, promoted.exception or promoted.output
    assert "it has versions of: toy/hgt" in mistake("rollback", "toy/ht", "--folder", folder)
    assert "has no version '7'" in mistake("rollback", "toy/hgt", "7", "--folder", folder)
    assert "no older one" in mistake("rollback", "toy/hgt", "--folder", folder)
    assert "better or checks_pass" in mistake("promote", str(runs[1]), "--if", "worse")
    assert "is not a run directory, a version" in mistake("drift", "toy/none", str(runs[0]), "--folder", folder)
    assert "not a run directory" in mistake("promote", str(tmp_path), "--to", folder)
