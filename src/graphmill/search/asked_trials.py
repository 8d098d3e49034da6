"""Trials that one process requests and another one trains. Each has a key, and a settings file named after it.

Dagster's sensor requests trials. The step of the trial's partition trains them.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml

from graphmill.atomic_files import write_atomically
from graphmill.errors import InputError, TrainingError
from graphmill.runs.resolve import merge, read_settings
from graphmill.search.study import (
    STARTUP_TRIALS,
    Search,
    Show,
    budget_used_up,
    finished,
    is_alive,
    outcome_of,
    train_trial,
    trials_wanted,
)

if TYPE_CHECKING:
    import optuna

    from graphmill.training.signals import StopRequest

_DIGITS = 6


def ask(search: Search, study: optuna.Study) -> str:
    """Request the next trial and write its settings; returns its key, or "" if the search has all its trials or no
    budget left.

    Raises:
        TrainingError: the last trials all failed; the message has the reason of the last one.
    """
    under_way = len(waiting(study))
    if finished(study) + under_way >= trials_wanted(search, study) or budget_used_up(search, study):
        return ""
    _require_hope(study)
    trial = study.ask()
    chosen = {d.path: d.suggest(trial) for d in search.dimensions}
    key = f"{search.folder.name.removeprefix('search-')[:_DIGITS]}-{trial.number:04d}"
    trial.set_user_attr("key", key)
    write_settings(search, key, trial.number, chosen)
    return key


def write_settings(search: Search, key: str, number: int, chosen: Mapping[str, Any]) -> None:
    """Write the settings file of a key. ``graphmill train`` can read it, too."""
    path = settings_path(search, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"# Trial {number} of {search.folder.name}. It is trained with seeds 0 to {search.settings.seeds - 1}.\n"
    write_atomically(path, (head + yaml.safe_dump(search.settings_for(chosen), sort_keys=False)).encode())


def settings_path(search: Search, key: str) -> Path:
    """The path of a trial's settings file."""
    return search.folder / "trials" / f"{key}.yaml"


def waiting(study: optuna.Study) -> dict[str, int]:
    """Requested trials that have not ended: key → number."""
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False, states=[TrialState.RUNNING])
    return {str(t.user_attrs["key"]): t.number for t in trials if "key" in t.user_attrs}


def give_up(study: optuna.Study, number: int, problem: str) -> None:
    """Mark a trial as failed in Optuna, because no process will train it."""
    from optuna.trial import Trial, TrialState

    Trial(study, study.get_trials(deepcopy=False)[number]._trial_id).set_user_attr("problem", problem)
    study.tell(number, state=TrialState.FAIL)


def stop_left_over(study: optuna.Study, number: int) -> bool:
    """Ask the process that trains a trial to stop, if it runs although its Dagster run has ended. Returns whether it
    still runs."""
    process = study.get_trials(deepcopy=False)[number].user_attrs.get("process")
    if not _is_here(process):
        return False
    with contextlib.suppress(psutil.Error):
        psutil.Process(int(process[0])).terminate()
    return True


def _is_here(process: Any) -> bool:
    """Whether the process that trains a trial runs on this machine.

    A process that a launcher started elsewhere ends with its step. The lock of the run directory prevents two processes
    from training one trial."""
    return is_alive(process) and process[2] == socket.gethostname()


def train_asked(
    search: Search,
    key: str,
    overrides: Mapping[str, Any],
    show: Show = lambda record, seed: None,
    stop: StopRequest | None = None,
) -> dict[str, Any]:
    """Train or resume the trial with this key by its settings file. A trial that has ended is only reported again.

    ``overrides``: nested settings of this machine, such as its device. Returns the outcome
    (:func:`graphmill.search.study.outcome_of`) with ``key``, ``metric`` and ``settings``, the file.

    Raises:
        InputError: the trial was not requested, its file is missing, or another process trains it.
        StoppedError: ``stop`` was requested; the same call resumes.
    """
    from optuna.trial import Trial, TrialState

    study = search.study()
    trials = study.get_trials(deepcopy=False)
    frozen = next((trial for trial in trials if trial.user_attrs.get("key") == key), None)
    path = settings_path(search, key)
    if frozen is None:
        raise InputError(f"{path}: nobody asked for a trial '{key}' of this search; the search's sensor adds trials")
    if frozen.state == TrialState.RUNNING:
        if _is_here(frozen.user_attrs.get("process")):
            number = frozen.user_attrs["process"][0]
            raise InputError(f"trial '{key}' is being trained by process {number}; wait for it, or stop it")
        values = merge(read_settings(path), overrides)
        chosen = search.chosen(frozen)
        result = train_trial(search, study, Trial(study, frozen._trial_id), chosen, values=values, show=show, stop=stop)
    else:
        result = outcome_of(search, frozen)
    return {**result, "key": key, "metric": search.metric, "settings": str(path)}


def _require_hope(study: optuna.Study) -> None:
    """Raise :class:`TrainingError` if the last trials all failed."""
    ended = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished()][-STARTUP_TRIALS:]
    problems = [str(t.user_attrs["problem"]) for t in ended if "problem" in t.user_attrs]
    if len(problems) == STARTUP_TRIALS:
        raise TrainingError(f"{len(problems)} trials in a row failed; the last: {problems[-1]}")
