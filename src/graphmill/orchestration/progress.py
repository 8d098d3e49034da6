"""Formats the worker's messages as log lines and as figures of an observation."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.evaluation.health.loss_curve import is_total, total_loss
from graphmill.orchestration.metadata import rounded, scalars
from graphmill.runs.messages import duration, progress_line

Message = Mapping[str, Any]


def started_metadata(message: Message) -> dict[str, Any]:
    """The observation at a run's start: what runs where, from which epoch, and the expected time."""
    out: dict[str, Any] = {"progress": started_line(message)}
    out |= scalars({"resumed_from_epoch": message.get("resumed_from_epoch")})
    if message.get("run_dir"):
        out["run_dir"] = dg.MetadataValue.path(str(message["run_dir"]))
    return out


def progress_metadata(message: Message) -> dict[str, Any]:
    """The line that a person reads, and the numbers whose curves the UI plots while it trains: epoch, loss, metrics.

    The loss of several phases is known at the end of an epoch only.
    """
    losses, metrics = message.get("losses") or {}, message.get("valid") or {}
    whole = losses if not message.get("step") or message.get("phases", 1) == 1 else {}
    loss = total_loss(whole) if any(is_total(name) for name in whole) else None
    figures = scalars({"epoch": message.get("epoch"), "loss": loss, str(message.get("split", "valid")): metrics})
    return {"progress": epoch_line(message)} | {name: rounded(value) for name, value in figures.items()}


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
