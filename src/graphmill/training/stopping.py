"""Early stopping and the choice of the best epoch, on unrounded metrics, with patience in epochs."""

from __future__ import annotations

from graphmill.training.state import TrainState


def record_metric(state: TrainState, value: float, min_delta: float) -> bool:
    """Note the selection metric of ``state.epoch``; True when it is the best so far by more than ``min_delta``."""
    better = state.best_metric is None or value > state.best_metric + min_delta
    if better:
        state.best_metric, state.best_epoch = value, state.epoch
    return better


def out_of_patience(state: TrainState, patience_epochs: int) -> bool:
    """Whether ``patience_epochs`` epochs have passed since the best one, however often it is evaluated."""
    if patience_epochs <= 0 or state.best_metric is None:
        return False
    return state.epoch - state.best_epoch >= patience_epochs
