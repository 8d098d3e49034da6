"""Falls back to the CPU, once, after a device has failed in a training, which resumes from its last checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmill.errors import ResourceError
from graphmill.runs.resolve import Job, merge
from graphmill.training.memory import is_out_of_memory
from graphmill.training.run_directory import RunDirectory

KEY = "fell_back_from"
"""In a run's ``manifest.json``, section ``resolved``: the device that failed."""


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
