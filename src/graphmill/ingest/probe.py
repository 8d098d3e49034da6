"""What the first rows of a table say: whether it has a header, which columns are ids, times or numbers, and whether two
columns name nodes of one kind.

The formats recognise a table by this, and the column maps are guessed from it, so that all ways into the program
decide alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from graphmill.ingest.names import (
    END_WORDS,
    RELATION_NAMES,
    SEPARATED,
    as_number,
    is_row_number,
    is_time_name,
    plain_name,
    role_of,
)
from graphmill.ingest.times import is_plausible, parse_time

ROWS = 200
"""Rows that are looked at."""
_SIDES = re.compile(r"(?P<stem>.*[a-z])_?(?P<side>[0-9]+|(?<=_)[a-c])(?P<rest>(_(id|code|key|name|symbol))?)")
_PREFIX = re.compile(r"[^0-9]*")
Holds = Literal["ids", "times", "numbers", "nothing"]


@dataclass(frozen=True)
class Probe:
    """The first rows of a table.

    ``names``: of the columns; "0", "1", … without a header. ``header``: whether the first line (or the last comment
    before it) has names; None: it cannot be told. ``rows``: at most :data:`ROWS`, as text; without the header if it has
    one.
    """

    names: tuple[str, ...]
    header: bool | None
    rows: tuple[tuple[str, ...], ...]

    def values(self, place: int) -> list[str]:
        """The cells of a column that are not blank."""
        return [row[place].strip() for row in self.rows if len(row) > place and row[place].strip()]

    def holds(self, place: int) -> Holds:
        """What a column has: dates, or numbers that are times; numbers with a fraction, a sign or a separator; or ids."""
        cells = self.values(place)
        named = is_time_name(self.names[place]) if self.header is not False else False
        if not cells:
            return "nothing"
        times = [parse_time(cell) for cell in cells]
        if all(time is not None for time in times):
            dated = not any(as_number(cell) is not None for cell in cells)
            if named or dated or all(is_plausible(time) for time in times if time is not None):
                return "times"
        if all(as_number(cell) is not None or SEPARATED.fullmatch(cell) for cell in cells):
            fraction = any(not re.fullmatch(r"[0-9]+(\.0+)?", cell) for cell in cells)
            weighs = self.header is not False and role_of(self.names[place]) == "weight"
            return "numbers" if fraction or weighs else "ids"
        return "ids"

    def has_words(self, place: int) -> bool:
        """Whether a column has ids, of which some are no numbers."""
        return self.holds(place) == "ids" and any(as_number(cell) is None for cell in self.values(place))

    def one_kind(self, first: int, second: int) -> bool | None:
        """Whether two columns of ids name nodes of one kind; None: whole numbers, which do not tell."""
        if self.header is not False and numbered_pair([self.names[first], self.names[second]]):
            return True
        a, b = (set(self.values(place)) for place in (first, second))
        if all(cell.isdigit() for cell in a | b):
            ranges = [(min(numbers), max(numbers)) for numbers in (set(map(int, cells)) for cells in (a, b))]
            return None if max(low for low, _ in ranges) <= min(high for _, high in ranges) else False
        if a & b:
            return 10 * len(a & b) >= min(len(a), len(b))
        prefixes = [{_PREFIX.match(cell)[0].lower() for cell in cells} for cells in (a, b)]  # type: ignore[index]
        coded = all(any(c.isdigit() for c in cell) for cell in a | b)
        return coded and len(prefixes[0]) == 1 and prefixes[0] == prefixes[1]

    @property
    def ids(self) -> list[int]:
        """The places of columns of ids, in their order; a row number, and a column with one value, are none."""
        places = range(len(self.names))
        usable = [p for p in places if self.header is False or not is_row_number(self.names[p])]
        return [p for p in usable if self.holds(p) == "ids" and (len(self.rows) < 3 or len(set(self.values(p))) > 1)]

    def place_of(self, kind: Holds) -> int | None:
        """The first column that holds ``kind``."""
        return next((place for place in range(len(self.names)) if self.holds(place) == kind), None)


def numbered_pair(names: Sequence[str]) -> tuple[str, str] | None:
    """The two of ``names`` that are one word with 1 and 2, or A and B (``Gene 1``, ``Gene 2``), if it goes no further."""
    known: dict[tuple[str, str], dict[str, str]] = {}
    for name in names:
        if sides_of := _SIDES.fullmatch(plain_name(name)):
            known.setdefault((sides_of["stem"], sides_of["rest"]), {}).setdefault(sides_of["side"], name)
    pairs = [sides for sides in known.values() if set(sides) in ({"1", "2"}, {"a", "b"})]
    return (*pairs[0].values(),) if pairs else None  # type: ignore[return-value]


def stem_of(name: str) -> str:
    """The word of a name such as ``Gene 1``; empty if it has none."""
    sides_of = _SIDES.fullmatch(plain_name(name))
    return sides_of["stem"].strip("_") if sides_of else ""


def has_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool | None:
    """Whether the line ``first`` has names for the columns of ``rows``; None: it cannot be told."""
    names = [plain_name(cell) for cell in first]
    columns = [[row[place].strip() for row in rows if len(row) > place and list(row) != list(first)]
               for place in range(len(first))]  # fmt: skip
    known = [bool(role_of(n) or n in END_WORDS or n in RELATION_NAMES) and cell.strip() not in cells
             for n, cell, cells in zip(names, first, columns, strict=True)]  # fmt: skip
    stem = stem_of(pair[0]) if (pair := numbered_pair(first)) else ""
    alike = any(plain_name(cell).startswith(stem) for cells in columns for cell in cells)
    if sum(known) >= 2 or (stem and not alike):
        return True
    numbers = [as_number(cell.strip()) is not None or parse_time(cell.strip()) is not None for cell in first]
    everywhere = {cell for cells in columns for cell in cells} if len(first) <= 3 else set()
    if any(cell.strip() and (cell.strip() in cells or cell.strip() in everywhere)
           for cell, cells in zip(first, columns, strict=True)):  # fmt: skip
        return False
    digits = any(c.isdigit() for cell in first if not is_row_number(cell) for c in cell)
    if any(yes and len(name) > 1 for yes, name in zip(known, names, strict=True)) and not any(numbers) and not digits:
        return True
    if any(number and cell.strip() for number, cell in zip(numbers, first, strict=True)):
        return False
    shapes = [_shape(cell) in set(map(_shape, cells)) for cell, cells in zip(first, columns, strict=True)]
    if all(shapes) and all(any(c.isdigit() for c in cell) for cell in first):
        return False
    signs = [_other_kind(cell.strip(), cells) for cell, cells in zip(first, columns, strict=True)]
    return True if any(signs) else None


def _shape(cell: str) -> str:
    return re.sub(r"[0-9]+", "9", cell.strip())


def _other_kind(name: str, cells: Sequence[str]) -> bool:
    """Whether the values of a column are of another kind than its first cell, which then is a name."""
    cells = [cell for cell in cells if cell]
    if not cells or not name:
        return False
    if all(as_number(cell) is not None or parse_time(cell) is not None for cell in cells):
        return True
    if not any(c.isdigit() for c in name) and 10 * sum(any(c.isdigit() for c in cell) for cell in cells) >= 9 * len(
        cells
    ):
        return True
    return len(cells) >= 10 and 5 * len(set(cells)) <= len(cells)
