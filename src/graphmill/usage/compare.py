"""``graphmill compare RUN_A RUN_B``: compares the settings and results of two runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphmill.evaluation.json_values import flat
from graphmill.runs.resolve import stored_settings
from graphmill.training.run_directory import RunDirectory


@dataclass(frozen=True)
class Figure:
    """One figure of both runs. ``ratio`` is B / A, or nan if a ratio has no meaning."""

    name: str
    a: float
    b: float

    @property
    def ratio(self) -> float:
        """B / A."""
        return self.b / self.a if self.a and math.isfinite(self.a) and math.isfinite(self.b) else math.nan


@dataclass(frozen=True)
class RunComparison:
    """``settings``: path → both values, where they differ (including data, versions and resolved settings)."""

    a: str
    b: str
    settings: dict[str, tuple[Any, Any]]
    figures: list[Figure]

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return {**asdict(self), "figures": [asdict(figure) | {"ratio": figure.ratio} for figure in self.figures]}

    def setting_rows(self) -> list[list[str]]:
        """Table rows: setting, A, B."""
        return [[name, str(a), str(b)] for name, (a, b) in self.settings.items()]

    def figure_rows(self) -> list[list[str]]:
        """Table rows: figure, A, B, B / A."""
        return [
            [f.name, _shown(f.a), _shown(f.b), "" if math.isnan(f.ratio) else f"{f.ratio:.3f}"] for f in self.figures
        ]


def compare_runs(a: str | Path, b: str | Path) -> RunComparison:
    """Compare two finished runs.

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
    return RunComparison(str(a), str(b), settings, _figures(*reports))


def _about(manifest: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: manifest[name] for name in ("algorithm_version", "versions", "resolved")}
    return kept | {"data hash": manifest["data"]["content_hash"]}


def _figures(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Figure]:
    def number(value: Any) -> float:
        return math.nan if value is None else float(value)

    plain = ("epochs_done", "steps_done", "best_epoch", "seconds", "seconds_per_step", "seconds_per_epoch")
    figures = [
        Figure(name, number(a.get(name)), number(b.get(name))) for name in (*plain, "peak_memory_bytes", "skips")
    ]
    for section, prefix in (("final_losses", "loss "), ("metrics", "")):
        x, y = a[section], b[section]
        figures += [Figure(prefix + name, number(x.get(name)), number(y.get(name))) for name in x | y]
    return figures


def _shown(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"
