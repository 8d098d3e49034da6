"""What to do when memory runs out: rungs that keep the gradient, for the planner and for real failures.

Where memory ran out decides what is tried: smaller chunks help the loss and nothing else, recomputing layers helps what a
step keeps of its encoding. What turns out not to help is taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from graphmill.training.contract import ENCODING, LOSS, Execution
from graphmill.training.memory import is_out_of_memory, out_of_memory_error, out_of_memory_reason

T = TypeVar("T")

_FACTORS = (8, 64)
"""Chunks of the loss that are tried, in those that there were."""
_MOST_PARTS = 64
"""Of an evaluation's blocks."""


def shrink(execution: Execution, *, max_loss_chunks: int) -> str | None:
    """Take the planner's next rung in place and say which; None when there is none left.

    Order: halve the loss chunk, turn on checkpointing. Propagation has no rung: its kernels take edges in chunks that
    stay in the cache, so halving them would free nothing.
    """
    if execution.loss_chunks < max_loss_chunks:
        execution.loss_chunks = min(execution.loss_chunks * 2, max_loss_chunks)
    elif not execution.checkpointing:
        execution.checkpointing = True
    else:
        return None
    return describe(execution)


def describe(execution: Execution) -> str:
    """The sizes in words."""
    chunks = f"loss in {execution.loss_chunks} chunks"
    return f"{chunks}, gradient checkpointing on" if execution.checkpointing else chunks


def with_ladder(
    attempt: Callable[[], T],
    *,
    execution: Execution,
    policy: str,
    clear: Callable[[], None],
    note: Callable[[str], None],
    remedy: str,
    repeatable: Callable[[], bool] = lambda: True,
) -> T:
    """Run ``attempt``; where memory runs out take a rung, ``clear`` what was half done and try the same step again.

    At most six attempts. The sizes that it comes through with stay, and are said in ``note`` and ``execution.history``;
    where none helps they are as before. ``repeatable`` says whether it can be tried again; ``remedy`` which settings to
    turn where nothing is left.

    Raises:
        OutOfMemoryError: nothing helped, or ``policy`` is "stop"; with the figures and the settings to turn.
    """
    before = replace(execution, history=[])
    tried: list[str] = []
    failed = ""
    while True:
        try:
            found = attempt()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = out_of_memory_reason(error)
        else:
            if tried:
                execution.history.append(tried[-1])
                note(f"{failed}: going on with {tried[-1]}; the gradient stays the same")
            return found
        clear()
        failed = failed or f"out of memory in {execution.at} ({reason})"
        may = policy == "shrink" and repeatable()
        rung = _next(before, execution) if may else None
        if rung is None:
            nothing = "nothing makes it smaller" if may else "acceleration.on_oom: stop"
            if policy == "shrink" and not may:
                nothing = "the processes had begun to add up"
            said = "; ".join(tried) or f"nothing ({nothing})"
            at = execution.at
            execution.loss_chunks, execution.checkpointing = before.loss_chunks, before.checkpointing
            raise out_of_memory_error(f"in {at}: {reason}", f"tried: {said}. {remedy}") from None
        execution.loss_chunks, execution.checkpointing = rung.loss_chunks, rung.checkpointing
        tried.append(describe(execution))


def _next(before: Execution, now: Execution) -> Execution | None:
    """The sizes to try after ``now``, which began as ``before`` and failed at ``now.at``."""
    smaller = [before, *(replace(before, loss_chunks=before.loss_chunks * f) for f in _FACTORS)]
    rungs = smaller if before.checkpointing else [*smaller, *(replace(each, checkpointing=True) for each in smaller)]
    ahead = rungs[[each.sizes() for each in rungs].index(now.sizes()) + 1 :]
    if now.at == ENCODING:
        ahead = [each for each in ahead if each.checkpointing and not now.checkpointing]
    elif now.at != LOSS:
        ahead = []
    return ahead[0] if ahead else None


def once_more(attempt: Callable[[], T], *, clear: Callable[[], None], what: str, remedy: str) -> T:
    """Run what has no smaller form; where memory runs out, once more with what lies unused given back.

    Raises:
        OutOfMemoryError: it ran out again.
    """
    try:
        return attempt()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    clear()
    try:
        return attempt()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory_error(f"in {what}: {out_of_memory_reason(error)}", remedy) from None


def in_smaller_blocks(
    evaluate: Callable[[int], T],
    *,
    parts: int,
    clear: Callable[[], None],
    note: Callable[[str], None],
    remedy: str,
    repeatable: bool,
) -> tuple[T, int]:
    """``evaluate(parts)`` with blocks ``parts`` times smaller, eight times more where memory runs out; and the parts then.

    Raises:
        OutOfMemoryError: it ran out with the smallest blocks, or may not be repeated.
    """
    began = parts
    while True:
        try:
            found = evaluate(parts)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = out_of_memory_reason(error)
        else:
            if parts > began:
                note(f"out of memory in the evaluation: going on in blocks of 1/{parts}; the figures stay the same")
            return found, parts
        clear()
        if not repeatable or parts >= _MOST_PARTS:
            raise out_of_memory_error(f"in the evaluation: {reason}", remedy)
        parts *= 8
