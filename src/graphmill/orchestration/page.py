"""An asset's page for a person: a summary first, the numbers that one plots, all others in one table, then the rest.

Dagster shows metadata in the order in which it is given, plots every number, and shows Markdown of up to 1,000 characters
at once; longer texts stay behind a button.
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import dagster as dg

from graphmill.orchestration.checks import PreviousRun
from graphmill.orchestration.metadata import scalars

INLINE_CHARACTERS = 999
"""Of Markdown that the webserver shows without a click."""
BLOCKS = "▁▂▃▄▅▆▇█"
SPARKS = 24
SERVICE_VARIABLE = "GRAPHMILL_SERVICE"
"""Where ``graphmill serve`` runs beside ``make ui``: the explorer, and pictures of runs; ``http://127.0.0.1:3001``."""
PICTURE_WIDTH = 360


def asset_page(
    summary: str,
    *,
    plotted: Mapping[str, Any] | Sequence[str],
    previous: PreviousRun,
    others: Mapping[str, Any] | None = None,
    baselines: Mapping[str, Mapping[str, Any]] | None = None,
    pictures: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The beginning of an asset's metadata: ``summary``, pictures, numbers, and ``figures``.

    ``plotted``: the six to ten numbers that a person follows over time, each a number of its own, or their names among
    ``others``. ``others``: all other figures, in one table with their past and their ``baselines`` (name → figure →
    value). A figure stands once.
    ``pictures``: title → path relative to the project, shown at once where ``make ui`` serves them.
    """
    if not isinstance(plotted, Mapping):
        figures, names = others or {}, tuple(plotted)
        plotted = {name: figures[name] for name in names if name in figures}
        others = {name: value for name, value in figures.items() if name not in names}
    page: dict[str, Any] = {"summary": dg.MetadataValue.md(_short(summary))}
    if shown := _pictures(pictures or {}):
        page["pictures"] = dg.MetadataValue.md(shown)
    page.update(explorer_link(previous.asset))
    page.update({name: rounded(value) for name, value in scalars(plotted).items()})
    if rows := _rows(scalars(others or {}), previous, baselines or {}):
        page["figures"] = _table(rows)
    return page


def explorer_link(asset: dg.AssetKey) -> dict[str, Any]:
    """Metadata that leads to the explorer's page on this asset's model; {} where it is not served."""
    address = os.environ.get(SERVICE_VARIABLE, "")
    path = "/".join(quote(part) for part in asset.path)
    return {"explorer": dg.MetadataValue.url(f"{address}/#/{path}")} if address else {}


def sparkline(values: Sequence[float]) -> str:
    """At most ``SPARKS`` block characters, from the lowest value ▁ to the highest █; values that are not finite are dots."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    step = max(1, -(-len(values) // SPARKS))
    kept = list(values)[::-step][::-1]  # the last one always
    low, high = min(finite), max(finite)
    spread = (high - low) or 1.0
    return "".join(
        BLOCKS[round((value - low) / spread * (len(BLOCKS) - 1))] if math.isfinite(value) else "·" for value in kept
    )


def rounded(value: Any) -> Any:
    """Numbers as one reads them: four significant digits."""
    return float(f"{value:.4g}") if isinstance(value, float) and math.isfinite(value) else value


def change(now: Any, before: float | None) -> str:
    """``"+3.2 %"``, ``"same"``, or nothing where there is nothing to compare."""
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
        row = {"figure": name, "now": _text(value), "previous": _text(then), "change": change(value, before)}
        rows.append(row | {who: _text(values.get(name)) for who, values in baselines.items()})
    return rows


def _table(rows: Sequence[Mapping[str, str]]) -> dg.MetadataValue:
    columns = [dg.TableColumn(name, "string") for name in rows[0]]
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows], dg.TableSchema(columns=columns))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _pictures(pictures: Mapping[str, str]) -> str:
    """Short Markdown with the pictures' addresses; empty where nobody serves them."""
    address = os.environ.get(SERVICE_VARIABLE, "")
    if not address:
        return ""
    lines = [f"![{title}]({address}/pictures/{path}?width={PICTURE_WIDTH})" for title, path in pictures.items()]
    while lines and len("\n\n".join(lines)) > INLINE_CHARACTERS:
        lines.pop()
    return "\n\n".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= INLINE_CHARACTERS else text[: INLINE_CHARACTERS - 1].rstrip() + "…"
