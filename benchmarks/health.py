"""``python -m benchmarks.health --json``: the health report of 130,000 × 512 embeddings, from Parquet.

The embeddings are drawn: ten types around means of their own, a spectrum that decays, exported by the product itself. Each
report is a fresh process with two threads; seconds are from the file to the report, imports apart.

``--runs DIR DIR …`` holds the reports of finished healthy runs, one per seed, against the default thresholds and suggests
bounds with room to spare (docs/reference/checks.md): ``results/health_calibration.json``.

``drift`` as the first word holds ``graphmill drift`` against known changes instead (``parts/drift.py``);
``probe``: the classes of drugs that vectors know (``parts/probe.py``).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.parts.card import RESULTS, Row, fresh, handed_over, machine, peak_rss, row, write
from graphmill.errors import InputError
from graphmill.evaluation.health.check import Threshold
from graphmill.evaluation.health.checks import CHECKS, HealthThresholds
from graphmill.evaluation.health.report import HealthReport
from graphmill.export.embeddings import export_embeddings
from graphmill.training.contract import EmbeddingBlock
from graphmill.training.settings import ExportSettings

ROWS, DIM, TYPES, BLOCK = 130_000, 512, 10, 10_000
TARGETS = {"embeddings.parquet": 10}


#: A suggested bound lies this many standard deviations beyond the worst run, and at least this part of its value.
DEVIATIONS = 3.0
LEAST_ROOM = 0.2
#: How far inside an excluded end a suggestion stays.
EXCLUDED = 1e-6
#: Threshold → the figure of the report that a calibration compares it with.
FIGURES = {
    "norm_spread_max": "norm_spread",
    "mean_cosine_max": "mean_cosine",
    "components_90_min": "components_90",
    "components_90_share_min": "components_90_share",
    "effective_rank_share_min": "effective_rank_share",
    "link_signal_min": "link_signal",
}
#: The same for figures of each node type.
TYPE_FIGURES = {
    "type_cosine_max": "cosine",
    "type_rank_share_min": "rank_share",
    "type_rank_min": "effective_rank",
}
_BOUNDS = tuple(ours for check in CHECKS for ours in check.thresholds if ours.name in FIGURES | TYPE_FIGURES)


def draw(folder: Path) -> None:
    """Write the Parquet file into ``folder``."""
    rng = np.random.default_rng(0)
    types = np.sort(rng.integers(0, TYPES, ROWS))
    means = rng.standard_normal((TYPES, DIM)).astype(np.float32)
    decay = (np.arange(1, DIM + 1) ** -0.3).astype(np.float32)

    def blocks() -> Iterator[EmbeddingBlock]:
        for start in range(0, ROWS, BLOCK):
            ours = types[start : start + BLOCK]
            noise = rng.standard_normal((len(ours), DIM)).astype(np.float32)
            yield EmbeddingBlock(start, 0.5 * means[ours] + noise * decay)

    ids = [f"n{number}" for number in range(ROWS)]
    nodes = pa.table(
        {
            "index": pa.array(range(ROWS), pa.int64()),
            "id": ids,
            "type": pa.array([f"type {t}" for t in types]).dictionary_encode(),
            "name": ids,
            "source": pa.array(["drawn"] * ROWS).dictionary_encode(),
        }
    )
    export_embeddings(blocks(), nodes, DIM, folder, ExportSettings(csv=False), {})


def report(file: Path) -> dict[str, float | str]:
    """Seconds from the file to its report, in this process."""
    from graphmill.reports.validation import validate_file

    started = time.perf_counter()
    result = validate_file(file)
    return {"seconds": time.perf_counter() - started, "peak_gib": peak_rss(), "status": result.status}


def rows_of(folder: Path, repeats: int) -> list[Row]:
    rows = []
    for name, limit in TARGETS.items():
        arguments = ["--one", str(folder / name)]
        runs = [fresh("benchmarks.health", arguments, {"OMP_NUM_THREADS": "2"}) for _ in range(repeats)]
        seconds = [run["seconds"] for run in runs]
        note = f"{', '.join(f'{s:.2f}' for s in seconds)}; peak {max(run['peak_gib'] for run in runs):.2f} GiB"
        workload = f"{ROWS:,} x {DIM}, {name.split('.')[-1]}"
        rows.append(row(workload, "health report", "s", median(seconds), target=f"ours <= {limit}", note=note))
    return rows


def calibrate(reports: Sequence[HealthReport | Mapping[str, Any]]) -> dict[str, Any]:
    """Suggest thresholds from reports (or their ``to_dict()``) on healthy embeddings, one per seed.

    Per threshold: ``observed`` (a value per report; for a bound on types the worst judged type's), ``suggested`` (the
    worst value with room: three standard deviations over the reports, at least a fifth of its size, cut to what the
    setting allows), ``default``, ``default_holds`` (no report breaks it) and ``room`` (how far the worst value is
    inside the default, as a share of the default). ``all_defaults_hold`` sums up. Raises :class:`InputError` below two
    reports.
    """
    plain = [report.to_dict() if isinstance(report, HealthReport) else dict(report) for report in reports]
    if len(plain) < 2:
        raise InputError(
            f"a calibration needs the health reports of at least 2 runs, better 3 seeds; there is {len(plain)}"
        )
    defaults = HealthThresholds()
    thresholds = {}
    for bound in _BOUNDS:
        observed = [value for report in plain if (value := _observed(report, bound)) is not None]
        if observed:
            thresholds[bound.name] = _suggestion(bound, observed, float(getattr(defaults, bound.name)))
    return {
        "reports": len(plain),
        "failures": [[v["name"] for v in report["verdicts"] if v["status"] == "fail"] for report in plain],
        "thresholds": thresholds,
        "all_defaults_hold": all(row["default_holds"] for row in thresholds.values()),
    }


def _is_upper(bound: Threshold) -> bool:
    return bound.name.endswith("_max")


def _observed(report: Mapping[str, Any], bound: Threshold) -> float | None:
    if bound.name in FIGURES:
        value = report["figures"][FIGURES[bound.name]]
        return None if value is None else float(value)
    values = [float(ours[TYPE_FIGURES[bound.name]]) for ours in report["types"] if ours["judged"]]
    if not values:
        return None
    return max(values) if _is_upper(bound) else min(values)


def _suggestion(bound: Threshold, observed: Sequence[float], default: float) -> dict[str, Any]:
    highest = _is_upper(bound)
    worst = max(observed) if highest else min(observed)
    room = max(DEVIATIONS * float(np.std(observed, ddof=1)) if len(observed) > 1 else 0.0, LEAST_ROOM * abs(worst))
    suggested = _allowed(bound.name, worst + room if highest else worst - room)
    inside = (default - worst) if highest else (worst - default)
    return {
        "figure": (FIGURES | TYPE_FIGURES)[bound.name],
        "side": "max" if highest else "min",
        "observed": list(observed),
        "suggested": suggested,
        "default": default,
        "default_holds": inside >= 0,
        "room": inside / abs(default) if default else inside,
    }


def _allowed(threshold: str, value: float) -> float:
    """``value`` within the setting's own bounds, whole where the setting is."""
    field = HealthThresholds.model_fields[threshold]
    for limit in field.metadata:
        if (low := getattr(limit, "ge", None)) is not None:
            value = max(value, float(low))
        if (low := getattr(limit, "gt", None)) is not None:
            value = max(value, float(low) + EXCLUDED)
        if (high := getattr(limit, "le", None)) is not None:
            value = min(value, float(high))
        if (high := getattr(limit, "lt", None)) is not None:
            value = min(value, float(high) - EXCLUDED)
    return int(value) if field.annotation is int else float(value)


def calibration_of(runs: list[Path]) -> Path:
    """Write what the reports of ``runs`` say of the default thresholds; returns the file."""
    from graphmill.reports.validation import validate_file

    result = calibrate([validate_file(run) for run in runs])
    path = RESULTS / "health_calibration.json"
    content = {"command": "python -m benchmarks.health --json --runs DIR DIR DIR", "machine": machine()} | result
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def main() -> None:
    """See the module's head."""
    if handed_over({"drift": "drift", "probe": "probe"}):
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/health.json")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", default="", help="measure one file in this process and print JSON")
    parser.add_argument("--runs", type=Path, nargs="+", help="hold these runs against the thresholds instead")
    options = parser.parse_args()
    if options.runs:
        print(calibration_of(options.runs))
        return
    if options.one:
        print(json.dumps(report(Path(options.one))))
        return
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))
        rows = rows_of(Path(folder), options.repeats)
    for r in rows:
        print(f"{r.workload}: {r.ours:.2f} s ({r.target}: {r.holds}); {r.note}")
    if options.json:
        print(write("health", rows, f"python -m benchmarks.health --json --repeats {options.repeats}"))


if __name__ == "__main__":
    main()
