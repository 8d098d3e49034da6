"""Lays out an asset's page: a summary first, then the numbers to plot, all other numbers in one table, then the rest.

Dagster shows metadata in the given order, plots every number, and shows Markdown of up to 1,000 characters directly.
Longer texts are behind a button.
"""

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg

from graphmill.evaluation.markdown import number
from graphmill.export.manifests import export_folder
from graphmill.orchestration.checks import PreviousRun
from graphmill.orchestration.metadata import Picture, picture, records, rounded, scalars
from graphmill.reports.card import CARD
from graphmill.reports.report_html import REPORT, describe_run
from graphmill.serving.addresses import service_address
from graphmill.verified_files import MANIFEST as EXPORTED

INLINE_CHARACTERS = 999
"""Largest number of characters of Markdown that the webserver shows without a click."""
LINE_CHARACTERS = 32
"""Number of characters per line of a summary, beside keys of up to 22 characters."""
HARD_BREAK = "  \n"
GLUE = "\0"
"""Replaces a space at which a line must not break."""
BLOCKS = "▁▂▃▄▅▆▇█"
SPARKS = 24


def asset_page(
    summary: str,
    *,
    plotted: Mapping[str, Any] | Sequence[str] = (),
    previous: PreviousRun,
    others: Mapping[str, Any] | None = None,
    baselines: Mapping[str, Mapping[str, Any]] | None = None,
    pictures: Mapping[str, Picture] | None = None,
    root: Path = Path(),
    run_dir: str = "",
) -> dict[str, Any]:
    """The first metadata of an asset: ``summary`` with its links, pictures, numbers, and ``figures``.

    ``plotted``: the six to ten numbers to plot over time, as values or as names in ``others``. ``others``: all other
    figures, in one table with their previous values and their ``baselines`` (name → figure → value). Each figure is
    shown once. ``pictures`` (key → picture) are in the metadata and in their files below ``root``. ``run_dir``: the run
    that the page describes, relative to ``root``.
    """
    if not isinstance(plotted, Mapping):
        figures, names = others or {}, tuple(plotted)
        plotted = {name: figures[name] for name in names if name in figures}
        others = {name: value for name, value in figures.items() if name not in names}
    page: dict[str, Any] = {"summary": in_words(summary, links(previous.asset, root, run_dir))}
    page.update({name: picture(each, root, len(pictures or ())) for name, each in (pictures or {}).items()})
    page.update({name: rounded(value) for name, value in scalars(plotted).items()})
    if rows := _rows(scalars(others or {}), previous, baselines or {}):
        page["figures"] = records(rows)
    return page


def links(asset: dg.AssetKey, root: Path = Path(), run_dir: str = "") -> str:
    """Markdown that links to the explorer's page on this asset, and to the report of the run. Beside them is a command
    that works when a stored link no longer answers."""
    address = service_address()
    text = f"[explorer]({address}/#/{'/'.join(quote(part) for part in asset.path)})"
    if not run_dir:
        return text
    if (root / run_dir / REPORT).is_file():
        text += f", [report]({address}/reports/{quote(run_dir)}/{REPORT})"
    return f"{text}{HARD_BREAK}or graphmill open{HARD_BREAK}{run_dir}"


def run_pages(root: Path, run_dir: str) -> dict[str, Any]:
    """Write the run's card and one-page report again; returns their paths as metadata ``card`` and ``report_page``.

    ``run_dir`` is relative to ``root``.
    """
    if not (export_folder(root / run_dir) / EXPORTED).is_file():
        return {}
    describe_run(root / run_dir)
    return {
        name: dg.MetadataValue.path(f"{run_dir}/{file}") for name, file in (("report_page", REPORT), ("card", CARD))
    }


def in_words(text: str, links: str = "") -> dg.MetadataValue:
    """A summary and its ``links`` as Markdown that is shown without a click, with lines that fit a window of 1,280
    pixels.

    The value column is as wide as its widest word, often a path, so the browser does not break lines. Markdown cannot
    break a span of `code`: a short span stays as it is, and a long one becomes plain text.
    """
    joined = re.sub(
        "`([^`]+)`", lambda span: span[0].replace(" ", GLUE) if len(span[0]) <= LINE_CHARACTERS else span[1], text
    )
    paragraphs = (
        textwrap.wrap(each, LINE_CHARACTERS, break_long_words=False, break_on_hyphens=False)
        for each in joined.split("\n\n")
    )
    lines = "\n\n".join(HARD_BREAK.join(paragraph) for paragraph in paragraphs).replace(GLUE, " ")
    after = f"\n\n{links}" if links else ""
    room = INLINE_CHARACTERS - len(after)
    return dg.MetadataValue.md((lines if len(lines) <= room else lines[: room - 1].rstrip() + "…") + after)


def sparkline(values: Sequence[float]) -> str:
    """A sparkline of at most ``SPARKS`` characters, from ▁ (lowest value) to █ (highest). Values that are not finite
    are dots."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    step = max(1, -(-len(values) // SPARKS))
    kept = list(values)[::-step][::-1]  # always include the last one
    low, high = min(finite), max(finite)
    spread = (high - low) or 1.0
    return "".join(
        BLOCKS[round((value - low) / spread * (len(BLOCKS) - 1))] if math.isfinite(value) else "·" for value in kept
    )


def change(now: Any, before: float | None) -> str:
    """``"+3.2 %"``, ``"same"``, or "" if there is nothing to compare."""
    if before is None or isinstance(now, bool) or not isinstance(now, int | float) or not math.isfinite(before):
        return ""
    if now == before:
        return "same"
    return f"{(now - before) / abs(before):+.1%}".replace("%", " %") if before else "was 0"


def _rows(
    figures: Mapping[str, Any], previous: PreviousRun, baselines: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    rows = []
    for name, value in figures.items():
        before = previous.figure(name)
        then = int(before) if before is not None and isinstance(value, int) and before.is_integer() else before
        row = {"figure": name, "now": number(value), "previous": number(then), "change": change(value, before)}
        rows.append(row | {who: number(values.get(name)) for who, values in baselines.items()})
    return rows
