"""Parses lines of triples: cells between tabs, or the terms of an N-Triples statement. Reports header lines, blanks and
faults."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from graphmill.errors import InputError
from graphmill.ingest.files import lines_of, shown
from graphmill.ingest.names import END_NAMES, RELATION_NAMES
from graphmill.ingest.rejects import Reject
from graphmill.ingest.tables import MAX_SHOWN
from graphmill.ingest.times import parse_time

COLUMNS = ("head", "relation", "tail")
TIMED = (*COLUMNS, "time")
"""Lines of temporal graphs (ICEWS, GDELT, YAGO)."""
_TERM = r'(<[^<>"{}|^`\s]*>|_:\S+|"(?:[^"\\]|\\.)*"(?:@[\w-]+|\^\^<[^<>\s]*>)?)'
_STATEMENT = re.compile(rf"\s*+{_TERM}\s*+{_TERM}\s*+{_TERM}\s*+\.\s*+(#.*)?")
"""A line of N-Triples."""


CORRECTED = {
    "header_lines": "header lines (head, relation, tail) were skipped",
    "ntriples_lines": "lines are N-Triples; the dot at their end was taken off (the format ntriples reads types, too)",
    "padded_symbols": "symbols have white space around them; it was taken off",
}
"""What is corrected while reading, by the name of its count."""


def is_statement(line: str) -> bool:
    """Whether the line is an N-Triples statement."""
    return _STATEMENT.fullmatch(line) is not None


def cells_of(
    file: str | Path, columns: tuple[str, ...], complain: "Complaint", seen: Counter[str]
) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every line with one filled cell per column; ``complain`` gets the faults of other lines.

    White space around cells is removed. ``seen`` counts what is corrected (:data:`CORRECTED`).
    """
    order: list[int] = []
    for number, raw in lines_of(file):
        line = raw.removesuffix(b"\r")
        if not line:
            continue
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            complain(number, "", "is not UTF-8", repr(line)[2:-1])
            continue
        statement = _STATEMENT.fullmatch(text) if columns is COLUMNS and text.rstrip().endswith(".") else None
        written = list(statement.groups()[:3]) if statement else text.split("\t")
        seen["ntriples_lines"] += statement is not None
        cells = [cell.strip() for cell in written]
        if number == 1 and columns is COLUMNS and (order := _header_order(cells)):
            seen["header_lines"] += 1
            continue
        if len(cells) != len(columns):
            wanted = "<TAB>".join(columns)
            if columns is COLUMNS and len(cells) == len(TIMED) and parse_time(cells[-1]):
                wanted += "; with timed: true the fourth is the time"
            complain(number, "", f"has {len(cells)} columns, not {len(columns)} ({wanted})", line.decode("utf-8"))
            continue
        if order:
            cells = [cells[place] for place in order]
        empty = [name for name, cell in zip(columns, cells, strict=True) if not cell]
        if empty:
            complain(number, empty[0], "is empty", text)
            continue
        if "\0" in text:
            complain(number, "", "holds a NUL byte", text.replace("\0", "\\0"))
            continue
        seen["padded_symbols"] += sum(map(str.__ne__, cells, written)) if not order else 0
        yield number, cells


def _header_order(cells: list[str]) -> list[int]:
    """Positions of head, relation and tail according to a header line with known names; empty if the line is not a
    header."""
    names = [cell.lower().lstrip("#").strip() for cell in cells]
    if len(names) != len(COLUMNS):
        return []
    for head, tail in END_NAMES:
        ends = [{head, f"{head}_id", f"{head}id"}, {tail, f"{tail}_id", f"{tail}id"}]
        wanted = (ends[0], RELATION_NAMES, ends[1])
        found = [[place for place, name in enumerate(names) if name in known] for known in wanted]
        places = [place[0] for place in found if place]
        if len(set(places)) == len(COLUMNS):
            return places
    return []


class Complaint:
    """Handles an unusable line: keeps it as a reject, or (without ``rejects``) refuses the file."""

    def __init__(self, file: str | Path, rejects: list[tuple[str, Reject]] | None) -> None:
        self.file, self.rejects = shown(file), rejects

    def __call__(self, line: int, column: str, reason: str, value: str) -> None:
        """The line, the faulty column ("": the whole line), the reason, and the value."""
        if self.rejects is None:
            subject = f"column '{column}'" if column else "the line"
            raise InputError(f"{self.file}, line {line}: {subject} {reason}: {value[:MAX_SHOWN]!r}")
        self.rejects.append((self.file, Reject(line, column, reason, value[:MAX_SHOWN])))
