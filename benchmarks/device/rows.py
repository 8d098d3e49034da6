"""``python -m benchmarks.device.rows prove.tgz --commit COMMIT [--json]``: what a proof found, as rows.

They go to results/device.json. A row replaces that of the same name and card; a phase that was
cut off has the rows that it came to.
"""

from __future__ import annotations

import argparse
import re
import tarfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.parts import card

_PAIR = re.compile(r"(\w[\w@]*)=(\S+)")


def read(archive: Path) -> dict[str, list[dict[str, str]]]:
    """The ROW lines of each phase's log."""
    found: dict[str, list[dict[str, str]]] = {}
    with tarfile.open(archive) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            if member.name.endswith(".log"):
                file = tar.extractfile(member)
                assert file is not None
                lines = file.read().decode(errors="replace").splitlines()
                found[Path(member.name).stem] = [dict(_PAIR.findall(x)) for x in lines if x.startswith("ROW ")]
    return found


def rows_of(found: dict[str, list[dict[str, str]]]) -> list[card.Row]:
    """A row a figure that stands for something; failures are notes of their own."""
    rows = []
    hgt = {(r["variant"], r["precision"]): float(r["ms"]) for r in found.get("hgt", []) if "ms" in r}
    for (variant, precision), ms in hgt.items():
        rival = hgt.get(("pyg,repaired", precision if precision == "tf32" else "fp32"))
        if variant.startswith("ours"):
            rows.append(
                card.row(
                    f"HGT layer, 67k, {variant.removeprefix('ours').strip(',') or 'plain'} {precision}", "step", "ms", ms,
                    rival="PyG repaired", theirs=rival, target="ratio <= 0.5",
                )
            )  # fmt: skip
    for r in found.get("recipes", []):
        if "ms" in r:
            note = f"{r.get('launches', '?')} launches, device at work {r.get('device_ms', '?')} ms, "
            note += f"peak {r['peak_mb']} MB, planned {r['planned_mb']} MB"
            rows.append(card.row(f"{r['recipe']} {r['precision']}", "step", "ms", float(r["ms"]), note=note))
    for r in found.get("plain", []):
        note = f"{r['launches']} launches, theirs {r['plain_launches']}"
        rows.append(
            card.row(
                r["step"], "step", "ms", float(r["ms"]), rival="its public form", theirs=float(r["plain_ms"]),
                target="ratio <= 0.334", note=note,
            )
        )  # fmt: skip
    apart = [r for r in found.get("traces", []) if "largest_relative_difference" in r]
    for r in apart:
        most = float(r["largest_relative_difference"])
        rows.append(card.row(f"{r['case']}: CPU and CUDA", "losses apart", "", most, target="ours <= 0.002"))
    same = [(r["case"], float(r["same_bits"] == "True")) for r in found.get("resume", [])]
    rows += [card.row(case, "same bits after a stop", "", yes, target="ours >= 1") for case, yes in same]
    ends = [(r["turn"], float(r["seconds"]), r["sentence"]) for r in found.get("cancel", [])]
    rows += [card.row(f"SIGTERM, turn {n}", "until it ends", "s", seconds, note=said) for n, seconds, said in ends]
    for r in found.get("oom", []):
        note = f"{r['rungs']} rungs, {r['last']}" if "rungs" in r else r.get("failed", "")
        rows.append(card.row(f"memory of {r['share']} of the peak", "goes on", "", float("rungs" in r), note=note))
    ended = {r["conve"] for r in found.get("conve", []) if "test_mrr" in r}
    cut_off = {r["conve"]: r for r in found.get("conve", []) if "sampled_valid_mrr" in r and r["conve"] not in ended}
    for name, r in cut_off.items():
        note = f"cut off after epoch {r['by_epoch']}, {r['s']} s; of 3,000 queries"
        mrr = float(r["sampled_valid_mrr"])
        rows.append(card.row(f"ConvE, FB15k-237, {name.replace('_', ' ')}", "validation MRR", "", mrr, note=note))
    for r in found.get("conve", []):
        if "test_mrr" in r:
            note = f"{r['training_s']} s of training, {r['ms_per_step']} ms a step, {r['together']} trainings at once"
            name = r["conve"].replace("_", " ")
            rows.append(
                card.row(
                    f"ConvE, FB15k-237, {name}", "test MRR", "", float(r["test_mrr"]), target="ours >= 0.325", note=note
                )
            )
    return rows


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--commit", required=True, help="what was measured")
    parser.add_argument("--card", default="", help="where the archive has no phase `card`")
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    found = read(options.archive)
    name = next((r["device"].replace("_", " ") for r in found.get("card", []) if "device" in r), options.card)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    rows = [replace(r, processor=name, commit=options.commit, created=now) for r in rows_of(found)]
    for r in rows:
        print(r.workload, r.metric, f"{r.ours:.4g}", r.unit, r.rival, r.theirs, r.holds, r.note)
    if options.json:
        old = card.stored("device")
        new = {(r.workload, r.metric, r.processor) for r in rows}
        kept = [r for r in old if (r.workload, r.metric, r.processor) not in new]
        print(card.write("device", [*kept, *rows], "bash benchmarks/device/prove_cuda.sh"))


if __name__ == "__main__":
    main()
