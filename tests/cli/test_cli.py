"""The command line as a user meets it: exit codes, one sentence per mistake, JSON for programs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app, entry
from graphmill.errors import GraphmillError
from graphmill.runs.resolve import merge
from graphmill.training.run_directory import RunDirectory
from tests.graph.test_interactions import built
from tests.training.cases import CASES, typed_graph

KGAT = str(Path(__file__).resolve().parents[2] / "examples" / "recommenders" / "kgat_per_gpu.yaml")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    graph = typed_graph(folder / "graph")
    path = folder / "settings.yaml"
    values = merge(CASES["hgt-full"].settings, {"evaluation": {"baselines": ["knn"]}})
    path.write_text(yaml.safe_dump({"system": "hgt", "data": str(graph.path), **values}))
    return path


@pytest.fixture(scope="module")
def trained(settings: Path) -> dict[str, Any]:
    return json.loads(run("train", str(settings), "--set", "training.epochs=3", "--json").stdout)  # type: ignore[no-any-return]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


def mistake(*arguments: str) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, GraphmillError), result.exception
    assert result.exception.exit_code == 2
    return str(result.exception)


def test_training_trains_exports_and_is_reused(settings: Path, trained: dict[str, Any]) -> None:
    assert trained["epochs_done"] == 3
    assert trained["exported"] == ["embeddings.csv", "embeddings.parquet", "relations.safetensors"]
    assert {"valid_mrr", "test_mrr", "test_hits@10", "test_amri"} <= set(trained["metrics"])
    again = json.loads(run("train", str(settings), "--set", "training.epochs=3", "--json").stdout)
    assert again["reused"]
    assert again["run_dir"] == trained["run_dir"]


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout.strip() == f"graphmill {graphmill.__version__}"


def test_evaluate_gives_the_figures_of_the_training(trained: dict[str, Any]) -> None:
    result = json.loads(run("evaluate", trained["run_dir"], "--json").stdout)
    assert result["test"]["mrr"] == pytest.approx(trained["metrics"]["test_mrr"])
    last = json.loads(run("evaluate", trained["run_dir"], "--checkpoint", "3", "--json").stdout)
    assert last["epoch"] == 3


def test_a_command_on_a_run_says_once_that_it_compiles(
    trained: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    numba = pytest.importorskip("numba")
    from graphmill.runs import export

    whole = export.evaluate_run

    def compiling(*arguments: Any) -> Any:
        for add in (1, 2):
            numba.njit(lambda x, add=add: x + add)(1)
        return whole(*arguments)

    monkeypatch.setattr(export, "evaluate_run", compiling)
    result = run("evaluate", trained["run_dir"], "--json")
    assert result.stderr.count("note: compiling CPU kernels") == 1
    json.loads(result.stdout)  # a program still reads JSON alone
    monkeypatch.undo()
    numba.njit(lambda x: x - 1)(1)
    assert "compiling" not in run("evaluate", trained["run_dir"]).stderr


def test_recommend_writes_the_best_new_items_and_a_model_of_links_has_none(
    trained: dict[str, Any], tmp_path: Path
) -> None:
    pairs = [(u, i, 0 if (u + i) % 5 else 2) for u in range(20) for i in range(12) if (u + i) % 3]
    graph = built(tmp_path / "graph", pairs, 20, 12)
    path = tmp_path / "settings.yaml"
    values = {"system": "mf", "data": str(graph.path), "training": {"epochs": 1}, "evaluation": {"baselines": []}}
    values["evaluation"] |= {"top_k": [3], "selection_metric": "recall@3"}
    path.write_text(yaml.safe_dump(values))
    of = json.loads(run("train", str(path), "--json").stdout)["run_dir"]
    result = json.loads(run("recommend", of, "--k", "3", "--json").stdout)
    table = pq.read_table(result["file"]).to_pandas()
    assert (result["k"], result["rows"], list(table["rank"][:3])) == (3, len(table), [1, 2, 3])
    assert "recommendations.parquet" in run("recommend", of).stdout.replace("\n", "")
    assert "does not recommend items" in mistake("recommend", trained["run_dir"])


def test_rank_has_the_baselines_beside_the_model(trained: dict[str, Any], tmp_path: Path) -> None:
    result = json.loads(run("rank", trained["run_dir"], "--json").stdout)
    assert set(result["figures"]) == {"model", "degree", "knn"}
    assert result["against"]["best"] in ("degree", "knn")
    assert result["against"]["best"] in result["against"]["ratios"]
    assert result["figures"]["model"]["mrr"] == pytest.approx(trained["metrics"]["test_mrr"])
    pairs = [(u, i, (u + i) % 5 // 3 + (u + i) % 5 // 4) for u in range(20) for i in range(12) if (u + i) % 3]
    values = {"system": "kgat", "data": str(built(tmp_path / "graph", pairs, 20, 12).path), "training": {"epochs": 1}}
    values["evaluation"] = {"top_k": [3], "selection_metric": "recall@3"}
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(values))
    of = json.loads(run("train", str(path), "--json").stdout)["run_dir"]
    figures = json.loads(run("rank", of, "--split", "valid", "--json").stdout)["figures"]
    assert set(figures) == {"model", "popularity", "item_knn", "ease", "mf"}
    assert all("recall@3" in scores for scores in figures.values())
    assert "mf" in run("rank", of).stdout
    assert "valid or test" in mistake("rank", of, "--split", "train")


def test_estimate_lists_the_ways_and_its_exit_code_says_whether_one_fits(settings: Path) -> None:
    result = run("estimate", str(settings), "--json")
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    assert not output["refused"]
    # What is free changes from one call to the next.
    chosen = output["sentence"].partition(" fits ")[0]
    assert chosen in " ".join(run("estimate", str(settings)).output.split())
    refused = run("estimate", str(settings), "--set", "acceleration.memory_budget=100MiB", "--json")
    assert refused.exit_code == 1
    assert "nothing fits 100 MiB" in json.loads(refused.stdout)["sentence"]


def test_validate_judges_and_its_exit_code_says_so(trained: dict[str, Any], tmp_path: Path) -> None:
    result = run("validate", trained["run_dir"], "--json")
    assert result.exit_code == (1 if json.loads(result.stdout)["status"] == "fail" else 0)
    vectors = np.ones((300, 8), dtype=np.float32) + np.random.default_rng(0).normal(scale=1e-4, size=(300, 8))
    np.save(tmp_path / "e.npy", vectors.astype(np.float32))
    (tmp_path / "e.ids.txt").write_text("".join(f"drug\tn{i}\n" for i in range(300)))
    collapsed = run("validate", str(tmp_path / "e.npy"), "--json")
    assert collapsed.exit_code == 1
    failing = [each["name"] for each in json.loads(collapsed.stdout)["verdicts"] if each["status"] == "fail"]
    assert "mean_cosine" in failing


def test_a_report_on_a_file_that_cannot_be_used_ends_as_a_mistake_does(tmp_path: Path) -> None:
    for more in ([], ["--json"]):
        result = run("ingest-report", str(tmp_path / "nothing.csv"), *more)
        assert result.exit_code == 2
        assert "does not exist" in result.stdout


def test_neighbours_and_the_python_interface_agree(trained: dict[str, Any]) -> None:
    result = json.loads(run("neighbors", trained["run_dir"], "n3", "-k", "4", "--json").stdout)
    run_ = graphmill.load(trained["run_dir"])
    assert [row["node_id"] for row in result] == run_.neighbors("n3", k=4)["node_id"].tolist()
    assert "n3" not in [row["node_id"] for row in result]
    assert run_["n3"].shape == (16,)
    assert run_.to_pandas().shape == (len(run_), 4 + 16)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "no.yaml"), "does not exist"),
        (("train", "{settings}", "--set", "training.epochs"), "section.name=value"),
        (("train", "{settings}", "--set", "training.epoch=3"), "unknown setting 'training.epoch'"),
        (("train", "{settings}", "--set", "data=nowhere"), "nowhere"),
        (
            ("train", KGAT, "--set", "acceleration.compile=default"),
            "compile: default is not for kgat, which has nothing",
        ),
        (("evaluate", "nowhere"), "not a run directory"),
        (("evaluate", "{run}", "--checkpoint", "77"), "77"),
        (("validate", "nowhere.parquet"), "nowhere.parquet"),
        (("neighbors", "{run}", "no such node"), "no such node"),
        (("prune", "nowhere"), "not a folder"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: tuple[str, ...], words: str, settings: Path, trained: dict[str, Any]
) -> None:
    sentence = mistake(*[a.format(settings=settings, run=trained["run_dir"]) for a in arguments])
    assert words in sentence
    assert "\n" not in sentence


def test_a_mistake_shows_no_traceback_and_ends_with_two() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "graphmill.cli", "train", "no.yaml"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 2
    assert process.stderr.startswith("error: ")
    assert "no.yaml" in process.stderr
    assert "Traceback" not in process.stderr
    assert process.stdout == ""


def test_out_of_memory_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def hungry(**options: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(entry, "app", hungry)
    with pytest.raises(SystemExit) as caught:
        entry.main()
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("error: out of memory (MemoryError)")


def test_doctor_reports_and_passes_here() -> None:
    result = run("doctor", "--json")
    assert result.exit_code == 0
    assert {"device cpu", "bf16 on cpu", "working folder"} <= {row["what"] for row in json.loads(result.stdout)}


def test_prune_removes_older_runs_and_says_which(tmp_path: Path) -> None:
    runs = [tmp_path / "runs" / name for name in "abc"]
    for age, path in enumerate(runs):
        made = RunDirectory(path)
        with made.lock():
            os.utime(made.write_json("settings.json", {}), (1000 + age, 1000 + age))
    assert run("prune", str(tmp_path / "runs"), "--keep", "2").stdout == f"removed {runs[0]}\n"
    assert [path.exists() for path in runs] == [False, True, True]
    assert run("prune", str(tmp_path / "runs"), "--keep", "2").stdout == "nothing to remove\n"
    assert "is not a folder of runs" in mistake("prune", str(tmp_path / "absent"))
