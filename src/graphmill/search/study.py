"""The search itself: ask Optuna for a trial, train it in a process of its own, tell what validation says.

A study is a folder: ``study.db`` (SQLite, Optuna's), and the runs of its trials beside it. A killed search goes on with the
same command: a trial that was under way is asked for again and its training resumes. Several processes may search at once.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from graphmill.errors import InputError, TrainingError
from graphmill.runs.measured_run import run_process
from graphmill.runs.resolve import identity, merge, parse_settings, run_root
from graphmill.search.space import Dimension, SearchSettings, dimensions_of, metric_of, nested, parse_search

if TYPE_CHECKING:
    import optuna

    from graphmill.training.signals import StopRequest

NAME = "settings"
KEEP_RUNS = 1_000_000
STARTUP_TRIALS = 5
"""Finished trials before any is ended early, and failures in a row after which the search gives up."""
Tell = Callable[[str], None]


class _PrunedError(Exception):
    """The trial is below the median of the others; its training is ended."""


@dataclass(frozen=True)
class Search:
    """A search that can be run and looked at: what is tried on top of which settings, and where."""

    settings: SearchSettings
    values: dict[str, Any]
    dimensions: list[Dimension]
    metric: str
    folder: Path

    def study(self) -> optuna.Study:
        """The study, made if it is not there."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.folder.mkdir(parents=True, exist_ok=True)
        return optuna.create_study(
            storage=f"sqlite:///{self.folder / 'study.db'}",
            study_name=NAME,
            direction="maximize",
            sampler=self._sampler(),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS)
            if self.settings.prune
            else optuna.pruners.NopPruner(),
            load_if_exists=True,
        )

    def chosen(self, trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
        """The searched settings of a trial, by path."""
        return {d.path: d.value(trial.params[d.path]) for d in self.dimensions if d.path in trial.params}

    def trial_values(self, chosen: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """The settings of one training of a trial."""
        values = self.settings_for(chosen)
        # A trial's run stays until the search is thrown away: the leaderboard names it.
        return merge(values, {"training": {"seed": seed}, "acceleration": {"keep_runs": KEEP_RUNS}})

    def settings_for(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The file's settings with the searched ones in place: what a person would write."""
        values = self.values
        for path, value in chosen.items():
            values = merge(values, nested(path, value))
        return values

    def _draw_seed(self) -> int:
        """Another one for each start and each trial there is: what goes on must not draw the same values again."""
        path = self.folder / "starts"
        starts = path.stat().st_size if path.exists() else 0
        with path.open("ab") as file:
            file.write(b".")
        return self.settings.seed * 1_000_003 + starts

    def _sampler(self) -> optuna.samplers.BaseSampler:
        import optuna

        seed = self._draw_seed()
        if self.settings.sampler in ("random", "grid"):  # of a grid all points are in the queue already
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=2 * STARTUP_TRIALS, constant_liar=True)


def open_search(values: Mapping[str, Any], where: str, root: str = "") -> Search:
    """The search that a settings mapping with a section ``search`` describes.

    Raises:
        InputError: Optuna is not installed.
        SettingsError: the space or the settings are wrong.
    """
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError('searching settings needs Optuna: pip install "graphmill[search]"') from None
    rest = {name: value for name, value in values.items() if name != "search"}
    search = parse_search(values.get("search"), where)
    parsed = parse_settings(rest, where)
    dimensions = dimensions_of(search, rest, where)
    metric = metric_of(search, rest, where)
    about = {"space": search.space, "metric": metric, "seeds": search.seeds, "settings": identity(parsed)}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return Search(search, rest, dimensions, metric, run_root(parsed, root) / f"search-{digest}")


def run_search(search: Search, tell: Tell = lambda line: None, stop: StopRequest | None = None) -> optuna.Study:
    """Make the trials that are missing; the study.

    Raises:
        StoppedError: ``stop`` asked for it; the same call goes on.
        TrainingError: the first trials all failed, with the reason of the last.
    """
    study = search.study()
    _ask_again(study, tell)
    failed, most = 0, search.settings.trials
    if search.settings.sampler == "grid":
        points = list(itertools.product(*(range(len(d.choices)) for d in search.dimensions)))
        most = min(most, len(points))
        for point in points:
            params = {d.path: place for d, place in zip(search.dimensions, point, strict=True)}
            study.enqueue_trial(params, skip_if_exists=True)
    while (number := _finished(study)) < most:
        if search.settings.budget_seconds and seconds_of(study) >= search.settings.budget_seconds:
            tell(f"the budget of {search.settings.budget_seconds:,} s is used up after {number} trials")
            break
        problem = _one_trial(search, study, tell, stop)
        failed = failed + 1 if problem else 0
        if failed >= STARTUP_TRIALS:
            raise TrainingError(f"{failed} trials in a row failed; the last: {problem}")
    return study


def seconds_of(study: optuna.Study) -> float:
    """Seconds that the ended trials took."""
    return sum(float(trial.user_attrs.get("seconds", 0.0)) for trial in study.get_trials(deepcopy=False))


def _one_trial(search: Search, study: optuna.Study, tell: Tell, stop: StopRequest | None) -> str:
    """Ask, train and tell; why the trial failed, or nothing."""
    from optuna.trial import TrialState

    trial = study.ask()
    chosen = {d.path: d.suggest(trial) for d in search.dimensions}
    trial.set_user_attr("process", [os.getpid(), psutil.Process().create_time()])
    began, words = time.monotonic(), ", ".join(f"{path} {value}" for path, value in chosen.items())
    try:
        value, state, problem = _train(search, trial, chosen, stop), TrialState.COMPLETE, ""
    except _PrunedError:
        value, state, problem = None, TrialState.PRUNED, ""
    except TrainingError as error:
        value, state, problem = None, TrialState.FAIL, str(error)
        trial.set_user_attr("problem", problem)
    trial.set_user_attr("seconds", time.monotonic() - began)
    study.tell(trial, value, state)
    ended = {
        TrialState.COMPLETE: f"{search.metric} {value or 0.0:.4f}",
        TrialState.PRUNED: "ended early, below the median",
    }
    tell(f"trial {trial.number}: {ended.get(state, f'failed: {problem}')}; {words}")
    return problem


def _train(search: Search, trial: optuna.Trial, chosen: Mapping[str, Any], stop: StopRequest | None) -> float:
    """The mean over the seeds of the best validation figure. Raises ``_PrunedError`` or :class:`TrainingError`."""
    values: list[float] = []
    runs: list[str] = []
    for seed in range(search.settings.seeds):

        def watch(record: Mapping[str, Any], first: bool = seed == 0) -> None:
            figure = record.get("valid", {}).get(search.metric)
            if first and isinstance(figure, int | float):
                trial.report(float(figure), int(record["epoch"]))
                if trial.should_prune():
                    raise _PrunedError

        wanted = search.trial_values(chosen, seed)
        result, problem = run_process(wanted, "search", search.folder / "runs", watch, stop)
        if problem:
            raise TrainingError(problem)
        figure = result["metrics"].get(f"valid_{search.metric}")
        if figure is None:
            known = ", ".join(name.removeprefix("valid_") for name in result["metrics"] if name.startswith("valid_"))
            raise TrainingError(f"there is no {search.metric} on validation (there are {known or 'no figures'})")
        values.append(float(figure))
        runs.append(str(result["run_dir"]))
        trial.set_user_attr("values", values)
        trial.set_user_attr("runs", runs)
    return statistics.fmean(values)


def _ask_again(study: optuna.Study, tell: Tell) -> None:
    """Trials that a killed search left under way are asked for once more; their trainings resume."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
        if _alive(trial.user_attrs.get("process")):
            continue
        study.tell(trial.number, state=TrialState.FAIL)
        if trial.params:
            study.enqueue_trial(trial.params, user_attrs={"again": trial.number})
            tell(f"trial {trial.number} was under way when its search ended; it is asked for again and resumes")


def _alive(process: Any) -> bool:
    try:
        number, created = process
        return bool(abs(psutil.Process(int(number)).create_time() - float(created)) < 1.0)
    except (TypeError, ValueError, psutil.Error):
        return False


def _finished(study: optuna.Study) -> int:
    """Trials that count: those that failed of a kill do not, their other attempts do."""
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False)
    failed = sum(t.state == TrialState.FAIL and "problem" in t.user_attrs for t in trials)
    return failed + sum(t.state in (TrialState.COMPLETE, TrialState.PRUNED) for t in trials)
