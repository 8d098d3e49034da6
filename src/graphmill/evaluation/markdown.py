"""Formats numbers and tables as Markdown, for cards, reports and asset pages."""

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


def _cell(value: Any) -> str:
    return number(value).replace("|", "\\|").replace("\n", " ")
