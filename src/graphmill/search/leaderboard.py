"""The results of a search: ranked trials with intervals over seeds, importance of settings, and the best settings."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from graphmill.atomic_files import replacing, write_atomically
from graphmill.errors import InputError, StoppedError
from graphmill.evaluation.json_values import plain
from graphmill.evaluation.markdown import number
from graphmill.search.study import Search, seconds_of

if TYPE_CHECKING:
    import optuna

    from graphmill.runs.messages import Outlet
    from graphmill.training.signals import StopRequest

LEAST_TRIALS = 4
"""Smallest number of finished trials for computing importance."""


@dataclass(frozen=True)
class Entry:
    """A trial: its searched settings, the mean over seeds with a 95 % interval (nan for one seed), and its runs."""

    place: int
    trial: int
    chosen: dict[str, Any]
    value: float
    low: float
    high: float
    values: list[float]
    seconds: float
    runs: list[str]


@dataclass(frozen=True)
class Leaderboard:
    """The results of a search: entries from best to worst, counts, importance by setting, and the winner's test metrics."""

    metric: str
    entries: list[Entry]
    failed: int
    pruned: int
    seconds: float
    importance: dict[str, float]
    test: dict[str, float]
    folder: str
    beside: dict[str, Any] = field(default_factory=dict)
    """The winner's ranking on the test split beside its baselines: ``metric``, ``figures`` by scorer, and a ``sentence``."""

    @property
    def best(self) -> Entry:
        """The winner."""
        return self.entries[0]

    def rows(self, most: int = 20) -> list[list[str]]:
        """Rows of a table: rank, value with its interval, seconds, and the searched settings."""
        return [
            [str(e.place), str(e.trial), f"{e.value:.4f}", _interval(e), f"{e.seconds:.0f}",
             ", ".join(f"{path} {number(value)}" for path, value in e.chosen.items())]
            for e in self.entries[:most]
        ]  # fmt: skip


COLUMNS = ["place", "trial", "mean", "95 %", "seconds", "settings"]


def leaderboard(
    search: Search, study: optuna.Study, *, outlets: Sequence[Outlet] = (), stop: StopRequest | None = None
) -> Leaderboard:
    """The leaderboard of a study; writes ``leaderboard.json``, ``best.yaml`` and ``trials.png`` into its folder.

    The test split is read once, for the winner and its baselines. A later call with the same winner reuses the result.

    Raises:
        InputError: no trial has finished.
        StoppedError: ``stop`` was requested while the baselines were ranked.
    """
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False)
    completed = sorted((t for t in trials if t.state == TrialState.COMPLETE), key=lambda t: -float(t.value or 0.0))
    if not completed:
        raise InputError(f"no trial of {search.folder} has finished; run the search first")
    entries = [_entry(search, place, trial) for place, trial in enumerate(completed, 1)]
    test = _test(search, entries[0], outlets, stop)
    result = Leaderboard(
        metric=search.metric,
        entries=entries,
        failed=sum(t.state == TrialState.FAIL and "problem" in t.user_attrs for t in trials),
        pruned=sum(t.state == TrialState.PRUNED for t in trials),
        seconds=seconds_of(study),
        importance=_importance(study, len(completed)),
        test={name: float(value) for name, value in test["figures"].items()},
        folder=str(search.folder),
        beside=test["beside"],
    )
    text = json.dumps(plain(asdict(result)), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(search.folder / "leaderboard.json", text.encode() + b"\n")
    winner = search.settings_for(result.best.chosen)
    head = f"# The best of {len(entries)} trials by validation {search.metric} ({result.best.value:.4f}).\n"
    write_atomically(search.folder / "best.yaml", (head + yaml.safe_dump(winner, sort_keys=False)).encode())
    if len(completed) >= 2:
        _draw(study, search.folder / "trials.png")
    return result


def _entry(search: Search, place: int, trial: optuna.trial.FrozenTrial) -> Entry:
    values = [float(value) for value in trial.user_attrs.get("values", [])]
    mean, half = float(trial.value or 0.0), math.nan
    if len(values) > 1:
        from scipy.stats import t

        half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    seconds, runs = float(trial.user_attrs.get("seconds", 0.0)), list(trial.user_attrs.get("runs", []))
    return Entry(place, trial.number, search.chosen(trial), mean, mean - half, mean + half, values, seconds, runs)


def _importance(study: optuna.Study, completed: int) -> dict[str, float]:
    """The share of the metric's variance that each setting explains, by fANOVA; empty for few or equal trials."""
    import optuna

    if completed < LEAST_TRIALS:
        return {}
    # Not Optuna's default, PED-ANOVA: it compares the best trials with the rest, and gives an answer even for equal
    # trials.
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    try:
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
        return {name: float(value) for name, value in shares.items()}
    except (RuntimeError, ValueError, ZeroDivisionError):
        return {}


def _test(search: Search, winner: Entry, outlets: Sequence[Outlet], stop: StopRequest | None) -> dict[str, Any]:
    """The metrics of the winner and its baselines on the test split, read when it became the winner."""
    path = search.folder / "test.json"
    if path.is_file():
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if kept.get("run") == winner.runs[0] and "beside" in kept:
            return kept
    from graphmill.runs.export import evaluate_run, restore
    from graphmill.usage.ranking import rank_any

    def poll() -> None:
        if stop is not None and stop.requested:
            raise StoppedError(f"stopped ({stop.reason}); the same command does it again")

    restored = restore(winner.runs[0])
    figures = evaluate_run(restored, poll=poll)["test"]
    # The test split has been read, so the run is now like any other.
    report = restored.run.read_json("report.json")
    report["metrics"] |= {f"test_{name}": value for name, value in figures.items()}
    restored.run.write_json("report.json", report)
    ranked = rank_any(restored, outlets=outlets, poll=poll, stop=stop)
    result = {"run": winner.runs[0], "figures": plain(figures), "beside": _beside(search.metric, ranked)}
    write_atomically(path, json.dumps(result).encode())
    return result


def _beside(metric: str, ranked: Mapping[str, Any]) -> dict[str, Any]:
    """One value per scorer, and a sentence if the ranking has one."""
    if "beside" not in ranked:
        return {"metric": "mrr", "figures": plain(ranked["mrr"]), "sentence": ranked["against"]["sentence"]}
    judged = metric if metric in ranked["figures"] else next(iter(ranked["figures"]))
    figures = {who: each[judged] for who, each in ranked["beside"].items() if judged in each}
    return {"metric": judged, "figures": plain(figures), "sentence": ranked.get("advice", "")}


def _draw(study: optuna.Study, path: Path) -> None:
    """Parallel coordinates of all trials, drawn by Optuna."""
    import warnings

    import matplotlib as mpl

    mpl.use("agg")
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axes = optuna.visualization.matplotlib.plot_parallel_coordinate(study)
    figure = axes.figure
    figure.set_size_inches(9, 4.5)
    with replacing(path) as part:
        figure.savefig(part.file, format="png", dpi=110, bbox_inches="tight")


def _interval(entry: Entry) -> str:
    return f"{entry.low:.4f} to {entry.high:.4f}" if math.isfinite(entry.low) else "one seed"
