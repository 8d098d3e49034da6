"""Guesses the column map of an edge file from its header, for the report."""

import re
from collections.abc import Iterable, Mapping
from itertools import product

from graphmill.errors import listed
from graphmill.ingest.kg_columns import PRIMEKG, KgColumns
from graphmill.ingest.names import END_NAMES, KNOWN_NAMES, RELATION_NAMES, row_number_note, without_row_numbers

_EDGE_IDS = ("id", "edge_id", "uuid", "key")
_PARTS = {
    "index": ("index", "idx"),
    "id": ("id", "identifier", "curie", ""),
    "type": ("type", "category", "kind", "class"),
    "name": ("name", "label", "title"),
    "source": ("source", "vocabulary", "database", "db"),
}
_DISPLAY = ("display_relation", "relation_label", "predicate_label")


def guess_columns(
    header: tuple[str, ...], given: Mapping[str, str] | None = None
) -> tuple[KgColumns | None, list[str]]:
    """A column map for ``header``, with a remark on each guess; None if the two ends cannot be found.

    PrimeKG's twelve columns give the empty map. ``given``: parts of the map that are known. Where the header's words show
    no ends and ``given`` has both ids, those are the ends; the map is then None if no column is the relation either.
    """
    if set(PRIMEKG) <= set(header):
        return KgColumns(), []
    header, left_out = (tuple(names) for names in without_row_numbers(header))
    plain = {_plain(name): name for name in reversed(header)}
    remarks = [row_number_note(left_out)] if left_out else []
    found = _ends(plain, END_NAMES)
    named = given if not found and given and given.get("head_id") and given.get("tail_id") else {}
    if named:
        ends = {end: named[end] for end in ("head_id", "tail_id")}
        first, second = (_plain(name).removesuffix("_id") for name in ends.values())
        found = _ends(plain, [(first, second)]) | ends
    if not found and (found := _ends(plain, _typed_pair(plain))):
        remarks.append(
            f"column {found['head_id']} is the head and {found['tail_id']} the tail: each has a column of types"
        )
    if not found and len(header) in (2, 3):
        found = {"head_id": header[0], "tail_id": header[-1]}
        remarks.append(f"the first column is taken for the head and the last for the tail of {len(header)}")
    if not found:
        return None, [*remarks, f"no two columns could be told to be the ends of an edge among {listed(header)}"]
    taken = set(found.values()) - {""}
    when = next((plain[n] for n in (*KNOWN_NAMES["timestamp"], "year") if n in plain and plain[n] not in taken), "")
    relation = next((plain[n] for n in RELATION_NAMES if n in plain and plain[n] not in taken), "")
    if not relation and not when and len(header) == 3 and len(taken) == 2:
        other = next((name for name in header if name not in taken), "")  # none if two columns have the same name
        if other and other.lower() not in _EDGE_IDS:
            relation = other
            remarks.append(f"column {relation} is taken for the relation")
    display = next((plain[n] for n in _DISPLAY if n in plain and plain[n] not in {*taken, relation}), "")
    found |= {"relation": relation, "display_relation": display, "timestamp": when}
    if when:
        remarks.append(f"column {when} is taken for the edge's time (split: {{method: by_time}} holds out the newest)")
    if not relation:
        if named and not (named.get("relation") or named.get("relation_constant")):
            return None, [*remarks, f"no column for the relation could be told among {listed(header)}"]
        found["relation_constant"] = "related_to"
        remarks.append("there seems to be no column for the relation: all edges are called related_to")
    for end in ("head", "tail"):
        if not found.get(f"{end}_type"):
            found[f"{end}_type_constant"] = "node"
            remarks.append(f"there seems to be no column for the {end}'s type: all are of type node; change it")
    return KgColumns(**{k: v for k, v in found.items() if v}), remarks


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _typed_pair(plain: dict[str, str]) -> list[tuple[str, str]]:
    """The two words that have an id and a type each (``drug, drug_type, …, target, target_type``), in the header's order.

    Empty if there are not exactly two, or no column for the relation.
    """
    if not any(name in plain for name in RELATION_NAMES):
        return []
    typed = [name.rpartition("_") for name in reversed(plain)]
    words = [word for word, _, kind in typed if word and kind in _PARTS["type"] and word not in RELATION_NAMES]
    pairs = [word for word in dict.fromkeys(words) if _part(plain, word, "id")]
    return [(pairs[0], pairs[1])] if len(pairs) == 2 else []


def _ends(plain: dict[str, str], pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Columns of both ends, from the first pair of words that matches two ids."""
    for words in pairs:
        sides = [{part: _part(plain, word, part) for part in _PARTS} for word in words]
        if all(side["id"] for side in sides) and sides[0]["id"] != sides[1]["id"]:
            if not all(side["index"] for side in sides):
                sides = [side | {"index": ""} for side in sides]
            return {f"{end}_{part}": name for end, side in zip(("head", "tail"), sides, strict=True)
                    for part, name in side.items()}  # fmt: skip
    return {}


def _part(plain: dict[str, str], word: str, part: str) -> str:
    patterns = (f"{word}_{suffix}".rstrip("_") for suffix in _PARTS[part])
    joined = (f"{word}{suffix}" for suffix in _PARTS[part] if suffix and len(word) > 1)
    swapped = (f"{a}_{b}" for a, b in product(_PARTS[part], (word,)) if a)
    return next((plain[name] for name in (*patterns, *joined, *swapped) if name in plain), "")


def parts_of(columns: KgColumns) -> dict[str, str]:
    """The role of each column."""
    if columns == KgColumns():
        return {name: _spelled(name, "x", "y") for name in PRIMEKG}
    found: dict[str, str] = {}
    for part, name in columns.model_dump().items():
        if name and not part.endswith("_constant"):
            part = _spelled(part, "head", "tail")
            found[name] = f"{found[name]}, {part}" if name in found else part
    return found


def _spelled(part: str, head: str, tail: str) -> str:
    """``x_id`` or ``head_id`` as ``head id``; anything else as it is."""
    for prefix, word in ((head, "head"), (tail, "tail")):
        if part.startswith(f"{prefix}_"):
            return f"{word} {part.removeprefix(f'{prefix}_')}"
    return part
