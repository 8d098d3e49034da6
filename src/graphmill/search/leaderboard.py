"""The results of a search: ranked trials with intervals over seeds, importance of settings, and the best settings."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import yaml

from graphmill.atomic_files import write_atomically
from graphmill.errors import InputError, StoppedError
from graphmill.evaluation.json_values import plain
from graphmill.evaluation.markdown import number
from graphmill.search.study import Search, seconds_of

if TYPE_CHECKING:
    import optuna

    from graphmill.runs.messages import Outlet
    from graphmill.training.signals import StopRequest

FILE = "leaderboard.json"
LEAST_TRIALS = 4
"""Smallest number of finished trials for computing importance."""
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
    """The results of a search: entries from best to worst, counts, and importance by setting.

    ``test``: the winner's ranking on the test split: ``run``, ``metric``, ``figures`` by scorer (``model`` and its
    baselines), and a ``sentence``.
    """

    metric: str
    entries: list[Entry]
    failed: int
    pruned: int
    seconds: float
    importance: dict[str, float]
    test: dict[str, Any]
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


def leaderboard(
    search: Search, study: optuna.Study, *, outlets: Sequence[Outlet] = (), stop: StopRequest | None = None
) -> Leaderboard:
    """The leaderboard of a study; writes ``leaderboard.json`` and ``best.yaml`` into its folder.

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
    entries = [_entry(search, trial) for trial in completed]
    result = Leaderboard(
        metric=search.metric,
        entries=entries,
        failed=sum(t.state == TrialState.FAIL and "problem" in t.user_attrs for t in trials),
        pruned=sum(t.state == TrialState.PRUNED for t in trials),
        seconds=seconds_of(study),
        importance=_importance(study, len(completed)),
        test=_test(search, entries[0], outlets, stop),
        folder=str(search.folder),
    )
    text = json.dumps(plain(asdict(result)), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(search.folder / FILE, text.encode() + b"\n")
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
    """The ranking of the winner and its baselines on the test split, read when it became the winner."""
    path = search.folder / FILE
    if path.is_file():
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["test"]
        if known["run"] == winner.runs[0]:
            return known
    from graphmill.runs.export import evaluate_run, restore
    from graphmill.usage.ranking import rank_any

    def poll() -> None:
        if stop is not None and stop.requested:
            raise StoppedError(f"stopped ({stop.reason}); the same command does it again")

    restored = restore(winner.runs[0])
    # The test split is read here, so the run is then like any other.
    report = restored.run.read_json("report.json")
    metrics = evaluate_run(restored, poll=poll)["test"]
    report["metrics"] |= {f"test_{name}": value for name, value in metrics.items()}
    restored.run.write_json("report.json", report)
    ranked = rank_any(restored, outlets=outlets, poll=poll, stop=stop)
    return {"run": winner.runs[0], **_figures(search.metric, ranked)}


def _figures(metric: str, ranked: Mapping[str, Any]) -> dict[str, Any]:
    """One value per scorer, and a sentence if the ranking has one."""
    if "beside" not in ranked:
        return {"metric": "mrr", "figures": plain(ranked["mrr"]), "sentence": ranked["against"]["sentence"]}
    judged = metric if metric in ranked["figures"] else next(iter(ranked["figures"]))
    figures = {who: each[judged] for who, each in ranked["beside"].items() if judged in each}
    return {"metric": judged, "figures": plain(figures), "sentence": ranked.get("advice", "")}


def _interval(entry: Entry) -> str:
    return f"{entry.low:.4f} to {entry.high:.4f}" if math.isfinite(entry.low) else "one seed"
