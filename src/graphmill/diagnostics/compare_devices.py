"""``graphmill compare-devices``: compares a training on the CPU and on the accelerator, with one seed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from graphmill.evaluation.drift.figures import drift_figures
from graphmill.runs.export import export_run, restore
from graphmill.runs.fallback import failure_of
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from graphmill.training.device import available_devices
from graphmill.training.memory import format_size
from graphmill.training.run_directory import RunDirectory
from graphmill.usage.exported import Run

METRIC_TOLERANCE = 0.05


@dataclass
class Comparison:
    """Results by device, and whether they agree."""

    devices: list[str]
    results: list[dict[str, Any]]
    sentence: str
    agree: bool = True
    overlap: float = float("nan")
    seed_overlap: float = float("nan")
    trace_difference: float = float("nan")
    metric_differences: dict[str, float] = field(default_factory=dict)
    advice: str = ""
    """Which device to use, and the setting for it."""
    failure: str = ""
    """The accelerator's error, if it failed. Then ``results`` has only the CPU's results."""

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return asdict(self)

    def rows(self) -> list[list[str]]:
        """Table rows: the name of the figure, one cell per device, whether they agree."""
        figures: dict[str, Callable[[dict[str, Any]], str]] = {
            "a step": lambda result: f"{result['seconds_per_step'] * 1e3:.4g} ms",
            "the training": lambda result: f"{result['seconds']:.4g} s",
            "memory of the program": lambda result: format_size(result["peak_memory_bytes"]),
            "memory of the GPU": lambda result: (
                format_size(size) if (size := result.get("peak_device_memory_bytes")) else "none"
            ),
        }
        failed = ["failed"] * (len(self.devices) - 1) if self.failure else []
        rows = [[name, *map(figure, self.results), *failed, ""] for name, figure in figures.items()]
        for name in self.results[0]["metrics"]:
            close = name not in self.metric_differences or self.metric_differences[name] <= METRIC_TOLERANCE
            cells = [f"{result['metrics'][name]:.4f}" for result in self.results]
            rows.append([name, *cells, *failed, "yes" if close and not failed else "no"])
        return rows


def compare(values: Mapping[str, Any], where: str) -> Comparison:
    """Train with one seed on each device of this machine, and on the CPU also with the next seed, to measure a seed's
    effect.

    The devices agree if every test metric differs by at most 0.05, and if their embeddings share at least as many of
    the 10 nearest neighbours as two seeds on one device do. An accelerator that fails does not agree. Running out of
    memory there is an error.
    """
    devices = [name for name, why in available_devices().items() if not why]
    if len(devices) < 2:
        reasons = "; ".join(f"{name}: {why}" for name, why in available_devices().items() if why)
        return Comparison(devices, [], f"there is nothing to compare: only the CPU is here ({reasons})")
    devices = devices[:2]
    with tempfile.TemporaryDirectory(prefix="graphmill-compare-") as folder:
        runs = [_run(values, where, devices[0], 0, f"{folder}/{devices[0]}")]
        try:
            runs.append(_run(values, where, devices[1], 0, f"{folder}/{devices[1]}"))
        except Exception as error:
            if not (why := failure_of(devices[1], error)):
                raise
            sentence = f"{devices[1]} failed where the CPU did not, so there is nothing to compare"
            advice = (
                f"use the CPU (write acceleration: {{device: cpu}}): {devices[1].upper()} failed ({why}), which is a "
                "fault of graphmill or torch; please report this line"
            )
            return Comparison(devices, runs, sentence, False, advice=advice, failure=why)
        yardstick = _run(values, where, "cpu", 1, f"{folder}/seed")
        overlap = _overlap(runs[0]["run_dir"], runs[1]["run_dir"])
        seeds = _overlap(runs[0]["run_dir"], yardstick["run_dir"])
        steps = [RunDirectory(run["run_dir"]).metrics.read("step") for run in runs]
        traces = [np.array([record["losses"]["total"] for record in records]) for records in steps]
    difference = float(np.max(np.abs(traces[0] - traces[1]) / np.maximum(np.abs(traces[0]), 1e-12)))
    metrics = {
        name: abs(value - runs[1]["metrics"][name])
        for name, value in runs[0]["metrics"].items()
        if name.startswith("test_") and not name.endswith("_mr")
    }
    largest = max(metrics.values(), default=0.0)
    agree = largest <= METRIC_TOLERANCE and overlap >= seeds
    verdict = "agree" if agree else "DISAGREE"
    sentence = (
        f"{' and '.join(devices)} {verdict}: largest difference of a test metric {largest:.4f} (allowed "
        f"{METRIC_TOLERANCE}), 10 nearest neighbours shared {overlap:.3f} (two seeds share {seeds:.3f}), "
        f"loss traces within {difference:.2%}"
    )
    advice = _advice(devices[1], agree, [run["seconds_per_step"] for run in runs[:2]])
    return Comparison(devices, runs, sentence, agree, overlap, seeds, difference, metrics, advice)


def _advice(other: str, agree: bool, seconds: list[float]) -> str:
    """Which device to use and the setting for it, from the seconds per step on the CPU and on ``other``."""
    gpu = {"mps": "the Mac's GPU", "cuda": "the GPU"}[other]
    cpu = "use the CPU (write acceleration: {device: cpu})"
    if not agree:
        return f"{cpu}: {gpu} gives other results, which is a fault of graphmill or torch; please report this table"
    if not min(seconds):
        return "either device will do: a step was too short to time"
    if seconds[1] <= seconds[0]:
        return (
            f"use {gpu}, which is taken by itself: the same results, a step {seconds[0] / seconds[1]:.2g} times as fast"
        )
    return f"{cpu}: the same results, a step {seconds[1] / seconds[0]:.2g} times as fast as on {gpu}"


def _run(values: Mapping[str, Any], where: str, device: str, seed_step: int, root: str) -> dict[str, Any]:
    seed = int(values.get("training", {}).get("seed", 0)) + seed_step
    own = merge(values, {"acceleration": {"device": device}, "training": {"seed": seed}})
    result = train(own, where, root=root)
    export_run(restore(result["run_dir"]))
    return result


def _overlap(a: str, b: str) -> float:
    """The mean share of a node's ten nearest neighbours that two runs have in common."""
    return drift_figures(Run(a).embeddings, Run(b).embeddings).overall.overlap_10
