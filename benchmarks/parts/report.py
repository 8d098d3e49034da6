"""The committed results as one screen of text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.parts.card import RESULTS

HEAD = ("benchmark", "rows", "targets", "hold", "newest", "processor")
WIDTH = 118
"""Of a line, at most."""


def report(directory: Path = RESULTS) -> str:
    """A table of the files, one line a file in which a target is missed (its first miss, the others counted), then how many
    targets hold. It fits on a screen of 40 lines and 120 columns."""
    table: list[tuple[str, ...]] = [HEAD]
    missed: list[str] = []
    targets = held_of_all = 0
    for path in sorted(directory.glob("*.json")):
        rows = json.loads(path.read_text(encoding="utf-8")).get("rows", [])
        if not rows:
            continue
        judged = [row for row in rows if row["target"]]
        targets += len(judged)
        held = sum(row["holds"] is True for row in judged)
        processors = sorted({_short(row.get("processor", "")) for row in rows} - {""})
        newest = max(row.get("created", "") for row in rows)[:10]
        table.append((path.stem, str(len(rows)), str(len(judged)), str(held), newest, "; ".join(processors)))
        held_of_all += held
        ours = [row for row in judged if row["holds"] is False]
        missed += [_missed(path.stem, ours[0], len(ours) - 1)] if ours else []
    return "\n".join([*_aligned(table), "", *missed, f"{held_of_all} of {targets} targets hold"])


def _missed(benchmark: str, row: dict[str, Any], more: int) -> str:
    ratio = f", ratio {row['ratio']:.3g}" if row["ratio"] is not None else ""
    figure = f"{row['ours']:.4g} {row['unit']}".rstrip()
    end = f": {figure}{ratio}; target {row['target']}" + (f"; {more} more" if more else "")
    return _cut(f"{benchmark}: {row['workload']}, {row['metric']}", WIDTH - len(end)) + end


def _short(processor: str) -> str:
    return processor.replace("(R)", "").replace(" Processor", "").split(" @ ")[0]


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [_cut("  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip(), WIDTH) for cells in table]
