"""Small tables of HTML, by which a notebook shows graphs, tables, runs and explanations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_MOST_ROWS = 20


def page(title: str, *parts: str) -> str:
    """A title (text) and parts of HTML below it."""
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def pairs(values: Mapping[str, Any]) -> str:
    """A table of names and values; whole numbers with separators, other numbers with four digits."""
    return rows(("", ""), values.items())


def rows(names: Sequence[str], cells: Iterable[Sequence[Any]]) -> str:
    """A table of HTML with at most twenty rows; all cells are escaped."""
    every = list(cells)
    head = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in names)}</tr>" if any(names) else ""
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_text(cell))}</td>" for cell in row) + "</tr>" for row in every[:_MOST_ROWS]
    )
    more = f"<p>… and {len(every) - _MOST_ROWS:,} more</p>" if len(every) > _MOST_ROWS else ""
    return f"<table>{head}{body}</table>{more}" if every else ""


def sentences(lines: Sequence[str]) -> str:
    """A list of sentences."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
