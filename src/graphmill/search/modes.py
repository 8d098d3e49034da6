"""The worker's modes for a search.

``{"mode": "trial", "search": settings with their section, "run_root", "key", "overrides", "shared"}``; "leaderboard"
has no key. ``shared``: the study is in a database, whose address is in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from graphmill.errors import InputError
from graphmill.search.storage import VARIABLE


def trial(job: Mapping[str, Any], outlets: list[Any], stop: Any) -> dict[str, Any]:
    """:func:`graphmill.search.asked_trials.train_asked`, which reports the metrics of each epoch as they come."""
    from graphmill.runs.resolve import parse_settings
    from graphmill.search.asked_trials import train_asked

    if job.get("shared") and not os.environ.get(VARIABLE):
        raise InputError(
            f"the study of this search is in a database, and this machine does not know which: set {VARIABLE} there (with "
            "launcher: k8s by one of launcher.secrets, on Ray in the nodes' environment)"
        )
    search = _search(job)
    settings: Any = parse_settings(search.values, "search")

    def show(record: Mapping[str, Any], seed: int) -> None:
        """Send them like a training's own messages, so that Dagster shows them in the same way."""
        shown = {"losses", "per_second", "memory_bytes", "valid", "split", "health"} & record.keys()
        message = {name: record[name] for name in shown}
        done = {"epoch": record["epoch"], "epochs": settings.training.epochs, "step": 0}
        for outlet in outlets:
            outlet.send({"kind": "progress", "losses": {}, **done, "seed": seed, **message})

    return train_asked(search, str(job["key"]), job.get("overrides", {}), show, stop)


def leaderboard(job: Mapping[str, Any], outlets: list[Any], stop: Any) -> dict[str, Any]:
    """:func:`graphmill.search.leaderboard.leaderboard`. Returns its folder and the winner; its file has the rest."""
    from graphmill.search.leaderboard import leaderboard

    search = _search(job)
    found = leaderboard(search, search.study(), outlets=outlets, stop=stop)
    return {"folder": found.folder, "run": found.best.runs[0]}


def _search(job: Mapping[str, Any]) -> Any:
    from graphmill.search.study import open_search

    return open_search(job["search"], str(job.get("where", "search")), str(job["run_root"]))


MODES = {"trial": trial, "leaderboard": leaderboard}
