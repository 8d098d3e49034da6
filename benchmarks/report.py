"""``python -m benchmarks.report``: every committed figure that does not meet its target, with the file that it is in."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.card import RESULTS


def report(directory: Path = RESULTS) -> str:
    """One line a row that does not hold, then how many rows with a target there are."""
    lines, targets = [], 0
    for path in sorted(directory.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        for row in content["rows"]:
            targets += bool(row["target"])
            if row["holds"] is False:
                theirs = f", {row['rival']} {row['theirs']:.4g}" if row["theirs"] is not None else ""
                ratio = f", ratio {row['ratio']:.3g}" if row["ratio"] is not None else ""
                lines.append(
                    f"{path.name}: {row['workload']}, {row['metric']}: {row['ours']:.4g} {row['unit']}{theirs}{ratio}; "
                    f"target {row['target']}. {row['note']}".rstrip()
                )
    lines.append(f"{targets - len(lines)} of {targets} targets hold")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
