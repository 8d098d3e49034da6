"""What names of columns and the first rows of a table say: the role of a column, whether there is a header, which columns
are ids, times or numbers, and whether two columns name nodes of one kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.ingest.times import is_plausible, parse_time

BLANK = " \t\r\n\v\f\u00a0"
"""White space; a required cell must contain other characters."""
KNOWN_NAMES = {
    "user": ("user", "user_id", "userid", "uid", "customer_id", "customerid", "customer", "reviewerid", "visitorid",
             "visitor_id", "client", "client_id", "clientid", "buyer", "buyer_id", "member_id", "account_id", "session_id",
             "kunde", "kunden_id", "kundennummer", "nutzer", "nutzer_id", "usuario", "cliente", "utilisateur"),
    "item": ("item", "item_id", "itemid", "iid", "movieid", "movie_id", "product_id", "productid", "asin", "artist_id",
             "artistid", "track_id", "trackid", "product", "sku", "stockcode", "stock_code", "article_id", "isbn",
             "book_id", "song_id", "artikel", "artikel_id", "artikelnummer", "produkt", "produkt_id", "producto", "produit",
             "film", "film_id", "movie", "book", "song", "track", "article", "game", "game_id", "recipe", "recipe_id",
             "business_id", "venue_id"),
    "weight": ("weight", "rating", "score", "count", "plays", "value", "ratings", "stars", "quantity",
               "liked", "is_liked", "thumb", "thumbs", "vote", "menge", "anzahl", "cantidad"),
    "timestamp": ("timestamp", "time", "unixreviewtime", "ts", "date", "datetime", "timestamps", "datum", "fecha"),
}  # fmt: skip
"""Names of interactions' columns, in lower case, without a part after a colon (``user_id:token``)."""
_TIME = re.compile(r".*(_at|_date|_time|_ts|_timestamp)")

END_NAMES = (("x", "y"), ("head", "tail"), ("subject", "object"), ("source", "target"), ("from", "to"), ("start", "end"),
         ("src", "dst"), ("node1", "node2"), ("entity1", "entity2"), ("node_1", "node_2"), ("u", "v"), ("s", "o"),
         ("h", "t"), ("sender", "receiver"), ("follower", "followee"), ("citing", "cited"), ("parent", "child"))  # fmt: skip
"""Words for the two ends of an edge."""
END_WORDS = {f"{word}{rest}" for pair in END_NAMES for word in pair for rest in ("", "_id", "id", "_node", "_node_id")}
RELATION_NAMES = (
    "relation", "predicate", "edge_type", "relationship", "relation_type", "rel", "interaction", "edge", "type", "p",
    "r"
)  # fmt: skip
"""Words for its relation."""

TITLES = ("name", "title", "label", "displayname")
"""Names of the column with a node's name, in lower case."""

_INDEX = re.compile(r"|unnamed: ?\d+(_level_\d+)?|__index_level_\d+__|level_\d+|index", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*", re.ASCII)


def plain(name: str) -> str:
    """A column's name for look-up: lower case, without a type after a colon."""
    return name.split(":")[0].strip().lower()


def plain_name(name: str) -> str:
    """A column's name in lower case, its words joined by one underscore: ``FromNodeId`` and ``from node-id`` alike."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", name).lower()).strip("_")


def first_named(names: Sequence[str], wanted: Sequence[str]) -> str:
    """The column with the first of the ``wanted`` plain names that there is; empty if there is none."""
    by_name = {plain(name): name for name in reversed(names)}
    return next((by_name[name] for name in wanted if name in by_name), "")


def column_of(role: str, names: Sequence[str]) -> str:
    """The column whose name is known for ``role`` (user, item, weight, timestamp); empty if there is none."""
    named = first_named(names, KNOWN_NAMES[role])
    return named or next((name for name in names if role == "timestamp" and is_time_name(name)), "")


def is_time_name(name: str) -> bool:
    """Whether a column with this name has times: ``date``, ``created_at``."""
    return plain(name) in KNOWN_NAMES["timestamp"] or _TIME.fullmatch(plain_name(plain(name))) is not None


def is_row_number(name: str) -> bool:
    """Whether a column with this name is the row number that pandas writes."""
    return _INDEX.fullmatch(name.strip()) is not None


def role_of(name: str) -> str:
    """user, item, weight or timestamp for a known name; else empty."""
    known = next((role for role, known in KNOWN_NAMES.items() if plain(name) in known), "")
    return known or ("timestamp" if is_time_name(name) else "")


def without_row_numbers(names: Sequence[str], keep: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """The names that are not row numbers, or that are in ``keep``; and the others."""
    left_out = [name for name in names if is_row_number(name) and name not in keep]
    return [name for name in names if name not in left_out], left_out


def row_number_note(left_out: Sequence[str]) -> str:
    """A sentence on columns that were left out as row numbers."""
    if not any(left_out):
        return "a column without a name (pandas' row number, or a delimiter at the end of lines) was left out"
    quoted = ", ".join(repr(name) for name in left_out)
    return f"column {quoted} is taken for the row number that pandas writes, and was left out"


SEPARATED = re.compile(r"[-+]?\d{1,3}([ ',.\u00a0\u202f]\d{3})+([.,]\d+)?|[-+]?\d+,\d+")
"""Numbers with separated thousands or a decimal comma, of which the value cannot be told."""


def as_number(text: str) -> float | int | None:
    """The finite number in ``text`` (whole numbers exactly), or None."""
    text = text.replace("\N{MINUS SIGN}", "-")
    if "_" in text:  # Python alone reads 1_000 as a number
        return None
    try:
        value: float | int = int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            return None
    limit = float(np.finfo(np.float32).max) if isinstance(value, float) else 2**63 - 1
    return value if -limit <= value <= limit else None


_YES_AND_NO = {word: float(likes) for likes, words in (
    (1, "true t yes y like liked up positive pos good love loved thumbs_up upvote + \U0001f44d"),
    (0, "false f no n down negative neg bad - \U0001f44e"),
) for word in words.split()}  # fmt: skip
_FEEDBACK = ("feedback", "reaction", "sentiment", "preference", "opinion", "response", "reward", "label", "like", "likes",
             "click", "clicked")  # fmt: skip
_DISLIKES = ("dislike", "disliked", "hate", "hated", "thumbs_down", "downvote", "downvoted")
_YES_AND_NO |= dict.fromkeys(_DISLIKES, 0.0)


def as_liking(text: str) -> float | int | None:
    """A number as :func:`as_number` has it, 1 for a word such as ``true`` or ``up``, 0 for one such as ``no``; or None."""
    number = as_number(text)
    return _YES_AND_NO.get(plain_name(text) or text) if number is None else number


def as_reaction(text: str) -> float:
    """0 for a word that is a dislike, 1 for any other text."""
    return float(plain_name(text) not in _DISLIKES and text != "\U0001f44e")


def as_disliking(text: str) -> float | int | None:
    """0 where :func:`as_liking` has more than 0, else 1."""
    value = as_liking(text) if text else 0
    return None if value is None else float(value <= 0)


def reaction_of(name: str, cells: Iterable[str]) -> str:
    """How a column says what is liked: ``disliking`` if its name is a dislike, ``weight`` if its name is a word for both and
    its cells are numbers or words for them, ``reaction`` if some of its cells are dislikes; else empty."""
    word, cells = plain_name(plain(name)).removeprefix("is_"), [cell.strip() for cell in cells if cell.strip()]
    if word in _DISLIKES:
        return "disliking"
    if word in _FEEDBACK and cells and all(as_liking(cell) is not None for cell in cells):
        return "weight"
    return "reaction" if any(not as_reaction(cell) for cell in cells) else ""


def with_point(text: str, delimiter: str) -> str:
    """``1,5`` as ``1.5`` if the comma does not separate fields; any other text unchanged."""
    return text.replace(",", ".") if delimiter != "," and _DECIMAL_COMMA.fullmatch(text) else text


def with_points(column: pa.DictionaryArray, delimiter: str) -> tuple[pa.DictionaryArray, int]:
    """Cells :func:`with_point`, and the number of rows that had a decimal comma."""
    if delimiter == ",":
        return column, 0
    texts = column.dictionary.to_pylist()
    pointed = [with_point(text, delimiter) for text in texts]
    changed = np.array(list(map(str.__ne__, texts, pointed)), bool)
    number = int(changed[column.indices.to_numpy(zero_copy_only=False)].sum())
    return pa.DictionaryArray.from_arrays(column.indices, pa.array(pointed, pa.string())), number


def numbers_of(column: pa.StringArray, delimiter: str) -> pa.DoubleArray:
    """The numbers in cells, null for a cell that is blank or no number.

    A comma counts as decimal comma if ``delimiter`` is another character.
    """
    text = pc.utf8_trim(column, BLANK)
    try:
        return pc.cast(text, pa.float64())
    except pa.ArrowInvalid:
        return pa.array([_number(with_point(cell, delimiter)) for cell in text.to_pylist()], pa.float64())


def _number(text: str) -> float | None:
    """The number that pyarrow reads."""
    try:
        return float(pc.cast(pa.scalar(text), pa.float64()).as_py())
    except pa.ArrowInvalid:
        return None


def without_blanks(ids: pa.DictionaryArray) -> tuple[pa.DictionaryArray, int]:
    """Ids without white space around them, and the number of rows that had some."""
    trimmed = pc.utf8_trim_whitespace(ids.dictionary)
    odd = pc.not_equal(trimmed, ids.dictionary).to_numpy(zero_copy_only=False)
    if not odd.any():
        return ids, 0
    return pa.DictionaryArray.from_arrays(ids.indices, trimmed), int(
        odd[ids.indices.to_numpy(zero_copy_only=False)].sum()
    )


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
