"""``graphmill compare RUN_A RUN_B``: compares the settings and results of two runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphmill.evaluation.json_values import flat
from graphmill.runs.resolve import stored_settings
from graphmill.training.run_directory import RunDirectory

_FIGURES = (
    *("epochs_done", "steps_done", "best_epoch", "seconds", "seconds_per_step", "seconds_per_epoch"),
    *("peak_memory_bytes", "skips"),
)


def compare_runs(a: str | Path, b: str | Path) -> dict[str, Any]:
    """Compare two finished runs ``a`` and ``b``, as plain values.

    ``settings``: path → both values, where they differ (including data, versions and resolved settings). ``figures``: the
    ``name`` of each, ``a``, ``b`` and their ``ratio`` B / A, nan if it has no meaning.

    Raises:
        InputError: one of them is not a run directory, or its run has not ended.
    """
    runs = [RunDirectory(Path(a)), RunDirectory(Path(b))]
    reports = [run.read_json("report.json") for run in runs]
    described = [
        flat(stored_settings(run).model_dump(mode="json")) | flat(_about(run.read_json("manifest.json")))
        for run in runs
    ]
    both = {name: tuple(one.get(name, "absent") for one in described) for name in described[0] | described[1]}
    settings = {name: (before, after) for name, (before, after) in both.items() if before != after}
    before, after = (_figures(report) for report in reports)
    figures = [_compared(name, before.get(name), after.get(name)) for name in before | after]
    return {"a": str(a), "b": str(b), "settings": settings, "figures": figures}


def setting_rows(comparison: Mapping[str, Any]) -> list[list[str]]:
    """Table rows: setting, A, B."""
    return [[name, str(a), str(b)] for name, (a, b) in comparison["settings"].items()]


def figure_rows(comparison: Mapping[str, Any]) -> list[list[str]]:
    """Table rows: figure, A, B, B / A."""

    def cell(value: float, digits: str = ".6g") -> str:
        return "" if math.isnan(value) else f"{value:{digits}}"

    return [[f["name"], cell(f["a"]), cell(f["b"]), cell(f["ratio"], ".3f")] for f in comparison["figures"]]


def _about(manifest: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: manifest[name] for name in ("algorithm_version", "versions", "resolved")}
    return kept | {"data hash": manifest["data"]["content_hash"]}


def _figures(report: Mapping[str, Any]) -> dict[str, Any]:
    losses = {f"loss {name}": value for name, value in report["final_losses"].items()}
    return {name: report.get(name) for name in _FIGURES} | losses | dict(report["metrics"])


def _compared(name: str, first: Any, second: Any) -> dict[str, Any]:
    a, b = (math.nan if value is None else float(value) for value in (first, second))
    return {"name": name, "a": a, "b": b, "ratio": b / a if a and math.isfinite(a) and math.isfinite(b) else math.nan}
