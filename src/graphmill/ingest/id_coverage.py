"""How many ids of one source are those of another, samples of the others, and the repair that would match most."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_SAMPLES = 5
_PREFIXES = 5
_REPAIRS = 3
"""Repairs that are combined, at most."""
_MOST = 200_000
"""Ids of each source that repairs are tried on, at most."""
_DECIMAL = re.compile(r"^([+-]?[0-9]+)\.0+$")
Repair = Callable[[str], str]


@dataclass(frozen=True)
class Coverage:
    """How ids of the source ``first`` match those of ``second``.

    ``ids``, ``others``: numbers of distinct ids of the two; ``matched``: of those in both. ``samples``: ids of ``first``
    alone. ``repair``: the change to the ids of ``first`` that would match most, as a sentence; "" if none would;
    ``repaired``: the number of ids in both after it.
    """

    first: str
    second: str
    ids: int
    others: int
    matched: int
    samples: tuple[str, ...] = ()
    repair: str = ""
    repaired: int = 0

    @property
    def share(self) -> float:
        """The matched share of the source with fewer ids."""
        return self.matched / max(min(self.ids, self.others), 1)

    @property
    def sentence(self) -> str:
        """The numbers as one sentence."""
        share = f"{self.matched:,} of {self.ids:,} ids of {self.first} are among the {self.others:,} of {self.second}"
        samples = f"; not {', '.join(map(repr, self.samples))}" if self.samples else ""
        return share + samples + (f"; {self.repair}" if self.repair else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the share."""
        return {**asdict(self), "samples": list(self.samples), "share": self.share}


def coverage(first: str, ids: pa.Array, second: str, others: pa.Array) -> Coverage:
    """Compare the ids (strings) of two sources, called ``first`` and ``second``."""
    ids, others = ids.unique(), others.unique()
    unmet = ids.filter(pc.invert(pc.is_in(ids, others)))
    matched, repair, repaired = len(ids) - len(unmet), "", len(ids) - len(unmet)
    if len(unmet):
        left = others.filter(pc.invert(pc.is_in(others, ids)))
        tried = [part.slice(0, _MOST).to_pylist() for part in (unmet, left)]
        repair, more = best_repair(tried[0], set(tried[1]))
        repaired += more
        repair += f": {matched:,} → {repaired:,} of {len(ids):,}" if more else ""
    samples = tuple(unmet.slice(0, _SAMPLES).to_pylist())
    return Coverage(first, second, len(ids), len(others), matched, samples, repair, repaired)


def nearest(first: str, ids: pa.Array, of_types: Mapping[str, pa.Array]) -> Coverage:
    """:func:`coverage` of the ids of the node type that a repair would match most; of equal ones the first.

    ``first`` may have the type's name in the place of {}.
    """
    compared = [coverage(first.format(kind), ids, f"the {kind} nodes", others) for kind, others in of_types.items()]
    return max(compared, key=lambda each: each.repaired)


def best_repair(unmet: list[str], known: set[str]) -> tuple[str, int]:
    """What to change of ``unmet`` ids so that most are in ``known``, and how many then are; "" and 0 if no repair helps.

    Case, Unicode form, invisible characters, decimals and prefixes are tried alone, then together, the best one first. Both
    sides of a comparison are brought into the same case and form; a prefix is changed on ``unmet`` alone.
    """
    here, others, names, best = unmet, known, list[str](), 0
    for _ in range(_REPAIRS):
        tried = []
        for name, repair, both in _repairs(here, others):
            mended, target = [repair(each) for each in here], {repair(each) for each in others} if both else others
            tried.append((sum(each in target for each in mended), name, mended, target))
        count, name, mended, target = max(tried, key=lambda each: each[0])
        if count <= best:
            break
        best, here, others = count, mended, target
        names.append(name)
    return " and ".join(names), best


def _repairs(ids: list[str], known: set[str]) -> list[tuple[str, Repair, bool]]:
    """Repairs with their names, and whether both sides are changed."""
    pairs = [(old, new) for old in ("", *_prefixes(ids)) for new in ("", *_prefixes(known)) if old != new]
    pairs.sort(key=lambda pair: "" not in pair)  # of two that match as many, the simpler one is named
    return [
        ("case ignored", str.casefold, True),
        ("Unicode form NFKC", lambda text: text if text.isascii() else unicodedata.normalize("NFKC", text), True),
        ("invisible characters removed", visible, True),
        ("7.0 read as 7", partial(_DECIMAL.sub, r"\1"), True),
        *((_said(old, new), partial(_with_prefix, old, new), False) for old, new in pairs),
    ]


def _said(old: str, new: str) -> str:
    replaced = f"prefix {old!r} replaced by {new!r}"
    return replaced if old and new else f"prefix {(old or new)!r} {'removed' if old else 'added'}"


def _with_prefix(old: str, new: str, text: str) -> str:
    return new + text.removeprefix(old) if text.startswith(old) else text


def _prefixes(ids: Iterable[str]) -> list[str]:
    """The most frequent beginnings up to a colon, an underscore, a slash or a hash, and those of letters before digits."""
    counts = Counter[str]()
    for text in ids:
        ends = {text.rfind(mark) + 1 for mark in ":_/#"} | {len(text) - len(text.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))}
        counts.update(text[:end] for end in ends if 0 < end < len(text))
    return [prefix for prefix, _ in counts.most_common(_PREFIXES)]


def visible(text: str) -> str:
    """The text without control and format characters (zero-width blanks, byte order marks), and without blanks around."""
    if text.isascii() and text.isprintable():
        return text.strip()
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf")).strip()
