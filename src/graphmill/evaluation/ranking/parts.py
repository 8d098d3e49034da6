"""Parts of a ranking with a figure of every scorer: by relation, by training links of both ends, by labels, by time.

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
"""Relations, and classes of a label, that are listed: those with most queries."""


@dataclass(frozen=True)
class NodeLabels:
    """Labels of nodes: ``member`` bool [nodes, classes], rows in the graph's global order. ``coverage``: how the labels' ids
    match the nodes', as :meth:`graphmill.ingest.id_columns.Coverage.to_dict` has it."""

    title: str
    classes: Sequence[str]
    member: NDArray[np.bool_]
    coverage: Mapping[str, Any] = field(default_factory=dict)

    def title_of(self, end: str) -> str:
        """How the parts by the labels of one ``end`` are called."""
        return f"{self.title} of the {end}"

    def parts_in(self, rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The rows of :func:`parts` or :func:`item_parts` by these labels."""
        names = [self.title_of(end) for end in ("head", "target", "user", "item")]
        return [row for row in rows if row["by"] in names]


def parts(
    queries: LinkQueries,
    rankings: Mapping[str, LinkRanking],
    ends: Sequence[tuple[int, int]] = (),
    labels: NodeLabels | None = None,
    windows: TimeWindows | None = None,
) -> list[dict[str, Any]]:
    """Rows of ``by`` (what parts the queries), ``part``, ``queries`` and ``mrr`` by scorer; parts without a query have none.

    A query for heads is one for the tails of an inverse relation, so its *target* is the head of the link. ``ends``: by
    relation number, the global numbers of the first head and target, for ``labels``.
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
    if labels:
        nodes = [
            (relation.heads + ends[relation.relation][0], relation.targets + ends[relation.relation][1])
            for relation in ranked
        ]
        for place, end in enumerate(("head", "target")):
            member = labels.member[np.concatenate([pair[place] for pair in nodes])]
            named = zip(labels.classes, member.T, strict=True)
            add(labels.title_of(end), named, MOST_PARTS)
    if windows:
        add(TIME, _numbered(windows.names(), windows.of_queries(queries)))
    return table.rows


def item_parts(
    pairs: tuple[Int64, Int64],
    hits: Mapping[str, NDArray[Any]],
    k: int,
    links: tuple[NDArray[Any], NDArray[Any]],
    ends: tuple[int, int],
    labels: NodeLabels | None = None,
    windows: tuple[Sequence[str], Int64] | None = None,
) -> list[dict[str, Any]]:
    """Rows as of :func:`parts`, with ``hits@k`` by scorer. ``pairs`` int64 [Q] each: held-out users and items, by local
    numbers. ``hits`` [Q] by scorer: whether the item is among the first k, or the chance of it where scores are equal.
    ``links``: training interactions of each user and item. ``ends``: the global number of the first user and item.
    ``windows``: their names, and that of each pair."""
    table = _Parts(f"hits@{k}", {who: hit.astype(np.float64) for who, hit in hits.items()})
    for end, nodes, count in zip(("user", "item"), pairs, links, strict=True):
        table.add(f"training interactions of the {end}", _bins(count[nodes]))
    if labels:
        for end, nodes, first in zip(("user", "item"), pairs, ends, strict=True):
            member = labels.member[nodes + first].T
            table.add(labels.title_of(end), zip(labels.classes, member, strict=True), MOST_PARTS)
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
