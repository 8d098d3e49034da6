"""Continues a run on the CPU, from its last checkpoint and once, after its device has failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphmill.runs.resolve import Job, merge
from graphmill.training.memory import is_out_of_memory
from graphmill.training.run_directory import RunDirectory

if TYPE_CHECKING:
    from graphmill.runs.train import Prepared

KEY = "fell_back_from"


def failure_of(device: str, error: BaseException) -> str:
    """Return a device's error in one line; "" if the error is not a device's or the run was on the CPU.

    Devices fail with RuntimeError (an operator that is missing, a kernel that failed) or, where a dtype is missing, with
    TypeError. What is out of memory is the ladder's business, and what the product says itself is a GraphmillError.
    """
    if device == "cpu" or not isinstance(error, RuntimeError | TypeError) or is_out_of_memory(error):
        return ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def on_the_cpu(values: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """The settings with which the same run, of the same fingerprint, goes on on the CPU."""
    taken = {"device": "cpu", "precision": job.precision, "batching": job.batching, "compile": "off"}
    return merge(values, {"preset": job.preset, "acceleration": taken})


def fell_back_before(prepared: Prepared) -> str:
    """Return why an earlier attempt of this run left its device; "" if it did not."""
    if prepared.job.device.type == "cpu" or prepared.job.settings.training.force:
        return ""
    path = prepared.run.path / "manifest.json"
    resolved = RunDirectory(prepared.run.path).read_json("manifest.json")["resolved"] if path.is_file() else {}
    return str(resolved.get("device_reason", "")) if resolved.get(KEY) == prepared.job.device.type else ""
