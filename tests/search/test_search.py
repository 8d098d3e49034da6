"""Searching settings: the space is checked before the first trial, validation decides, a killed search goes on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphmill.errors import SettingsError, StoppedError, TrainingError
from graphmill.promotion.promote import promote_run
from graphmill.promotion.versions import Versions
from graphmill.runs.recorder import RunListener
from graphmill.runs.train import train
from graphmill.search import Search, open_search, open_study
from graphmill.search import run_search as run
from graphmill.training.metrics_log import MetricsLog
from graphmill.training.signals import StopRequest
from tests.training.cases import CASES, recommender_graph

optuna = pytest.importorskip("optuna")

CASE = CASES["mf"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(recommender_graph(tmp_path_factory.mktemp("search") / "graph").path)


def run_search(search: Search, tell: Callable[[str], None] = print, stop: StopRequest | None = None) -> dict[str, Any]:
    return run(search, tell, stop or StopRequest())


def settings_of(graph: str, space: Mapping[str, Any], **search: Any) -> dict[str, Any]:
    return {"system": "mf", "data": graph, **CASE.settings, "search": {"space": dict(space), **search}}


def refused(graph: str, space: Mapping[str, Any], **search: Any) -> str:
    with pytest.raises(SettingsError) as raised:
        open_search(settings_of(graph, space, **search), "settings.yaml")
    return str(raised.value)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({}, "search.space is empty"),
        ({"training.rate": [1, 2]}, "training.rate: this is not a setting of this system (known: epochs, "),
        ({"training": [1, 2]}, "it is a section"),
        ({"training.epochs": [1, 2]}, "training.epochs: this cannot be searched"),
        ({"training.seed": [1, 2]}, "training.seed: this cannot be searched"),
        ({"system": ["mf", "lightgcn"]}, "system: this cannot be searched"),
        ({"data": ["a", "b"]}, "data: this cannot be searched"),
        ({"preset": ["paper", "none"]}, "preset: this cannot be searched"),
        ({"training.init_from": ["", "run"]}, "training.init_from: this cannot be searched"),
        ({"training.learning_rate": [0.1]}, "leaves no choice"),
        ({"training.learning_rate": {"low": 1}}, "write a list of choices, or for a number a range"),
        ({"training.learning_rate": {"low": 1, "high": 0.5}}, "`low <= high` must hold"),
        ({"training.learning_rate": {"low": 0, "high": 0.5, "log": True}}, "learning_rate = 0"),
        (
            {"training.learning_rate": {"low": 0.1, "high": 1, "log": True, "step": 0.1}},
            "`step` is not supported when `log` is true",
        ),
        ({"training.learning_rate": {"low": 0.1, "high": 1, "log": "yes"}}, "log must be true or false"),
        ({"training.learning_rate": {"low": 0.1, "high": 1, "step": 2}}, "step does not divide the range"),
        ({"training.learning_rate": {"low": 0.1, "high": 1, "step": -0.1}}, "`step > 0` must hold"),
        ({"training.learning_rate": {"low": "small", "high": 1}}, "learning_rate = 'small'"),
        ({"training.learning_rate": {"low": True, "high": 2}}, "learning_rate = True: write a number"),
        ({"training.learning_rate": {"low": 0.1, "high": float("inf")}}, "learning_rate = inf"),
        ({"training.learning_rate": {"low": float("nan"), "high": 1}}, "learning_rate = nan"),
        ({"training.learning_rate": {"low": 1, "high": 10**400}}, "write a number of at most"),
        ({"training.learning_rate": [0.1, 0.1]}, "training.learning_rate: 0.1 is there twice"),
        ({"training.learning_rate": [0.1, "0.1"]}, "training.learning_rate: '0.1' is there twice"),
        ({"model.embedding_dim": {"low": 4.2, "high": 8}}, "embedding_dim = 4.2"),
        ({"model.embedding_dim": {"low": 4, "high": 8, "step": 0.5}}, "step a number of the setting's kind"),
        ({"evaluation.selection_split": ["valid", "test"]}, "selection_split: this cannot be searched"),
        ({"training.learning_rate": {"low": -1.0, "high": 0.5}}, "training.learning_rate = -1.0"),
        ({"training.lr_decay": {"low": 0, "high": 1}}, "or for a number a range"),
        ({"training.lr_decay": ["none", "best"]}, "training.lr_decay = 'best'"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused_before_the_first_trial(
    graph: str, space: dict[str, Any], said: str
) -> None:
    output = refused(graph, space)
    assert output.startswith("settings.yaml: ")
    assert said in output
    assert "\n" not in output


@pytest.mark.parametrize(
    "written",
    [{"low": 4, "high": 8, "step": 4}, {"low": 4.0, "high": 8.0}, {"low": 4, "high": 8, "log": True}, [4, 8]],
    ids=str,
)
def test_what_is_a_range_of_whole_numbers_draws_them(graph: str, written: Any) -> None:
    search = open_search(settings_of(graph, {"model.embedding_dim": written}), "settings.yaml")
    study = optuna.create_study()
    study.enqueue_trial({"model.embedding_dim": 8})
    drawn = study.ask(search.space).params["model.embedding_dim"]
    assert (drawn, type(drawn)) == (8, int)


@pytest.mark.parametrize(
    ("system", "metric", "said"),
    [
        (
            "mf",
            "nosuch",
            "nosuch cannot be maximised; choose from recall@5, ",
        ),
        ("mf", "recall@7", "recall@7 cannot be maximised; choose from recall@5, "),
        ("mf", "recall", "recall cannot be maximised; choose from recall@5, "),
        (
            "complex",
            "mr",
            "mr cannot be maximised; choose from mrr, amri, hits@1, hits@3, hits@10",
        ),
        ("sasrec", "mr", "mr cannot be maximised; choose from mrr, ndcg@5, "),
    ],
)
def test_a_metric_that_validation_has_not_is_refused_before_the_first_trial(
    graph: str, system: str, metric: str, said: str
) -> None:
    search = {"space": {"training.learning_rate": [0.1, 0.01]}, "metric": metric}
    settings = CASE.settings if system == "mf" else {}
    with pytest.raises(SettingsError) as raised:
        open_search({"system": system, "data": graph, **settings, "search": search}, "settings.yaml")
    assert str(raised.value).startswith("settings.yaml: search.metric: ")
    assert said in str(raised.value)


def test_other_mistakes_of_the_section(graph: str) -> None:
    rate = {"training.learning_rate": [0.1, 0.01]}
    assert "trials = 0" in refused(graph, rate, trials=0)
    assert "unknown setting 'trails'" in refused(graph, rate, trails=3)
    with pytest.raises(SettingsError, match=r"search\.space is empty"):
        open_search({"system": "mf", "data": graph}, "settings.yaml")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The settings of the trainings, in order."""
    made: list[dict[str, Any]] = []

    def recorded(values: Mapping[str, Any], *arguments: Any, **options: Any) -> Any:
        made.append(dict(values))
        return train(values, *arguments, **options)

    monkeypatch.setattr("graphmill.runs.train.train", recorded)
    return made


def test_validation_decides_and_the_test_is_not_read(graph: str, tmp_path: Path, trained: list[dict[str, Any]]) -> None:
    space = {"training.learning_rate": {"low": 1e-7, "high": 0.1, "log": True}, "model.embedding_dim": [4, 8]}
    values = settings_of(graph, space, trials=4, seeds=2)
    wanted = open_search(values, "settings.yaml", str(tmp_path))
    result = run_search(wanted)
    entries = result["entries"]
    assert [e["value"] for e in entries] == sorted((e["value"] for e in entries), reverse=True)
    assert len(entries) == 4
    assert all(len(e["runs"]) == len(set(e["runs"])) == 2 for e in entries)
    for entry in entries:
        reports = [json.loads((Path(run) / "report.json").read_text())["metrics"] for run in entry["runs"]]
        assert entry["value"] == pytest.approx(sum(each[f"valid_{wanted.metric}"] for each in reports) / 2)
    best = yaml.safe_load((wanted.folder / "best.yaml").read_text())
    assert best["training"]["learning_rate"] == entries[0]["settings"]["training.learning_rate"]
    assert "search" not in best
    assert not [run for e in entries for run in e["runs"] if '"test_' in (Path(run) / "report.json").read_text()]
    assert all(e["seconds"] > 0 for e in entries)
    assert result["seconds"] == pytest.approx(sum(e["seconds"] for e in entries))
    # A trial is a run directory of this model, and is exported when it goes live.
    promoted = promote_run(entries[0]["runs"][0], Versions(tmp_path / "live"), by="me", person=True, force=True)
    assert promoted["outcome"] == "promoted"
    assert (tmp_path / "live/current/embeddings.parquet").is_file()
    # The same call makes no further trial; with more it goes on and draws others.
    run_search(wanted)
    assert len(trained) == 8
    more = open_search(values | {"search": values["search"] | {"trials": 5}}, "settings.yaml", str(tmp_path))
    run_search(more)
    rates = {each["training"]["learning_rate"] for each in trained}
    assert len(rates) == 5


def test_a_search_can_be_repeated(graph: str, tmp_path: Path) -> None:
    values = settings_of(graph, {"training.learning_rate": {"low": 1e-7, "high": 0.1, "log": True}}, trials=3)
    first, second = (run_search(open_search(values, "settings.yaml", str(tmp_path / name))) for name in ("a", "b"))
    assert [(e["settings"], e["value"]) for e in first["entries"]] == [
        (e["settings"], e["value"]) for e in second["entries"]
    ]


def test_a_bad_trial_is_ended_early_and_counted(graph: str, tmp_path: Path, trained: list[dict[str, Any]]) -> None:
    """Five good trials and a bad sixth, in the order of the queue."""
    space = {"training.learning_rate": [0.1, 0.09, 0.08, 0.07, 0.06, 1e-9]}
    values = settings_of(graph, space, trials=6, seeds=1)
    values["training"] = {**values["training"], "epochs": 6, "steps_per_epoch": 10, "patience_epochs": 0}
    wanted = open_search(values, "settings.yaml", str(tmp_path))
    wanted.folder.mkdir(parents=True)
    for value in space["training.learning_rate"]:
        open_study(wanted.folder).enqueue_trial({"training.learning_rate": value})
    said: list[str] = []
    result = run_search(wanted, said.append)
    assert [trial.state.name for trial in open_study(wanted.folder).get_trials()] == ["COMPLETE"] * 5 + ["PRUNED"]
    assert re.match("trial 5: ended early.* 1e-09", said[-1])
    epochs = {
        json.loads((run / "settings.json").read_text())["training"]["learning_rate"]: len(
            MetricsLog(run / "metrics.jsonl").read("epoch")
        )
        for run in (wanted.folder / "runs").iterdir()
    }
    assert epochs == {0.1: 6, 0.09: 6, 0.08: 6, 0.07: 6, 0.06: 6, 1e-9: 2}
    # It counts as a trial and as time, and has no place among the finished ones.
    run_search(wanted)
    assert len(trained) == 6
    assert (len(result["entries"]), result["pruned"], result["failed"]) == (5, 1, 0)
    assert result["seconds"] > sum(e["seconds"] for e in result["entries"])


def test_a_search_whose_trials_all_fail_says_why(graph: str, tmp_path: Path) -> None:
    wanted = open_search(
        settings_of(graph, {"training.learning_rate": [1e30, 1e32]}, seeds=1), "settings.yaml", str(tmp_path)
    )
    with pytest.raises(TrainingError, match=r"all 5 trials failed; .*not finite"):
        run_search(wanted)


def test_a_stop_ends_the_trial_with_a_checkpoint_and_the_search_goes_on(
    graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings_of(graph, {"model.embedding_dim": [4, 8]}, trials=1)
    values["training"] = {**values["training"], "epochs": 40, "patience_epochs": 0}
    wanted, stop, on_epoch = open_search(values, "settings.yaml", str(tmp_path)), StopRequest(), RunListener.on_epoch

    def stopping(listener: RunListener, record: dict[str, Any]) -> None:
        on_epoch(listener, record)
        if record["epoch"] == 3:
            stop.request("a test")

    with monkeypatch.context() as patch:
        patch.setattr(RunListener, "on_epoch", stopping)
        with pytest.raises(StoppedError, match="stopped"):
            run_search(wanted, stop=stop)
    assert list(wanted.folder.glob("runs/*/checkpoints/*.safetensors"))
    said: list[str] = []
    run_search(wanted, said.append)
    assert [trial.state.name for trial in open_study(wanted.folder).get_trials()] == ["FAIL", "COMPLETE"]
    assert "was under way when its search ended" in said[0]
    assert len(list((wanted.folder / "runs").iterdir())) == 1


def test_the_budget_bounds_the_trials(graph: str, tmp_path: Path, trained: list[dict[str, Any]]) -> None:
    values = settings_of(graph, {"model.embedding_dim": [4, 8, 16]}, trials=50, budget_seconds=1)
    values["training"] = {**values["training"], "epochs": 60, "patience_epochs": 0}
    wanted = open_search(values, "settings.yaml", str(tmp_path))
    said: list[str] = []
    run_search(wanted, said.append)
    assert len(trained) < 50
    assert "budget of 1 s is used up" in said[-1]


@pytest.mark.parametrize(
    ("changed", "another"),
    [
        ({"metric": "ndcg@5"}, True),
        ({"seeds": 2}, True),
        ({"space": {"model.embedding_dim": [4, 16]}}, True),
        ({"trials": 50, "budget_seconds": 60}, False),
    ],
    ids=["metric", "seeds", "space", "the rest"],
)
def test_metric_seeds_and_space_are_another_search_and_more_trials_are_not(
    graph: str, changed: dict[str, Any], another: bool
) -> None:
    values = settings_of(graph, {"model.embedding_dim": [4, 8]})
    before = open_search(values, "settings.yaml").folder
    after = open_search({**values, "search": {**values["search"], **changed}}, "settings.yaml").folder
    assert (before != after) == another


@pytest.mark.slow
def test_a_killed_search_goes_on_with_the_trial_that_was_under_way(graph: str, tmp_path: Path) -> None:
    values = settings_of(graph, {"model.embedding_dim": [4, 8, 16]}, trials=2)
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
    result = json.loads(again.stdout)
    assert len(result["entries"]) == 2
