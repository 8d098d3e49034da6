"""Changes the sizes of a step when memory runs out. Every change (a "rung") keeps the gradient.

The place where memory ran out decides what is tried. Smaller chunks reduce the memory of the loss only. Recomputing
layers reduces the activations of the encoding. A change that does not help is undone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from graphmill.training.contract import ENCODING, LOSS, StepSizes
from graphmill.training.memory import is_out_of_memory, out_of_memory_error, out_of_memory_reason

T = TypeVar("T")

_FACTORS = (8, 64)
"""Factors by which the number of loss chunks is multiplied."""
_MOST_PARTS = 64
"""Blocks of an evaluation become at most this many times smaller."""


def describe(step_sizes: StepSizes) -> str:
    """The sizes in words."""
    chunks = f"loss in {step_sizes.micro_batches} chunks"
    return f"{chunks}, gradient checkpointing on" if step_sizes.checkpointing else chunks


def with_ladder(
    attempt: Callable[[], T],
    *,
    step_sizes: StepSizes,
    clear: Callable[[], None],
    note: Callable[[str], None],
    remedy: str,
    repeatable: Callable[[], bool] = lambda: True,
) -> T:
    """Run ``attempt``. If memory runs out, take a rung, ``clear`` the partial results and try the same step again.

    There are at most six attempts. The sizes that succeed stay, and are reported to ``note`` and ``step_sizes.history``.
    If none succeeds, the sizes are restored. ``repeatable`` says whether the step can be tried again. ``remedy`` names
    the settings to change if nothing is left to try.

    Raises:
        OutOfMemoryError: no attempt succeeded; the message gives memory in use and the
            settings to change.
    """
    before = replace(step_sizes, history=[])
    tried: list[str] = []
    failed = ""
    while True:
        result, reason = _tried(attempt)
        if reason is None:
            if tried:
                step_sizes.history.append(tried[-1])
                note(f"{failed}: going on with {tried[-1]}; the gradient stays the same")
            return result
        clear()
        failed = failed or f"out of memory in {step_sizes.at} ({reason})"
        may = repeatable()
        rung = _next(before, step_sizes) if may else None
        if rung is None:
            nothing = "nothing makes it smaller" if may else "the processes had begun to add up"
            said = "; ".join(tried) or f"nothing ({nothing})"
            at = step_sizes.at
            step_sizes.micro_batches, step_sizes.checkpointing = before.micro_batches, before.checkpointing
            raise out_of_memory_error(f"in {at}: {reason}", f"tried: {said}. {remedy}")
        step_sizes.micro_batches, step_sizes.checkpointing = rung.micro_batches, rung.checkpointing
        tried.append(describe(step_sizes))


def _tried(attempt: Callable[[], T]) -> tuple[T, str | None]:
    """The result and None; if memory ran out, no result and the reason."""
    try:
        return attempt(), None
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return cast(T, None), out_of_memory_reason(error)


def _next(before: StepSizes, now: StepSizes) -> StepSizes | None:
    """The sizes to try after ``now`` failed at ``now.at``. ``before`` are the sizes of the first attempt."""
    smaller = [before, *(replace(before, micro_batches=before.micro_batches * f) for f in _FACTORS)]
    again = now.can_checkpoint and not before.checkpointing
    rungs = [*smaller, *(replace(each, checkpointing=True) for each in smaller)] if again else smaller
    ahead = rungs[[each.sizes() for each in rungs].index(now.sizes()) + 1 :]
    if now.at == ENCODING:
        ahead = [each for each in ahead if each.checkpointing and not now.checkpointing]
    elif now.at != LOSS:
        ahead = []
    return ahead[0] if ahead else None


def in_smaller_blocks(
    evaluate: Callable[[int], T],
    *,
    parts: int,
    clear: Callable[[], None],
    note: Callable[[str], None],
    remedy: str,
    repeatable: bool,
) -> tuple[T, int]:
    """Call ``evaluate(parts)``, whose blocks are ``parts`` times smaller. If memory runs out, try eight times as many
    parts.

    Returns the result and the final number of parts.

    Raises:
        OutOfMemoryError: memory ran out with the smallest blocks, or the evaluation may not be repeated.
    """
    began = parts
    while True:
        result, reason = _tried(partial(evaluate, parts))
        if reason is None:
            if parts > began:
                note(f"out of memory in the evaluation: going on in blocks of 1/{parts}; the figures stay the same")
            return result, parts
        clear()
        if not repeatable or parts >= _MOST_PARTS:
            raise out_of_memory_error(f"in the evaluation: {reason}", remedy)
        parts *= 8
