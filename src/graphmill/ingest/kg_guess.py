"""Guesses the column map of an edge file from its header, for the report."""

import re
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


def guess_columns(header: tuple[str, ...]) -> tuple[KgColumns | None, list[str]]:
    """A column map for ``header``, with a remark on each guess; None if the two ends cannot be found.

    PrimeKG's twelve columns give the empty map.
    """
    if set(PRIMEKG) <= set(header):
        return KgColumns(), []
    header, left_out = (tuple(names) for names in without_row_numbers(header))
    plain = {re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_"): name for name in reversed(header)}
    remarks = [row_number_note(left_out)] if left_out else []
    found = _ends(plain)
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
        found["relation_constant"] = "related_to"
        remarks.append("there seems to be no column for the relation: all edges are called related_to")
    for end in ("head", "tail"):
        if not found.get(f"{end}_type"):
            found[f"{end}_type_constant"] = "node"
            remarks.append(f"there seems to be no column for the {end}'s type: all are of type node; change it")
    return KgColumns(**{k: v for k, v in found.items() if v}), remarks


def _ends(plain: dict[str, str]) -> dict[str, str]:
    """Columns of both ends, from the first pair of words that matches two ids."""
    for words in END_NAMES:
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
