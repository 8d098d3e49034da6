"""What each acceleration brings on the user's own data: a baseline, their configuration, and settings one at a time.

Every configuration trains in a fresh process for a few epochs, one after the other, so that memory and time are its
own. A configuration that fails (not finite, out of memory, refused) is a row that says so, not an error.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from graphmill.errors import EXIT_OK, SettingsError
from graphmill.evaluation.bars import configuration_bars
from graphmill.worker.job import merge, parse_settings
from graphmill.worker.launch import OUTCOME_VARIABLE

#: Everything that accelerates, off. Whatever defines the training (batching, sizes, model) stays the user's.
BASELINE: dict[str, Any] = {
    "acceleration": {
        "precision": "fp32",
        "compile": "off",
        "gradient_checkpointing": False,
        "memory_cleanup": "phase",
        "num_workers": 0,
        "processes": 1,
    },
    "evaluation": {"eval_every": 1},
}
#: Tried one at a time on top of the baseline where the caller names none.
SINGLES = (
    "acceleration.precision=bf16",
    "acceleration.compile=default",
    "acceleration.gradient_checkpointing=true",
    "acceleration.num_workers=2",
    "evaluation.eval_every=5",
)
_EPOCHS = 3


@dataclass(frozen=True)
class Row:
    """One configuration. ``status``: "ok", or what went wrong in a sentence; ``changes``: what differs from the baseline.

    ``finite``: false where the training met a number that is not; figures are nan where there are none.
    """

    name: str
    changes: dict[str, Any]
    status: str
    finite: bool = True
    seconds_per_epoch: float = math.nan
    peak_memory_bytes: float = math.nan
    metrics: dict[str, float] = field(default_factory=dict)
    compile: dict[str, Any] = field(default_factory=dict)
    precision: str = ""


@dataclass(frozen=True)
class AccelerationReport:
    """All rows, the baseline first."""

    epochs: int
    rows: list[Row]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Column names and rows of text, for a terminal or Markdown."""
        names = list(dict.fromkeys(n for row in self.rows for n in row.metrics if n.startswith("test_")))[:4]
        columns = ["configuration", "seconds per epoch", "speed-up", "peak memory (MiB)", *names, "finite", "status"]
        base, out = self.rows[0].seconds_per_epoch, []
        for row in self.rows:
            speed = base / row.seconds_per_epoch if row.seconds_per_epoch else math.nan
            cells = [_shown(row.seconds_per_epoch), _shown(speed), _shown(row.peak_memory_bytes / 2**20)]
            cells += [_shown(row.metrics.get(name, math.nan)) for name in names]
            out.append([row.name, *cells, "yes" if row.finite else "NO", row.status])
        return columns, out

    def markdown(self) -> str:
        """The table as Markdown."""
        columns, rows = self.table()
        lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        return "\n".join(lines + ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows])

    def picture(self) -> bytes:
        """Bars of time per epoch and peak memory, relative to the baseline, as PNG."""
        figures = {
            "seconds per epoch": [row.seconds_per_epoch for row in self.rows],
            "peak memory (GiB)": [row.peak_memory_bytes / 2**30 for row in self.rows],
        }
        return configuration_bars([row.name for row in self.rows], figures)


def acceleration_report(
    values: Mapping[str, Any],
    where: str,
    *,
    accelerated: Mapping[str, Any] | None = None,
    singles: Sequence[str] = SINGLES,
    epochs: int = _EPOCHS,
) -> AccelerationReport:
    """Train the baseline, the accelerated configuration and each single setting for ``epochs`` epochs.

    ``values``: a settings mapping as for ``train``; the baseline is that with :data:`BASELINE` over it, the accelerated
    configuration that with ``accelerated`` over it. ``singles``: ``section.name=value`` texts, each on the baseline.

    Raises:
        SettingsError: the settings themselves are wrong, or a single setting is not written as said.
    """
    parse_settings(values, where)
    short = merge(values, {"training": {"epochs": epochs, "patience_epochs": 0, "init_from": ""}})
    short = merge(short, {"acceleration": {"resume": "never", "checkpoint_every_seconds": 0}})
    configurations = {"baseline": {}, "accelerated": _difference(short, accelerated or {})}
    configurations |= {text: _parsed(text) for text in singles}
    base = merge(short, BASELINE)
    return AccelerationReport(
        epochs, [_measure(name, base, changes, where) for name, changes in configurations.items()]
    )


def _difference(values: Mapping[str, Any], accelerated: Mapping[str, Any]) -> dict[str, Any]:
    """What turns the baseline into the user's configuration: their own value of everything that the baseline sets."""
    settings: Any = parse_settings(merge(values, accelerated), "acceleration report")
    own = {
        section: {name: getattr(getattr(settings, section), name) for name in fields}
        for section, fields in BASELINE.items()
    }
    return merge(own, accelerated)


def _parsed(text: str) -> dict[str, Any]:
    path, equals, value = text.partition("=")
    section, dot, name = path.partition(".")
    if not (equals and dot):
        raise SettingsError(f"'{text}' is no single setting: write section.name=value, as acceleration.precision=bf16")
    return {section: {name: yaml.safe_load(value)}}


def _measure(name: str, base: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> Row:
    values = merge(base, changes)
    try:
        processes = parse_settings(values, where).acceleration.processes  # type: ignore[attr-defined]
    except SettingsError as error:
        return Row(name, dict(changes), str(error))
    with tempfile.TemporaryDirectory(prefix="graphmill-acceleration-") as folder:
        job, outcome = Path(folder) / "job.json", Path(folder) / "outcome.json"
        job.write_text(json.dumps({"settings": values, "where": where, "run_root": f"{folder}/runs"}), encoding="utf-8")
        several = ["--processes", str(processes)] if processes > 1 else []
        command = [sys.executable, "-m", "graphmill.worker", *several, "--job", str(job)]
        environment = {**os.environ, OUTCOME_VARIABLE: str(outcome)}
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
        result = json.loads(outcome.read_text(encoding="utf-8"))["result"] if outcome.exists() else {}
    if done.returncode != EXIT_OK or not result:
        lines = [line for line in done.stderr.splitlines() if line.startswith("error")] or done.stderr.splitlines()
        why = lines[-1].removeprefix("error: ") if lines else f"ended with exit code {done.returncode}"
        return Row(name, dict(changes), why, finite="is not finite" not in why)
    return Row(
        name,
        dict(changes),
        "ok",
        finite=not result["skips"] or result["precision"] == "fp16",
        seconds_per_epoch=float(result["seconds"]) / max(int(result["epochs_done"]), 1),
        peak_memory_bytes=float(result["peak_memory_bytes"]),
        metrics={name: float(value) for name, value in result["metrics"].items()},
        compile=result["compile"],
        precision=result["precision"],
    )


def _shown(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"
