"""``python -m benchmarks.device.rows prove.tgz --commit COMMIT [--json]``: what a proof found, as rows.

They go to results/device.json. A row replaces that of the same name and card; a phase that was
cut off has the rows that it came to.
"""

from __future__ import annotations

import argparse
import json
import tarfile
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.parts import card

Found = dict[str, list[dict[str, Any]]]
_SUITES = ("tests", "failures", "errors", "skipped")


def read(archive: Path) -> Found:
    """The ROW lines of each phase's log; how many of its tests did what, by pytest's file; and that it was cut off."""
    result: Found = {}
    with tarfile.open(archive) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            phase, file = Path(member.name), tar.extractfile(member)
            content = file.read().decode(errors="replace") if file else ""
            rows = result.setdefault(phase.stem, []) if phase.suffix in (".log", ".xml", ".said") else []
            if phase.suffix == ".log":
                for line in content.splitlines():
                    with suppress(ValueError):  # the last line of a phase that was killed
                        rows += [json.loads(line[4:])] if line.startswith("ROW ") else []
            elif phase.suffix == ".xml":
                with suppress(ElementTree.ParseError):
                    suites = ElementTree.fromstring(content).iter("testsuite")
                    rows += [{key: int(suite.get(key, 0)) for key in _SUITES} for suite in suites]
            elif phase.suffix == ".said" and ("cut off" in content or "not run:" in content):
                rows.append({"to": "its end", "failed": content.split("|")[1]})
    return result


def rows_of(results: Found) -> list[card.Row]:
    """A row a figure that stands for something, and one for each case that failed."""
    rows = [
        card.row(f"{phase}, {' '.join(str(v) for k, v in r.items() if k != 'failed')}", "ran", "", 0.0,
                 target="ours >= 1", note=r["failed"])
        for phase, lines in results.items() for r in lines if "failed" in r
    ]  # fmt: skip
    results = {phase: [r for r in lines if "failed" not in r] for phase, lines in results.items()}
    rows += [*_card_rows(results.get("card", [])), *_hgt_rows(results)]
    for r in results.get("systems", []):
        if "ms" in r:
            note = f"{r.get('launches', '?')} launches, device at work {r.get('device_ms', '?')} ms, "
            note += f"peak {r['peak_mb']} MB, planned {r['planned_mb']} MB"
            rows.append(card.row(f"{r['system']} {r['precision']}", "step", "ms", float(r["ms"]), note=note))
    for r in results.get("plain", []):
        note = f"{r['launches']} launches, theirs {r['plain_launches']}"
        rows.append(
            card.row(
                r["step"], "step", "ms", float(r["ms"]), rival="its public form", theirs=float(r["plain_ms"]),
                target="ratio <= 0.334", note=note,
            )
        )  # fmt: skip
    for r in results.get("traces", []):
        rows.append(card.row(f"{r['case']}: CPU and CUDA", "losses apart", "", r["apart"], target="ours <= 0.002"))
    for r in results.get("resume", []):
        rows.append(card.row(r["case"], "same bits after a stop", "", float(r["same_bits"]), target="ours >= 1"))
    for r in results.get("cancel", []):
        name, note = f"SIGTERM, turn {r['turn']}", r["sentence"]
        rows.append(card.row(name, "until it ends", "s", r["seconds"], target="ours <= 10", note=note))
    for r in results.get("oom", []):
        name, goes_on = f"memory of {r['share']} of the peak", "rungs" in r
        note = f"{len(r['rungs'])} rungs, {r['rungs'][-1:]}" if goes_on else r["ended"]
        target = "ours >= 1" if r["share"] == 0.9 else ""
        rows.append(card.row(name, "goes on", "", float(goes_on), target=target, note=note))
        if goes_on:
            rows.append(card.row(name, "losses apart", "", r["losses_apart"], target="ours <= 0.0001"))
    for phase in ("kernels", "suite"):
        for r in results.get(phase, []):
            failed = r["failures"] + r["errors"]
            note = f"{r['tests'] - failed - r['skipped']} passed, {r['skipped']} skipped"
            rows.append(card.row(f"pytest -m gpu, {phase}", "failed tests", "", failed, target="ours <= 0", note=note))
    return rows + _conve_rows(results.get("conve", []))


def _card_rows(lines: list[dict[str, Any]]) -> list[card.Row]:
    """What the card does at its best, and what the host takes to start something."""
    best = _limits(lines)
    units = {"copy": "GB/s, read and written"}
    rows = [card.row("at its best", name, units.get(name, "GFLOP/s"), most) for name, most in best.items()]
    calls = [r for r in lines if "microseconds" in r]
    return rows + [card.row("a call from the host", r["call"], "µs", r["microseconds"]) for r in calls]


def _limits(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Precision → GFLOP/s of the products, and ``copy`` → GB/s."""
    return {r["best"]: r["most"] for r in lines if "best" in r}


def _hgt_rows(results: Found) -> list[card.Row]:
    """The layers beside PyG's, and beside what the card needs for the products and the bytes alone."""
    rows, best = [], _limits(results.get("card", []))
    hgt = {(r["variant"], r["precision"]): r["ms"] for r in results.get("hgt", [])}
    for r in results.get("hgt", []):
        variant, precision, ms = r["variant"], r["precision"], r["ms"]
        if not variant.startswith("ours"):
            continue
        name = f"HGT layer, 67k, {variant.removeprefix('ours').strip(',') or 'plain'} {precision}"
        rival = hgt.get(("pyg,repaired", precision if precision == "tf32" else "fp32"))
        target = "ratio <= 0.5" if rival else ""
        rows.append(card.row(name, "step", "ms", ms, rival="PyG repaired", theirs=rival, target=target))
        if {precision, "copy"} <= best.keys():
            note = f"{r['gflop']} GFLOP, then {r['moved_gb']} GB at its best"
            limit = 1e3 * (r["gflop"] / best[precision] + r["moved_gb"] / best["copy"])
            rows.append(
                card.row(
                    name, "step and limit", "ms", ms, rival="the card's limit", theirs=limit, target="ratio <= 3", note=note
                )
            )  # fmt: skip
    return rows


def _conve_rows(lines: list[dict[str, Any]]) -> list[card.Row]:
    """The test figure of each training that ended, and the last validation figure of one that was cut off."""
    rows = []
    ended = {r["conve"]: r for r in lines if "test_mrr" in r}
    cut_off = {r["conve"]: r for r in lines if "sampled_valid_mrr" in r and r["conve"] not in ended}
    for name, r in cut_off.items():
        note = f"cut off after epoch {r['by_epoch']}, {r['s']} s; of 3,000 queries"
        mrr = float(r["sampled_valid_mrr"])
        rows.append(card.row(f"ConvE, FB15k-237, {name}", "validation MRR", "", mrr, note=note))
    for name, r in ended.items():
        note = f"{r['training_s']} s of training, {r['ms_per_step']} ms a step, {r['together']} trainings at once"
        mrr = float(r["test_mrr"])
        rows.append(card.row(f"ConvE, FB15k-237, {name}", "test MRR", "", mrr, target="ours >= 0.325", note=note))
    return rows


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--commit", required=True, help="what was measured")
    parser.add_argument("--card", default="", help="where the archive has no phase `card`")
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    result = read(options.archive)
    name = next((r["device"] for r in result.get("card", []) if "device" in r), options.card)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    rows = [replace(r, processor=name, commit=options.commit, created=now) for r in rows_of(result)]
    for r in rows:
        print(r.workload, r.metric, f"{r.ours:.4g}", r.unit, r.rival, r.theirs, r.holds, r.note)
    if options.json:
        old = card.stored("device")
        new = {(r.workload, r.metric, r.processor) for r in rows}
        kept = [
            r
            for r in old
            if (r.workload, r.metric, r.processor) not in new and (r.metric, r.processor) != ("ran", name)
        ]
        print(card.write("device", [*kept, *rows], "bash benchmarks/device/prove_cuda.sh"))


if __name__ == "__main__":
    main()
