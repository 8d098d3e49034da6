"""A run's report as a page of Markdown: what was trained, its figures, its health, its ranking where there is one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from graphmill.runs.ranking import FILE as RANKING

if TYPE_CHECKING:
    from graphmill.runs.exported import Run


def report_page(run: Run) -> str:
    """The page. Raises :class:`graphmill.errors.InputError` where the folder is no finished run."""
    report, settings = run.read_json("report.json"), run.settings
    health = run.validate()
    rows, width = run.embeddings.vectors.shape
    epochs = f"{report['epochs_done']} epochs, {report['steps_done']:,} steps, {report['seconds']:.0f} s"
    parts = [
        f"# {settings['recipe']} on `{settings['data']}`",
        f"{rows:,} vectors of {width}; {epochs} on {report['device']}; exported from epoch {report['exported_epoch']}.",
        "## Figures",
        _table(("metric", "valid", "test"), _by_split(run.metrics)),
        f"## Health: {health.status}" + (f", {health.failure}: {health.detail}" if health.failure else ""),
        _table(
            ("figure", "value", "bound", "verdict", "meaning"),
            ((v.name, _number(v.value), _number(v.threshold), v.status, v.meaning) for v in health.verdicts),
        ),
    ]
    if (run.path / RANKING).is_file():
        ranking = json.loads((run.path / RANKING).read_text(encoding="utf-8"))
        if "figures" in ranking:
            names = list(ranking["figures"])
            metrics = list(ranking["figures"]["model"])
            beside = ((m, *(_number(ranking["figures"][who].get(m)) for who in names)) for m in metrics)
            parts += [f"## Ranking, {ranking.get('split', 'test')}", _table(("metric", *names), beside)]
    return "\n\n".join(parts) + "\n"


def _by_split(metrics: dict[str, float]) -> list[tuple[str, str, str]]:
    names = dict.fromkeys(name.partition("_")[2] for name in metrics)
    return [(n, _number(metrics.get(f"valid_{n}")), _number(metrics.get(f"test_{n}"))) for n in names]


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "" if value is None else str(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


class Markdown(str):
    """Text that a notebook shows as a page, and a terminal as it is."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return str(self)
