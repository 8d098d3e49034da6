"""Early stopping and the choice of the best epoch, by unrounded metrics."""

from __future__ import annotations

from graphmill.training.run_state import TrainState


def record_metric(state: TrainState, value: float) -> bool:
    """Record the selection metric of ``state.epoch``. True if it is the best so far."""
    better = state.best_metric is None or value > state.best_metric
    if better:
        state.best_metric, state.best_epoch = value, state.epoch
    return better


def out_of_patience(state: TrainState, patience_epochs: int) -> bool:
    """Whether the last evaluation came at least ``patience_epochs`` epochs after the best one and was no better.

    Patience counts epochs, so that rare evaluations do not prolong a run. It is decided only at an evaluation, so that
    epochs without one cannot end a run.
    """
    if patience_epochs <= 0 or state.best_metric is None:
        return False
    return state.evaluated_epoch - state.best_epoch >= patience_epochs


def unselected(split: str, patience_epochs: int) -> str:
    """The note for a run whose ``split`` is empty, so that no epoch can be chosen."""
    patience = f"training.patience_epochs: {patience_epochs} never ends the run, " if patience_epochs else ""
    other = "" if split == "test" else "; to have one chosen, build the graph with a validation split"
    return (
        f"nothing is held out in the {split} split, so no epoch is chosen: {patience}all training.epochs are trained and "
        f"the last one counts{other}"
    )
