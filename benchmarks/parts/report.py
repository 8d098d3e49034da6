"""The committed results as one screen of text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.parts.card import RESULTS

HEAD = ("benchmark", "rows", "targets", "hold", "newest", "processor")
WIDTH = 118
"""Of a line that says what is missed, at most."""
SHOWN = 2
"""Misses of a file that are told; the others are counted."""


def report(directory: Path = RESULTS) -> str:
    """A table of the files, one line a row that does not hold, then how many of the targets do."""
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
        processors = sorted({row.get("processor", "") for row in rows} - {""})
        newest = max(row.get("created", "") for row in rows)[:10]
        table.append((path.stem, str(len(rows)), str(len(judged)), str(held), newest, "; ".join(processors)))
        held_of_all += held
        own = [_missed(path.stem, row) for row in judged if row["holds"] is False]
        more = len(own) - SHOWN
        missed += own[:SHOWN] + ([f"{path.stem}: {more} more, in {path.name}"] if more > 0 else [])
    return "\n".join([*_aligned(table), "", *missed, f"{held_of_all} of {targets} targets hold"])


def _missed(benchmark: str, row: dict[str, Any]) -> str:
    ratio = f", ratio {row['ratio']:.3g}" if row["ratio"] is not None else ""
    figure = f"{row['ours']:.4g} {row['unit']}".rstrip()
    line = f"{benchmark}: {row['workload']}, {row['metric']}: {figure}{ratio}; target {row['target']}"
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip() for cells in table]
