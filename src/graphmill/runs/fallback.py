"""Falls back to the CPU, once, after a device has failed. A training resumes from its last checkpoint; other work is
repeated."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from graphmill.errors import ResourceError
from graphmill.runs.resolve import Job, merge
from graphmill.training.memory import is_out_of_memory
from graphmill.training.run_directory import RunDirectory

KEY = "fell_back_from"
T = TypeVar("T")
P = ParamSpec("P")


@dataclass
class _Work:
    """State of :func:`with_cpu_fallback`, about the runs that its work has restored."""

    device: str = "cpu"
    may: bool = True
    """Whether all these runs have ``acceleration.device: auto``."""
    reason: str = ""
    """Why the work fell back to the CPU; "" in the first attempt."""


_WORK: ContextVar[_Work | None] = ContextVar("work", default=None)


def failure_of(device: str, error: BaseException) -> str:
    """Return a device's error in one line; "" if the error is not a device's or the run was on the CPU.

    A device fails with RuntimeError (a missing operator, a failed kernel) or TypeError (a missing dtype). Running out
    of memory does not count here: the ladder handles it. graphmill's own errors (GraphmillError) do not count either.
    """
    if device == "cpu" or not isinstance(error, RuntimeError | TypeError) or is_out_of_memory(error):
        return ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def on_the_cpu(values: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """The settings with which the same run (same fingerprint) continues on the CPU."""
    taken = {"device": "cpu", "precision": job.precision, "batching": job.batching, "compile": "none"}
    return merge(values, {"preset": job.preset, "acceleration": taken})


def fell_back_before(job: Job, run: RunDirectory) -> str:
    """Return why an earlier attempt of this run fell back to the CPU; "" if it did not."""
    if job.device.type == "cpu" or job.settings.acceleration.resume == "never":
        return ""
    resolved = run.read_json("manifest.json")["resolved"] if (run.path / "manifest.json").is_file() else {}
    return str(resolved.get("device_reason", "")) if resolved.get(KEY) == job.device.type else ""


def require_fallback(job: Job, processes: int, why: str) -> None:
    """Raise :class:`ResourceError` if a training whose device failed (for the reason ``why``) cannot continue on the CPU."""
    who = "several processes" if processes > 1 else "a training in tf32" if job.precision == "tf32" else ""
    if who:
        raise ResourceError(
            f"{job.device.type} failed ({why}), and {who} cannot fall back to the CPU; the same command continues from the "
            "last checkpoint on the same device, or set acceleration.device: cpu"
            + (" and acceleration.precision: fp32 to train on the CPU" if who.endswith("tf32") else "")
        )


def with_cpu_fallback(work: Callable[[], T], note: Callable[[str], None], state: _Work | None = None) -> T:
    """Do ``work``. If the device of the runs that it restores fails, do it once more on the CPU.

    ``work`` must write its files atomically, because it may run twice. The second attempt requires
    ``acceleration.device: auto`` and is reported to ``note``. Running out of memory and errors on the CPU are raised
    unchanged. ``state``: the state of earlier work with the same models, so that they stay on the CPU.
    """
    state = state or _Work()
    token = _WORK.set(state)
    try:
        try:
            return work()
        except Exception as error:
            why = failure_of(state.device, error)
            if not why or not state.may or state.reason:
                raise
            state.reason = f"{state.device} failed ({why}); done again on the CPU"
        note(state.reason)
        return work()
    finally:
        _WORK.reset(token)


def retry_on_cpu(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method of an object that keeps its restored models: :func:`with_cpu_fallback`, with a warning.

    If the device fails, the kept models are dropped, and the object restores models on the CPU from then on.
    """

    @wraps(method)
    def wrapped(*arguments: P.args, **options: P.kwargs) -> T:
        kept = arguments[0]

        def left(text: str) -> None:
            for name in ("_restored", "_link_model"):
                vars(kept).pop(name, None)
            warnings.warn(text, stacklevel=4)

        state = vars(kept).setdefault("_work", _Work())
        return with_cpu_fallback(lambda: method(*arguments, **options), left, state)

    return wrapped


def on_this_device(job: Job) -> Job:
    """The job of a run to restore: on its device, or on the CPU if the device has failed in this work."""
    import torch

    state = _WORK.get()
    if state is None or job.device.type == "cpu":
        return job
    if state.reason:
        return replace(job, device=torch.device("cpu"), device_reason=state.reason)
    state.device, state.may = job.device.type, state.may and job.settings.acceleration.device == "auto"
    return job


def left_device() -> str:
    """Why this work is done on the CPU; "" if no device has failed."""
    state = _WORK.get()
    return state.reason if state else ""
