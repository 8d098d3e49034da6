"""Parts of a ranking with a figure of every scorer: by relation, by training links of both ends, by time.

Links have their MRR. Held-out items have hits@k: the share of them that are among the first k of their user's list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.evaluation.ranking.links import LinkRanking
from graphmill.evaluation.ranking.queries import Int64, LinkQueries
from graphmill.evaluation.ranking.windows import TimeWindows

#: Lower bounds of the bins of a node's number of training links in the relation. The first bin has nodes without any.
LINK_BINS = (0, 1, 3, 10, 30, 100)
TIME = "window of time"
MOST_PARTS = 30
"""Relations that are listed: those with most queries."""


def parts(
    queries: LinkQueries,
    rankings: Mapping[str, LinkRanking],
    windows: TimeWindows | None = None,
) -> list[dict[str, Any]]:
    """Rows of ``by`` (what parts the queries), ``part``, ``queries`` and ``mrr`` by scorer; parts without a query have none.

    A query for heads is one for the tails of an inverse relation, so its *target* is the head of the link.
    """
    ranked = [relation for relation in queries.relations if len(relation.heads)]
    if not ranked:
        return []
    table = _Parts(
        "mrr", {who: np.concatenate([r.reciprocal for r in ranking.relations]) for who, ranking in rankings.items()}
    )
    add = table.add
    relation_of = np.repeat(np.arange(len(ranked)), [len(relation.heads) for relation in ranked])
    head_links = np.concatenate([relation.head_degree[relation.heads] for relation in ranked])
    target_links = np.concatenate([relation.train_degree[relation.tails] for relation in ranked])
    add("relation", ((relation.name, relation_of == place) for place, relation in enumerate(ranked)), MOST_PARTS)
    for end, links in (("head", head_links), ("target", target_links)):
        add(f"training links of the {end}", _bins(links))
    if windows:
        add(TIME, _numbered(windows.names(), windows.of_queries(queries)))
    return table.rows


def item_parts(
    pairs: tuple[Int64, Int64],
    hits: Mapping[str, NDArray[Any]],
    k: int,
    links: tuple[NDArray[Any], NDArray[Any]],
    windows: tuple[Sequence[str], Int64] | None = None,
) -> list[dict[str, Any]]:
    """Rows as of :func:`parts`, with ``hits@k`` by scorer. ``pairs`` int64 [Q] each: held-out users and items, by local
    numbers. ``hits`` [Q] by scorer: whether the item is among the first k, or the chance of it where scores are equal.
    ``links``: training interactions of each user and item. ``windows``: their names, and that of each pair."""
    table = _Parts(f"hits@{k}", {who: hit.astype(np.float64) for who, hit in hits.items()})
    for end, nodes, count in zip(("user", "item"), pairs, links, strict=True):
        table.add(f"training interactions of the {end}", _bins(count[nodes]))
    if windows:
        table.add(TIME, _numbered(*windows))
    return table.rows


@dataclass
class _Parts:
    """Rows of parts: the mean of ``values`` (float64 [Q] by scorer) in each, named ``figure``."""

    figure: str
    values: Mapping[str, NDArray[np.float64]]
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, by: str, named: Iterable[tuple[str, NDArray[np.bool_]]], most: int = 0) -> None:
        part_rows: list[dict[str, Any]] = [
            {
                "by": by,
                "part": part,
                "queries": int(mask.sum()),
                self.figure: {who: float(values[mask].mean()) for who, values in self.values.items()},
            }
            for part, mask in named
            if mask.any()
        ]
        self.rows.extend(sorted(part_rows, key=lambda row: -row["queries"])[:most] if most else part_rows)


def _numbered(names: Sequence[str], number: Int64) -> Iterable[tuple[str, NDArray[np.bool_]]]:
    return ((name, number == place) for place, name in enumerate(names))


def _bins(links: Int64) -> Iterable[tuple[str, NDArray[np.bool_]]]:
    return _numbered(
        [_bin(number) for number in range(len(LINK_BINS))], np.searchsorted(LINK_BINS, links, side="right") - 1
    )


def _bin(number: int) -> str:
    """``"10 to 29"`` or ``"100+"``."""
    low = LINK_BINS[number]
    if number + 1 == len(LINK_BINS):
        return f"{low}+"
    high = LINK_BINS[number + 1] - 1
    return f"{low} to {high}" if high > low else str(low)
