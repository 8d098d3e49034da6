"""Checks whether a loaded checkpoint is of the run's best epoch, and reports if it is not."""

from __future__ import annotations

from graphmill.training.checkpoint import Loaded
from graphmill.training.run_directory import RunDirectory


def best_epoch(run: RunDirectory) -> int | None:
    """Return the best epoch of a finished run; None if no epoch was chosen or the run has not ended."""
    if not (run.path / "report.json").is_file():
        return None
    report = run.read_json("report.json")
    return None if report.get("best_metric") is None else int(report["best_epoch"])


def passed_over(run: RunDirectory, loaded: Loaded, best: int | None) -> list[str]:
    """The store's notes on damaged files. If ``loaded`` is not of the epoch ``best``, a note that names both epochs is
    added."""
    if best is None or loaded.epoch == best:
        return list(loaded.notes)
    damaged = any(run.checkpoints.glob(f"e{best:05d}-*.damaged"))
    return [
        *loaded.notes,
        f"the best epoch is {best}, but its checkpoint {'is damaged' if damaged else 'is not there any more'}: epoch "
        f"{loaded.epoch} is used in its place, and metrics and vectors come from that epoch",
    ]
