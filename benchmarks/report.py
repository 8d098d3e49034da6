"""``python -m benchmarks.report``: the table of committed results, then every row that misses its target, with its file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.card import RESULTS

HEAD = ("benchmark", "workload", "metric", "ours", "rival", "theirs", "ratio", "target", "holds", "processor")


def report(directory: Path = RESULTS) -> str:
    """A table of all rows with a target, one line a row that does not hold, then how many of the targets do."""
    table: list[tuple[str, ...]] = [HEAD]
    lines: list[str] = []
    for path in sorted(directory.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        for row in content.get("rows", []):
            if row["target"]:
                table.append(_cells(path.stem, row))
            if row["holds"] is False:
                theirs = f", {row['rival']} {row['theirs']:.4g}" if row["theirs"] is not None else ""
                ratio = f", ratio {row['ratio']:.3g}" if row["ratio"] is not None else ""
                lines.append(
                    f"{path.name}: {row['workload']}, {row['metric']}: {row['ours']:.4g} {row['unit']}{theirs}{ratio}; "
                    f"target {row['target']}. {row['note']}".rstrip()
                )
    targets = len(table) - 1
    return "\n".join([*_aligned(table), "", *lines, f"{targets - len(lines)} of {targets} targets hold"])


def _cells(benchmark: str, row: dict[str, Any]) -> tuple[str, ...]:
    theirs = "" if row["theirs"] is None else f"{row['theirs']:.4g} {row['unit']}".rstrip()
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.3g}"
    ours = f"{row['ours']:.4g} {row['unit']}".rstrip()
    held = "yes" if row["holds"] else "NO"
    return (
        benchmark,
        row["workload"],
        row["metric"],
        ours,
        row["rival"],
        theirs,
        ratio,
        row["target"],
        held,
        row.get("processor", ""),
    )


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip() for cells in table]


if __name__ == "__main__":
    print(report())
