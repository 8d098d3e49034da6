"""The search for settings: a space of values, trials by Optuna, chosen on validation.

A trial is a training. A study is a folder with Optuna's ``study.db`` (SQLite) and the runs of its trials. The same
command resumes a killed search: an unfinished trial is requested again, and its training resumes.
"""

from __future__ import annotations

import gc
import hashlib
import json
import statistics
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from graphmill.atomic_files import write_atomically
from graphmill.errors import GraphmillError, SettingsError, StoppedError, TrainingError, require
from graphmill.graph.storage import read_manifest
from graphmill.locks import locked
from graphmill.runs.resolve import parse_settings, run_root
from graphmill.settings import abbreviated, identity_of, is_identity, parse, put
from graphmill.systems import registry
from graphmill.training.signals import StopRequest

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

NOT_SEARCHED = ("system", "data", "preset", "training.seed", "training.init_from", "evaluation.selection_split")
"""Settings whose trials cannot be compared."""
STARTUP_TRIALS = 5
"""Finished trials before any trial is ended early, and failures in a row after which the search ends."""


class SearchSettings(BaseModel):
    """The section ``search`` of a settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    space: dict[str, list[Any] | dict[str, Any]] = Field(description="Setting → choices, or {low, high, log, step}")
    trials: int = Field(30, ge=1, description="Number of trials, including finished ones of earlier calls")
    budget_seconds: int = Field(0, ge=0, description="Begin no trial after this much time in trials; 0: no limit")
    metric: str = Field("", description="Validation metric to maximise; empty: evaluation.selection_metric")
    seeds: int = Field(1, ge=1, description="Number of trainings for each trial, with seeds 0, 1, …; their mean counts")


@dataclass(frozen=True)
class Search:
    """A search: its settings, those of trainings, Optuna's distribution of each path, metric, and folder of the study."""

    settings: SearchSettings
    values: dict[str, Any]
    space: dict[str, Any]
    metric: str
    folder: Path

    def settings_for(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The file's settings with a trial's values filled in, as a user would write them."""
        values = self.values
        for path, value in chosen.items():
            values = put(values, path, value)
        return values


def open_search(values: Mapping[str, Any], where: str, root: str = "") -> Search:
    """The search that a settings mapping with a section ``search`` describes.

    Raises:
        SettingsError: Optuna is not installed, or the space or the settings are wrong. InputError: there is no graph.
    """
    require("graphmill search", "optuna", "search")
    rest = {name: value for name, value in values.items() if name != "search"}
    if not isinstance(written := values.get("search"), Mapping) or not written.get("space"):
        raise SettingsError(f"{where}: search.space is empty; write such as training.learning_rate: [0.1, 0.01]")
    search = parse(SearchSettings, dict(written), f"{where}: search")  # type: ignore[type-var]
    parsed: Any = parse_settings(rest, where)
    if parsed.evaluation.selected_on != "valid":
        raise SettingsError(f"{where}: a search chooses on validation; leave out evaluation.selection_split: test")
    metric = search.metric or str(parsed.evaluation.selection_metric)
    if metric not in (known := parsed.evaluation.measured(final=True)):
        raise SettingsError(f"{where}: search.metric: {metric} cannot be maximised; choose from {', '.join(known)}")
    space = {path: _distribution(path, each, rest, f"{where}: search.space") for path, each in search.space.items()}
    data = read_manifest(Path(parsed.data))["content_hash"]  # trials on other data belong to another search
    about = [search.space, metric, search.seeds, identity_of(parsed), data]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return Search(search, rest, space, metric, Path(run_root(parsed, root)) / f"search-{digest}")


def _distribution(path: str, written: Any, values: Mapping[str, Any], where: str) -> Any:
    """Optuna's distribution of a setting. Raises :class:`SettingsError` if it cannot be searched, or refuses a value."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    where, names = f"{where}.{path}", path.split(".")
    annotation: Any = registry.settings_model(str(values.get("system", registry.DEFAULT)))
    is_list, searched = isinstance(written, list), path not in NOT_SEARCHED
    try:
        for name in names:
            fields = getattr(annotation, "model_fields", {})
            if name not in fields:
                raise ValueError(f"this is not a setting of this system (known: {', '.join(fields) or 'none'})")
            searched, annotation = searched and is_identity(annotation, name), fields[name].annotation
        if not searched:
            raise ValueError("this cannot be searched: its trials have the same result, or cannot be compared")
        if not is_list and (annotation not in (int, float) or {"low", "high"} != written.keys() - {"log", "step"}):
            raise ValueError("write a list of choices, or for a number a range such as {low: 0.1, high: 1, step: 0.1}")
        taken: list[Any] = []
        for each in written if is_list else (written["low"], written["high"]):
            parsed: Any = parse_settings(put(values, path, each), where)
            parsed = reduce(getattr, names, parsed)
            if parsed in taken:
                raise ValueError(f"{abbreviated(each)} is there twice; name each value once")
            taken.append(parsed)
        if len(taken) < 2:
            raise ValueError(f"{abbreviated(written)} leaves no choice; give two or more")
        if is_list:
            with warnings.catch_warnings(action="ignore"):  # of a choice that is a list
                return CategoricalDistribution(taken)
        if not isinstance(written.get("log", False), bool) or not isinstance(written.get("step", 1), annotation | int):
            raise ValueError("log must be true or false, and step a number of the setting's kind")
        with warnings.catch_warnings(action="error"):  # of a step that does not divide the range
            kind = IntDistribution if annotation is int else FloatDistribution
            return kind(**{**written, "low": taken[0], "high": taken[1]})
    except UserWarning:
        raise SettingsError(f"{where}: step does not divide the range from low to high; choose another one") from None
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{where}: {error}") from None


def run_search(search: Search, tell: Callable[[str], None], stop: StopRequest) -> dict[str, Any]:
    """Run the missing trials, write the best settings to ``best.yaml``, and return the trials from best to worst.

    Raises:
        RunLockedError: another process runs this search. StoppedError: ``stop`` was requested; the same call resumes.
        TrainingError: the first trials all failed; the message has the reason of the last.
    """
    import optuna
    from optuna.trial import TrialState

    search.folder.mkdir(parents=True, exist_ok=True)
    with locked(search.folder, str(search.folder)):
        study, outcome, failed = open_study(search.folder), "", 0
        for old in study.get_trials(states=[TrialState.RUNNING]):
            study.tell(old.number, state=TrialState.FAIL)
            study.enqueue_trial(old.params)
            tell(f"trial {old.number} was under way when its search ended; it is requested again and resumes")
        while len(_counted(study)) < search.settings.trials and failed < STARTUP_TRIALS:
            if 0 < search.settings.budget_seconds <= _seconds(_counted(study)):
                tell(f"the budget of {search.settings.budget_seconds:,} s is used up")
                break
            trial, value, runs = study.ask(search.space), None, list[str]()
            try:
                value, state = _train(search, trial, stop, runs), TrialState.COMPLETE
                outcome = f"{search.metric} {value:.4f}"
            except optuna.TrialPruned:
                state, outcome = TrialState.PRUNED, "ended early, below the median"
            except TrainingError as error:
                state, outcome = TrialState.FAIL, f"failed: {error}"
            failed = failed + 1 if state == TrialState.FAIL else 0
            trial.set_user_attr("runs", runs)
            study.tell(trial, value, state)
            tell(f"trial {trial.number}: {outcome}; {', '.join(f'{path} {v}' for path, v in trial.params.items())}")
        trials = _counted(study)
    completed = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not completed:
        raise TrainingError(f"all {len(trials)} trials failed; the last {outcome}")
    completed.sort(key=lambda trial: -float(trial.value or 0.0))
    best = f"# The best of {len(completed)} trials by validation {search.metric} ({completed[0].value:.4f}).\n"
    best += yaml.safe_dump(search.settings_for(completed[0].params), sort_keys=False)
    write_atomically(search.folder / "best.yaml", best.encode())
    return {
        "metric": search.metric,
        "folder": str(search.folder),
        "seconds": _seconds(trials),
        "pruned": sum(trial.state == TrialState.PRUNED for trial in trials),
        "failed": sum(trial.state == TrialState.FAIL for trial in trials),
        "entries": [
            {"trial": t.number, "value": t.value, "settings": t.params, "seconds": _seconds([t]), **t.user_attrs}
            for t in completed
        ],
    }


def open_study(folder: Path) -> optuna.Study:
    """Optuna's study in ``folder``, which is created if it does not exist.

    The sampler's seed is the number of trials: a search can be repeated, and one that resumes draws other values.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS)
    at: dict[str, Any] = {"storage": f"sqlite:///{folder / 'study.db'}", "study_name": "settings"}
    study = optuna.create_study(**at, direction="maximize", pruner=pruner, load_if_exists=True)
    study.sampler = optuna.samplers.TPESampler(seed=len(study.get_trials()), n_startup_trials=2 * STARTUP_TRIALS)
    return study


def _train(search: Search, trial: optuna.Trial, stop: StopRequest, runs: list[str]) -> float:
    """The mean over seeds of the best validation metric; appends to ``runs``.

    Raises:
        TrialPruned: the pruner ends the trial. StoppedError: ``stop`` was requested. TrainingError: any other failure.
    """
    import optuna

    from graphmill.runs.train import train

    def watch(record: Mapping[str, Any]) -> None:
        figure = record.get("valid", {}).get(search.metric)
        if not runs and isinstance(figure, int | float):
            trial.report(float(figure), int(record["epoch"]))
            if trial.should_prune():
                raise optuna.TrialPruned

    figures = []
    for seed in range(search.settings.seeds):
        values = put(search.settings_for(trial.params), "training.seed", seed)
        values = put(values, "acceleration.processes", 1)
        try:
            result = train(values, "search", root=str(search.folder / "runs"), stop=stop, splits=["valid"], watch=watch)
        except GraphmillError as error:
            if stop.requested:
                raise StoppedError(f"stopped ({stop.reason}); the same command goes on") from None
            raise TrainingError(str(error)) from None
        finally:
            gc.collect()  # models and optimizers hold cycles
        if (figure := result["metrics"].get(f"valid_{search.metric}")) is None:
            raise TrainingError(f"there is no {search.metric} on validation")
        figures.append(float(figure))
        runs.append(str(result["run_dir"]))
    return statistics.fmean(figures)


def _counted(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that have ended. A killed attempt does not count; its repetition does."""
    return [trial for trial in study.get_trials() if trial.state.is_finished() and "runs" in trial.user_attrs]


def _seconds(trials: list[FrozenTrial]) -> float:
    return sum(trial.duration.total_seconds() for trial in trials if trial.duration is not None)
