"""The results of a search: ranked trials with intervals over seeds, and the best settings."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import yaml

from graphmill.atomic_files import write_atomically
from graphmill.errors import InputError
from graphmill.evaluation.json_values import plain
from graphmill.evaluation.markdown import number
from graphmill.search.study import Search, seconds_of

if TYPE_CHECKING:
    import optuna

COLUMNS = ["place", "trial", "mean", "95 %", "seconds", "settings"]


@dataclass(frozen=True)
class Entry:
    """A trial: its searched settings, the mean over seeds with a 95 % interval (nan for one seed), and its runs."""

    trial: int
    chosen: dict[str, Any]
    value: float
    low: float
    high: float
    seconds: float
    runs: list[str]


@dataclass(frozen=True)
class Leaderboard:
    """The results of a search: entries from best to worst, and counts."""

    metric: str
    entries: list[Entry]
    failed: int
    pruned: int
    seconds: float
    folder: str

    @property
    def best(self) -> Entry:
        """The winner."""
        return self.entries[0]

    def rows(self, most: int = 20) -> list[list[str]]:
        """Rows of a table with :data:`COLUMNS`."""
        return [
            [str(place), str(e.trial), f"{e.value:.4f}", _interval(e), f"{e.seconds:.0f}",
             ", ".join(f"{path} {number(value)}" for path, value in e.chosen.items())]
            for place, e in enumerate(self.entries[:most], 1)
        ]  # fmt: skip


def leaderboard(search: Search, study: optuna.Study) -> Leaderboard:
    """The leaderboard of a study; writes ``leaderboard.json`` and ``best.yaml`` into its folder.

    Raises:
        InputError: no trial has finished.
    """
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False)
    completed = sorted((t for t in trials if t.state == TrialState.COMPLETE), key=lambda t: -float(t.value or 0.0))
    if not completed:
        raise InputError(f"no trial of {search.folder} has finished; run the search first")
    entries = [_entry(search, trial) for trial in completed]
    result = Leaderboard(
        metric=search.metric,
        entries=entries,
        failed=sum(t.state == TrialState.FAIL and "problem" in t.user_attrs for t in trials),
        pruned=sum(t.state == TrialState.PRUNED for t in trials),
        seconds=seconds_of(study),
        folder=str(search.folder),
    )
    text = json.dumps(plain(asdict(result)), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(search.folder / "leaderboard.json", text.encode() + b"\n")
    winner = search.settings_for(result.best.chosen)
    head = f"# The best of {len(entries)} trials by validation {search.metric} ({result.best.value:.4f}).\n"
    write_atomically(search.folder / "best.yaml", (head + yaml.safe_dump(winner, sort_keys=False)).encode())
    return result


def _entry(search: Search, trial: optuna.trial.FrozenTrial) -> Entry:
    values = [float(value) for value in trial.user_attrs.get("values", [])]
    mean, half = float(trial.value or 0.0), math.nan
    if len(values) > 1:
        from scipy.stats import t

        half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    seconds, runs = float(trial.user_attrs.get("seconds", 0.0)), list(trial.user_attrs.get("runs", []))
    return Entry(trial.number, search.chosen(trial), mean, mean - half, mean + half, seconds, runs)


def _interval(entry: Entry) -> str:
    return f"{entry.low:.4f} to {entry.high:.4f}" if math.isfinite(entry.low) else "one seed"
