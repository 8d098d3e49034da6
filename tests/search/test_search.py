"""Searching settings: the space is checked before the first trial, validation decides, a killed search goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphmill.errors import SettingsError, TrainingError
from graphmill.runs.train import train
from graphmill.search import study as module
from graphmill.search.leaderboard import leaderboard
from graphmill.search.space import SearchSettings
from graphmill.search.study import open_search, run_search
from graphmill.training.metrics_log import MetricsLog
from tests.training.cases import CASES, recommender_graph

pytest.importorskip("optuna")

CASE = CASES["bpr-mf"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(recommender_graph(tmp_path_factory.mktemp("search") / "graph").path)


def settings_of(graph: str, space: Mapping[str, Any], **search: Any) -> dict[str, Any]:
    return {"recipe": "bpr_mf", "data": graph, **CASE.settings, "search": {"space": dict(space), **search}}


def refused(graph: str, space: Mapping[str, Any], **search: Any) -> str:
    with pytest.raises(SettingsError) as told:
        open_search(settings_of(graph, space, **search), "settings.yaml")
    return str(told.value)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({}, "search.space is empty"),
        ({"training.rate": [1, 2]}, "training.rate is not a setting of this system (known: epochs, "),
        ({"training": [1, 2]}, "training is a section; name a setting in it, such as training.epochs"),
        ({"training.epochs": [1, 2]}, "training.epochs cannot be searched"),
        ({"training.seed": [1, 2]}, "training.seed cannot be searched"),
        ({"training.learning_rate": [0.1]}, "leaves no choice"),
        ({"training.learning_rate": {"low": 1}}, "write a list of choices, or a range"),
        ({"training.learning_rate": {"low": 1, "high": 0.5}}, "low must be below high"),
        ({"training.learning_rate": {"low": 0, "high": 0.5, "log": True}}, "on a log scale above 0"),
        ({"training.learning_rate": {"low": -1.0, "high": 0.5}}, "training.learning_rate = -1.0"),
        ({"training.optimizer": {"low": 0, "high": 1}}, "only numbers have a range"),
        ({"training.optimizer": ["adam", "best"]}, "training.optimizer = 'best'"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused_before_the_first_trial(
    graph: str, space: dict[str, Any], said: str
) -> None:
    assert said in refused(graph, space)


def test_other_mistakes_of_the_section(graph: str) -> None:
    rate = {"training.learning_rate": [0.1, 0.01]}
    assert "trials = 0" in refused(graph, rate, trials=0)
    assert "unknown setting 'trails'" in refused(graph, rate, trails=3)
    assert "are better; use mrr" in refused(graph, rate, metric="mr")
    assert "needs a list of choices" in refused(
        graph, {"training.learning_rate": {"low": 0.1, "high": 1}}, sampler="grid"
    )
    with pytest.raises(SettingsError, match="has no section 'search'"):
        open_search({"recipe": "bpr_mf", "data": graph}, "settings.yaml")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Trials train here and not in processes of their own, which is what takes the time; the settings that were trained."""
    made: list[dict[str, Any]] = []

    def run(
        values: Mapping[str, Any], where: str, root: Path, tell: Callable[..., None], stop: Any, **more: Any
    ) -> Any:
        made.append(dict(values))
        result = train(values, where, root=str(root), **more)
        for record in MetricsLog(Path(result["run_dir"]) / "metrics.jsonl").read("epoch"):
            tell(record)
        return result, ""

    monkeypatch.setattr(module, "run_process", run)
    return made


def test_validation_decides_and_the_test_is_read_for_the_winner_alone(
    graph: str, tmp_path: Path, in_this_process: list[dict[str, Any]]
) -> None:
    space = {"training.learning_rate": {"low": 1e-7, "high": 0.1, "log": True}, "model.embedding_dim": [4, 8]}
    values = settings_of(graph, space, sampler="random", trials=4, seeds=2, prune=False)
    wanted = open_search(values, "settings.yaml", str(tmp_path))
    found = leaderboard(wanted, run_search(wanted))
    assert [e.value for e in found.entries] == sorted((e.value for e in found.entries), reverse=True)
    assert len(found.entries) == 4
    assert all(len(e.runs) == len(set(e.runs)) == 2 and e.low <= e.value <= e.high for e in found.entries)
    best = yaml.safe_load((wanted.folder / "best.yaml").read_text())
    assert best["training"]["learning_rate"] == found.best.chosen["training.learning_rate"]
    assert "search" not in best
    assert "keep_runs" not in best.get("acceleration", {})
    kept = json.loads((wanted.folder / "test.json").read_text())
    assert (kept["run"], kept["figures"].keys()) == (found.best.runs[0], found.test.keys())
    with_test = [run for e in found.entries for run in e.runs if '"test_' in (Path(run) / "report.json").read_text()]
    assert with_test == [found.best.runs[0]]
    assert (wanted.folder / "trials.png").read_bytes().startswith(b"\x89PNG")
    # The same call makes no further trial; with more it goes on and draws others.
    run_search(wanted)
    assert len(in_this_process) == 8
    more = open_search(values | {"search": values["search"] | {"trials": 5}}, "settings.yaml", str(tmp_path))
    run_search(more)
    rates = {each["training"]["learning_rate"] for each in in_this_process}
    assert len(rates) == 5


def test_a_grid_is_tried_once(graph: str, tmp_path: Path, in_this_process: list[dict[str, Any]]) -> None:
    space = {"training.learning_rate": [0.1, 0.01], "model.embedding_dim": [4, 8]}
    wanted = open_search(settings_of(graph, space, sampler="grid", trials=30), "settings.yaml", str(tmp_path))
    run_search(wanted)
    tried = {(v["training"]["learning_rate"], v["model"]["embedding_dim"]) for v in in_this_process}
    assert tried == {(0.1, 4), (0.1, 8), (0.01, 4), (0.01, 8)}
    assert len(in_this_process) == 4


def test_a_search_whose_trials_all_fail_says_why(graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_process", lambda *_, **__: ({}, "the loss is not finite"))
    wanted = open_search(settings_of(graph, {"model.embedding_dim": [4, 8]}), "settings.yaml", str(tmp_path))
    with pytest.raises(TrainingError, match="5 trials in a row failed; the last: the loss is not finite"):
        run_search(wanted)


def test_the_budget_bounds_the_trials(graph: str, tmp_path: Path, in_this_process: list[dict[str, Any]]) -> None:
    values = settings_of(graph, {"model.embedding_dim": [4, 8, 16]}, trials=50, budget_seconds=1)
    values["training"] = {**values["training"], "epochs": 60, "patience_epochs": 0}
    wanted = open_search(values, "settings.yaml", str(tmp_path))
    said: list[str] = []
    run_search(wanted, said.append)
    assert len(in_this_process) < 50
    assert "budget of 1 s is used up" in said[-1]


def test_metric_and_seeds_are_another_search() -> None:
    assert SearchSettings(space={}).sampler == "tpe"


@pytest.mark.slow
def test_a_killed_search_goes_on_with_the_trial_that_was_under_way(graph: str, tmp_path: Path) -> None:
    values = settings_of(graph, {"model.embedding_dim": [4, 8, 16]}, trials=2, sampler="random")
    values["training"] = {**values["training"], "epochs": 4000, "patience_epochs": 0}
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump(values))
    command = [sys.executable, "-m", "graphmill.cli", "search", str(file), "--output", str(tmp_path / "out"), "--json"]
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("out/search-*/runs/*/checkpoints/*")):
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.1)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    again = subprocess.run(
        [*command, "--set", "training.epochs=4"], capture_output=True, text=True, timeout=280, check=True
    )
    assert "was under way when its search ended" in again.stderr
    found = json.loads(again.stdout)
    assert len(found["entries"]) == 2
