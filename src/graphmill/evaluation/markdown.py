"""Formats numbers and tables as Markdown, for cards, reports and asset pages."""

import html
from collections.abc import Iterable, Sequence
from typing import Any


def number(value: Any) -> str:
    """Format a value: four significant digits, integers with separators, yes or no, "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The lines of a table; :func:`number` formats the cells."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def escaped(text: str) -> str:
    """``text`` with HTML and links as plain text. Code between backticks shows them as they are, so it stays."""
    parts = text.split("`")
    unpaired = len(parts) - 1 if len(parts) % 2 == 0 else -1
    for at in (*range(0, len(parts), 2), unpaired):
        if at >= 0:
            parts[at] = html.escape(parts[at], quote=False).replace("[", "\\[")
    return "`".join(parts)


def _cell(value: Any) -> str:
    return escaped(" ".join(number(value).splitlines())).replace("|", "\\|")
