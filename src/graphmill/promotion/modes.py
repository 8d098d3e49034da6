"""What the worker process does after a run, by mode: ``{"mode": "promote", "run_dir", "folder", "promote", "by", ...}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmill.errors import StoppedError


def promote(job: Mapping[str, Any], outlets: list[Any], stop: Any) -> dict[str, Any]:
    """:func:`graphmill.promotion.promote.promote_run` by policy; ``folder`` is the versions' own."""
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


MODES = {"promote": promote}
