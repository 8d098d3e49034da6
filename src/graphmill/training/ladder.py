"""What to do when memory runs out: one ladder whose rungs keep the gradient, for the planner and for real failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from graphmill.training.contract import Execution
from graphmill.training.memory import is_out_of_memory, out_of_memory_error, out_of_memory_reason

T = TypeVar("T")


def shrink(execution: Execution, *, max_loss_chunks: int) -> str | None:
    """Take the next rung in place and say which; None when there is none left.

    Order: halve the loss chunk, turn on checkpointing. Propagation has no rung: its kernels take edges in chunks that
    stay in the cache, so halving them would free nothing.
    """
    if execution.loss_chunks < max_loss_chunks:
        execution.loss_chunks = min(execution.loss_chunks * 2, max_loss_chunks)
        return _record(execution, f"loss in {execution.loss_chunks} chunks")
    if not execution.checkpointing:
        execution.checkpointing = True
        return _record(execution, "gradient checkpointing on")
    return None


def with_ladder(
    attempt: Callable[[], T],
    *,
    execution: Execution,
    policy: str,
    max_loss_chunks: int,
    clear: Callable[[], None],
    note: Callable[[str], None],
    remedy: str,
    repeatable: Callable[[], bool] = lambda: True,
) -> T:
    """Run ``attempt``; on out-of-memory take a rung, ``clear`` what was half done and try the same step again.

    ``repeatable`` says whether it can be tried again; ``remedy`` which settings to turn where nothing is left.

    Raises:
        OutOfMemoryError: the ladder is at its end, or ``policy`` is "stop"; with the figures and the settings to turn.
    """
    while True:
        try:
            return attempt()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = out_of_memory_reason(error)
        clear()
        may = policy == "shrink" and repeatable()
        rung = shrink(execution, max_loss_chunks=max_loss_chunks) if may else None
        if rung is None:
            nothing = "acceleration.on_oom: stop" if policy == "stop" else "the processes had begun to add up"
            tried = "; ".join(execution.history) or f"nothing ({nothing})"
            raise out_of_memory_error(
                reason,
                f"tried: {tried}. {remedy}",
            ) from None
        note(f"out of memory ({reason}): going on with {rung}; the gradient stays the same")


def _record(execution: Execution, text: str) -> str:
    execution.history.append(text)
    return text
