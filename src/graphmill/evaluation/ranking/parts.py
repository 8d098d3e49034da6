"""Parts of a ranking's queries with the MRR of every scorer: by relation, by training links of both ends, by labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.ranking.links import LinkRanking
from graphmill.evaluation.ranking.queries import LinkQueries

#: Lower bounds of the bins of a node's number of training links in the relation. The first bin has nodes without any.
LINK_BINS = (0, 1, 3, 10, 30, 100)
#: The half-links of a query (h, r, t) that occur in training: both (h, r, ·) and (·, r, t), one of them, or none (arXiv
#: 2606.18001).
HALF_LINKS = (
    "(head, relation) and (relation, tail)",
    "(head, relation) alone",
    "(relation, tail) alone",
    "neither half of the link",
)
MOST_PARTS = 30
"""Relations, and classes of a label, that are listed: those with most queries."""


@dataclass(frozen=True)
class NodeLabels:
    """Labels of nodes: ``member`` bool [nodes, classes], rows in the graph's global order."""

    title: str
    classes: Sequence[str]
    member: NDArray[np.bool_]


def parts(
    queries: LinkQueries,
    rankings: Mapping[str, LinkRanking],
    ends: Sequence[tuple[int, int]] = (),
    labels: NodeLabels | None = None,
) -> list[dict[str, Any]]:
    """Rows of ``by`` (what parts the queries), ``part``, ``queries`` and ``mrr`` by scorer; parts without a query have none.

    A query for heads is one for the tails of an inverse relation, so its *target* is the head of the link. ``ends``: by
    relation number, the global numbers of the first head and target, for ``labels``.
    """
    asked = [relation for relation in queries.relations if len(relation.heads)]
    reciprocal = {who: np.concatenate([r.reciprocal for r in own.relations]) for who, own in rankings.items()}
    rows: list[dict[str, Any]] = []

    def add(by: str, named: Iterable[tuple[str, NDArray[np.bool_]]], most: int = 0) -> None:
        part_rows: list[dict[str, Any]] = [
            {
                "by": by,
                "part": part,
                "queries": int(mask.sum()),
                "mrr": {who: float(values[mask].mean()) for who, values in reciprocal.items()},
            }
            for part, mask in named
            if mask.any()
        ]
        rows.extend(sorted(part_rows, key=lambda row: -row["queries"])[:most] if most else part_rows)

    if not asked:
        return rows
    relation_of = np.repeat(np.arange(len(asked)), [len(relation.heads) for relation in asked])
    head_links = np.concatenate([relation.head_degree[relation.heads] for relation in asked])
    target_links = np.concatenate([relation.train_degree[relation.tails] for relation in asked])
    add("relation", ((relation.name, relation_of == place) for place, relation in enumerate(asked)), MOST_PARTS)
    for end, links in (("head", head_links), ("target", target_links)):
        bins = np.searchsorted(LINK_BINS, links, side="right") - 1
        add(f"training links of the {end}", ((_bin(number), bins == number) for number in range(len(LINK_BINS))))
    half = 2 * (head_links == 0) + (target_links == 0)
    add("half of the link that training has", ((text, half == number) for number, text in enumerate(HALF_LINKS)))
    if labels:
        nodes = [
            (relation.heads + ends[relation.relation][0], relation.targets + ends[relation.relation][1])
            for relation in asked
        ]
        for place, end in enumerate(("head", "target")):
            member = labels.member[np.concatenate([pair[place] for pair in nodes])]
            named = zip(labels.classes, member.T, strict=True)
            add(f"{labels.title} of the {end}", named, MOST_PARTS)
    return rows


def _bin(number: int) -> str:
    """``"10 to 29"`` or ``"100+"``."""
    low = LINK_BINS[number]
    if number + 1 == len(LINK_BINS):
        return f"{low}+"
    high = LINK_BINS[number + 1] - 1
    return f"{low} to {high}" if high > low else str(low)
