"""Formats the worker's messages as log lines and as figures of an observation."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.orchestration.metadata import scalars
from graphmill.runs.messages import duration, progress_line

Message = Mapping[str, Any]


def started_metadata(message: Message) -> dict[str, Any]:
    """The observation at a run's start: what runs where, from which epoch, and the expected time."""
    plain = {key: message[key] for key in ("fingerprint", "device", "device_reason") if message.get(key)}
    out = scalars(
        {
            **plain,
            "resumed_from_epoch": int(message.get("resumed_from_epoch") or 0),
            "reused": bool(message.get("reused")),
            "estimated": message.get("estimate") or {},
        }
    )
    if message.get("run_dir"):
        out["run_dir"] = dg.MetadataValue.path(str(message["run_dir"]))
    return out


def progress_metadata(message: Message) -> dict[str, Any]:
    """The current figures, with stable keys, so that the UI can plot them over time."""
    plain = ("epoch", "epochs", "step", "seconds_left", "memory_bytes")
    return scalars(
        {
            **{key: message.get(key) for key in plain},
            **{f"{unit}_per_second": amount for unit, amount in (message.get("per_second") or {}).items()},
            "loss": message.get("losses") or {},
            str(message.get("split", "valid")): message.get("valid") or {},
            "health": message.get("health") or {},
            "estimated": message.get("estimate") or {},
        }
    )


def started_line(message: Message) -> str:
    """One line for the log at the start."""
    if message.get("reused"):
        return f"a finished run with these settings and data exists and is reused: {message.get('run_dir', '')}"
    parts = [f"training on {message.get('device', 'an unnamed device')}"]
    if message.get("device_reason"):
        parts[0] += f" ({message['device_reason']})"
    if message.get("resumed_from_epoch"):
        parts.append(f"continuing after epoch {message['resumed_from_epoch']}")
    estimate = message.get("estimate") or {}
    if estimate.get("seconds_total"):
        parts.append(f"about {duration(estimate['seconds_total'])} to go")
    return " · ".join(parts)


def epoch_line(message: Message) -> str:
    """One line for the log: epoch, step and the current figures."""
    epoch, epochs, step = (message.get(name, "?") for name in ("epoch", "epochs", "step"))
    return f"epoch {epoch}/{epochs}, step {step}  {progress_line(dict(message))}"
