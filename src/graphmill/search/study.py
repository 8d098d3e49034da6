"""Runs a search: asks Optuna for a trial, trains it, and reports its validation metric.

A study is a folder with Optuna's ``study.db`` (SQLite) and the runs of its trials. The same command resumes a killed
search: an unfinished trial is requested again, and its training resumes. Several processes may search at the same time.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import socket
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from graphmill.errors import GraphmillError, InputError, StoppedError, TrainingError
from graphmill.graph.storage import read_manifest
from graphmill.runs.resolve import merge, parse_settings, run_root
from graphmill.search.space import Dimension, SearchSettings, dimensions_of, metric_of, nested, parse_search
from graphmill.settings import identity_of
from graphmill.training.signals import StopRequest

if TYPE_CHECKING:
    import optuna

NAME = "settings"
STARTUP_TRIALS = 5
"""Number of finished trials before any trial is ended early, and number of failures in a row after which the search
fails."""
Tell = Callable[[str], None]


class _PrunedError(Exception):
    """The trial is below the median of the others, so its training is ended."""


@dataclass(frozen=True)
class Search:
    """A search: the settings, the searched settings, and the folder of the study."""

    settings: SearchSettings
    values: dict[str, Any]
    dimensions: list[Dimension]
    metric: str
    folder: Path

    def study(self) -> optuna.Study:
        """The study, which is created if it does not exist."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.folder.mkdir(parents=True, exist_ok=True)
        return optuna.create_study(
            storage=f"sqlite:///{self.folder / 'study.db'}",
            study_name=NAME,
            direction="maximize",
            sampler=self._sampler(),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS),
            load_if_exists=True,
        )

    def chosen(self, trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
        """The searched settings of a trial, by path."""
        return {d.path: d.value(trial.params[d.path]) for d in self.dimensions if d.path in trial.params}

    def settings_for(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The file's settings with a trial's values filled in, as a user would write them."""
        values = self.values
        for path, value in chosen.items():
            values = merge(values, nested(path, value))
        return values

    def _draw_seed(self) -> int:
        """A different seed for each start and number of trials, because a resumed search must not draw the same values
        again."""
        path = self.folder / "starts"
        starts = path.stat().st_size if path.exists() else 0
        with path.open("ab") as file:
            file.write(b".")
        return starts

    def _sampler(self) -> optuna.samplers.BaseSampler:
        import optuna

        seed, random_trials = self._draw_seed(), 2 * STARTUP_TRIALS
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=random_trials, constant_liar=True)


def open_search(values: Mapping[str, Any], where: str, root: str = "") -> Search:
    """The search that a settings mapping with a section ``search`` describes.

    Raises:
        InputError: Optuna is not installed.
        SettingsError: the space or the settings are wrong.
    """
    if find_spec("optuna") is None:
        raise InputError('searching settings needs Optuna: pip install "graphmill[search]"')
    rest = {name: value for name, value in values.items() if name != "search"}
    search = parse_search(values.get("search"), where)
    parsed: Any = parse_settings(rest, where)
    dimensions = dimensions_of(search, rest, where)
    metric = metric_of(search, rest, where)
    about = {"space": search.space, "metric": metric, "seeds": search.seeds, "settings": identity_of(parsed)}
    folder = Path(run_root(parsed, root)) / f"search-{_digest(about | {'data': _data_hash(Path(parsed.data))})}"
    return Search(search, rest, dimensions, metric, folder)


def _digest(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _data_hash(graph: Path) -> str:
    """The graph's content hash, because trials on other data belong to another search; "" if there is no graph."""
    try:
        return str(read_manifest(graph)["content_hash"])
    except (InputError, OSError, KeyError):
        return ""


def run_search(search: Search, tell: Tell = lambda line: None, stop: StopRequest | None = None) -> optuna.Study:
    """Run the missing trials and return the study.

    Raises:
        StoppedError: ``stop`` was requested; the same call resumes.
        TrainingError: the first trials all failed; the message has the reason of the last.
    """
    study = search.study()
    _ask_again(study, tell)
    failed = 0
    while (number := _finished(study)) < search.settings.trials:
        budget = search.settings.budget_seconds
        if budget and seconds_of(study) >= budget:
            tell(f"the budget of {budget:,} s is used up after {number} trials")
            break
        problem = _run_trial(search, study, tell, stop)
        failed = failed + 1 if problem else 0
        if failed >= STARTUP_TRIALS:
            raise TrainingError(f"{failed} trials in a row failed; the last: {problem}")
    return study


def seconds_of(study: optuna.Study) -> float:
    """Total seconds of the trials that have ended."""
    return sum(float(trial.user_attrs.get("seconds", 0.0)) for trial in study.get_trials(deepcopy=False))


def _run_trial(search: Search, study: optuna.Study, tell: Tell, stop: StopRequest | None) -> str:
    """Request the next trial, train it, and report it to Optuna; returns why it failed, or "".

    Raises:
        StoppedError: ``stop`` was requested; nothing is reported to Optuna.
    """
    from optuna.trial import TrialState

    trial = study.ask()
    chosen = {d.path: d.suggest(trial) for d in search.dimensions}
    trial.set_user_attr("process", [os.getpid(), psutil.Process().create_time(), socket.gethostname()])
    began, value, problem = time.monotonic(), None, ""
    try:
        value, state = _train(search, trial, search.settings_for(chosen), stop), TrialState.COMPLETE
        outcome = f"{search.metric} {value:.4f}"
    except _PrunedError:
        state, outcome = TrialState.PRUNED, "ended early, below the median"
    except TrainingError as error:
        state, problem, outcome = TrialState.FAIL, str(error), f"failed: {error}"
        trial.set_user_attr("problem", problem)
    trial.set_user_attr("seconds", time.monotonic() - began)
    study.tell(trial, value, state)
    settings = ", ".join(f"{path} {value}" for path, value in chosen.items())
    tell(f"trial {trial.number}: {outcome}; {settings}")
    return problem


def _train(search: Search, trial: optuna.Trial, values: Mapping[str, Any], stop: StopRequest | None) -> float:
    """The mean over seeds of the best validation metric. Raises ``_PrunedError`` or :class:`TrainingError`."""
    figures: list[float] = []
    runs: list[str] = []
    for seed in range(search.settings.seeds):

        def watch(record: Mapping[str, Any], seed: int = seed) -> None:
            figure = record.get("valid", {}).get(search.metric)
            if seed == 0 and isinstance(figure, int | float):
                trial.report(float(figure), int(record["epoch"]))
                if trial.should_prune():
                    raise _PrunedError

        wanted = merge(values, {"training": {"seed": seed}})
        result = _result(wanted, search.folder / "runs", watch, stop or StopRequest())
        figure = result["metrics"].get(f"valid_{search.metric}")
        if figure is None:
            known = ", ".join(name.removeprefix("valid_") for name in result["metrics"] if name.startswith("valid_"))
            raise TrainingError(f"there is no {search.metric} on validation (there are {known or 'no figures'})")
        figures.append(float(figure))
        runs.append(str(result["run_dir"]))
        trial.set_user_attr("values", figures)
        trial.set_user_attr("runs", runs)
    return statistics.fmean(figures)


def _result(
    values: Mapping[str, Any], root: Path, watch: Callable[[Mapping[str, Any]], None], stop: StopRequest
) -> Mapping[str, Any]:
    """Train, or reuse a run in ``root``; in several processes if the settings say so, which ``watch`` does not see.

    Raises:
        StoppedError: ``stop`` was requested. TrainingError: any other failure.
    """
    from graphmill.runs.launch import run_processes
    from graphmill.runs.train import train

    how: dict[str, Any] = {"root": str(root), "stop": stop, "splits": ["valid"]}
    processes = int(values.get("acceleration", {}).get("processes", 1))
    try:
        if processes > 1:
            return run_processes(values, processes, where="search", **how)
        return train(values, "search", **how, watch=watch)
    except GraphmillError as error:
        if stop.requested:
            raise StoppedError(f"stopped ({stop.reason}); the same command goes on") from None
        raise TrainingError(str(error)) from None
    finally:
        gc.collect()  # models and optimizers hold cycles


def _ask_again(study: optuna.Study, tell: Tell) -> None:
    """Request again the unfinished trials of a killed search; their trainings resume."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
        if _is_alive(trial.user_attrs.get("process")):
            continue
        study.tell(trial.number, state=TrialState.FAIL)
        if trial.params:
            study.enqueue_trial(trial.params, user_attrs={"again": trial.number})
            tell(f"trial {trial.number} was under way when its search ended; it is asked for again and resumes")


def _is_alive(process: Any) -> bool:
    """Whether the process (id, start time, machine) is alive. A process of another machine counts as alive."""
    try:
        number, created, *machine = process
        if machine and machine[0] != socket.gethostname():
            return True
        return bool(abs(psutil.Process(int(number)).create_time() - float(created)) < 1.0)
    except (TypeError, ValueError, psutil.Error):
        return False


def _finished(study: optuna.Study) -> int:
    """The number of trials that count. A killed attempt does not count; its repetition does."""
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False)
    failed = sum(t.state == TrialState.FAIL and "problem" in t.user_attrs for t in trials)
    return failed + sum(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in trials)
