"""The worker's modes that follow a run: ``{"mode": "promote", "run_dir", "folder", ...}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmill.errors import StoppedError


def promote(job: Mapping[str, Any], outlets: list[Any], stop: Any) -> dict[str, Any]:
    """:func:`graphmill.promotion.promote.promote_run` by policy. ``folder``: the folder of the model's versions."""
    from graphmill.promotion.policy import PromotionSettings
    from graphmill.promotion.promote import promote_run
    from graphmill.promotion.versions import Versions
    from graphmill.settings import parse

    def poll() -> None:
        if stop.requested:
            raise StoppedError(f"stopped ({stop.reason}); nothing was promoted")

    settings = parse(PromotionSettings, dict(job["promote"]), job.get("where", "run config"))
    return promote_run(
        job["run_dir"],
        Versions(job["folder"]),
        settings,
        by=job["by"],
        failed_checks=job["failed_checks"],
        drift=job.get("drift"),
        poll=poll,
    )


def drift(job: Mapping[str, Any], outlets: list[Any], stop: Any) -> dict[str, Any]:
    """:func:`graphmill.promotion.drift.drift_of_run`. The details on the graph and on single nodes are only in the file."""
    from graphmill.evaluation.drift.verdicts import DriftThresholds
    from graphmill.promotion.drift import drift_of_run
    from graphmill.promotion.versions import Versions
    from graphmill.settings import parse

    bounds = parse(DriftThresholds, dict(job["drift"]), job.get("where", "run config"))
    found = drift_of_run(job["run_dir"], Versions(job["folder"]), bounds, outlets=outlets, stop=stop)
    return {name: found[name] for name in ("against", "name", "status", "multiple")}


MODES = {"promote": promote, "drift": drift}
