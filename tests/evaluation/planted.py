"""Small graphs with a planted rule, whose held-out links can be drawn at random instead, and what chance gives there.

``links``: 64 nodes in 8 groups; all nodes of a group are linked, in both directions. ``items``: 96 users and 32 items
in 4 groups; each user met 7 of the 8 items of the group, in the order of a circle, and dislikes the eighth. The first
group has half of the users, so that its items are popular. The items have features and facts that tell the group; one
more item is in nothing at all.
Each node and each user has one validation and one test link. The rest is trained.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import TEST, TRAIN, VALID
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import EDGES, NO_PLACE, NO_TIME, feature_key, features_schema

Kind = Literal["links", "items"]
NODES, GROUP = 64, 8
USERS, ITEMS = (48, 24, 16, 8), 32
UNKNOWN = f"item{ITEMS}"
CANDIDATES = {"links": NODES - 6, "items": ITEMS - 5}
"""Candidates of a query: all but those of its other known links."""
QUERIES = {"links": NODES, "items": sum(USERS)}
_GAIN = {"mrr": lambda rank, k: 1 / rank, "recall": lambda rank, k: rank <= k, "hr": lambda rank, k: rank <= k}


def planted_graph(kind: Kind, out: Path, shuffled: bool = False) -> TypedGraph:
    """The graph. ``shuffled``: its held-out links are random ones instead; nodes and training links are the same."""
    return (_link_graph if kind == "links" else _item_graph)(out, shuffled)


def measured(metrics: dict[str, float]) -> tuple[str, float]:
    """The metric that is compared with chance, and its value: that of the fewest places, if there are several."""
    names = [name for name in metrics if re.fullmatch(r"mrr|(recall|hr)@\d+", name)]
    chosen = min(names, key=lambda name: int(name.partition("@")[2] or 0))
    return chosen, metrics[chosen]


def chance(kind: Kind, metric: str) -> tuple[float, float]:
    """The expectation of a metric where all ranks are as likely, and its standard deviation over the queries."""
    name, _, k = metric.partition("@")
    ranks = np.arange(1, CANDIDATES[kind] + 1)
    gains = np.asarray(_GAIN[name](ranks, int(k or 0)), float)
    return float(gains.mean()), float(gains.std() / np.sqrt(QUERIES[kind]))


def leaking_graph(kind: Kind, out: Path) -> TypedGraph:
    """The graph with its test links also in training: reversed under another relation, or once more."""
    nodes, edges = (_link_tables if kind == "links" else _item_tables)(False)
    copy = edges.filter(pa.compute.equal(edges["split"], TEST))
    copy = copy.set_column(copy.column_names.index("split"), "split", pa.array([TRAIN] * len(copy), pa.uint8()))
    if kind == "links":
        names = pa.array(["inverse"] * len(copy)).dictionary_encode()
        ends = {"head": copy["tail"], "tail": copy["head"], "relation": names, "display_relation": names}
        copy = pa.table({name: ends.get(name, copy[name]) for name in copy.column_names})
    return _built(nodes, pa.concat_tables([edges, copy]).unify_dictionaries(), out, {})


# -- tables ----------------------------------------------------------------------------------------------------------


def _link_graph(out: Path, shuffled: bool) -> TypedGraph:
    return _built(*_link_tables(shuffled), out, {})


def _link_tables(shuffled: bool) -> tuple[pa.Table, pa.Table]:
    rows: list[tuple[int, int, int]] = []
    for first in range(0, NODES, GROUP):
        for number in range(GROUP - 1):  # the rounds of a tournament: each node meets another in each
            split = (TEST, VALID, *[TRAIN] * 5)[number]
            pairs = [(GROUP - 1, number)] + [((number + step) % 7, (number - step) % 7) for step in (1, 2, 3)]
            rows += [(first + a, first + b, split) for a, b in (*pairs, *(pair[::-1] for pair in pairs))]
    if shuffled:
        rows = [row for row in rows if row[2] == TRAIN] + _random(rows, np.arange(NODES), np.arange(NODES))
    return _nodes({"node": NODES}), _edges([("linked", *row, -1) for row in rows], places=False)


def _item_graph(out: Path, shuffled: bool) -> TypedGraph:
    rng = np.random.default_rng(5)
    first, features = sum(USERS), {}
    for name, width in (("image", 6), ("text", 5)):
        values = np.eye(8)[:4, :width][np.arange(ITEMS) // GROUP] + 0.1 * rng.normal(size=(ITEMS, width))
        item_rows = pa.array(np.arange(first, first + ITEMS, dtype=np.int32))
        columns = [item_rows, pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float32).reshape(-1)), width)]
        features[feature_key("item", name)] = pa.table(columns, features_schema(width))
    return _built(*_item_tables(shuffled), out, features)


def _item_tables(shuffled: bool) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(5)
    groups, first = np.repeat(np.arange(4), USERS), sum(USERS)
    rows: list[tuple[int, int, int]] = []
    disliked = []
    for user, group in enumerate(groups.tolist()):
        start = int(rng.integers(GROUP))
        *met, last = [first + group * GROUP + (start + step) % GROUP for step in range(8)]
        disliked.append(("disliked", user, last, TRAIN, -1))
        rows += [(user, item, split) for item, split in zip(met, (*[TRAIN] * 5, VALID, TEST), strict=True)]
    if shuffled:
        held_out = _random(rows, np.arange(len(groups)), first + np.arange(ITEMS))
        rows = sorted([row for row in rows if row[2] == TRAIN] + held_out, key=lambda row: (row[0], row[2]))
    placed = [("interacted", *row, number % 7) for number, row in enumerate(rows)]
    facts = [("genre", first + item, first + ITEMS + 1 + item // GROUP, TRAIN, -1) for item in range(ITEMS)]
    return _nodes({"user": first, "item": ITEMS + 1, "entity": 4}), _edges([*placed, *facts, *disliked], places=True)


def _random(rows: list[tuple[int, int, int]], heads: np.ndarray, tails: np.ndarray) -> list[tuple[int, int, int]]:
    """A validation and a test link of each head to tails that are equally likely, without its training links."""
    rng = np.random.default_rng(7)
    trained = {(head, tail) for head, tail, split in rows if split == TRAIN}
    result = []
    for head in heads.tolist():
        free = [int(tail) for tail in tails if tail != head and (head, tail) not in trained]
        valid, test = rng.choice(free, 2, replace=False).tolist()
        result += [(head, valid, VALID), (head, test, TEST)]
    return result


def _nodes(counts: dict[str, int]) -> pa.Table:
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    ids = [f"{kind}{number}" for kind, count in counts.items() for number in range(count)]
    return pa.table(
        {
            "index": pa.array(range(len(ids)), pa.int64()),
            "id": pa.array(ids),
            "type": pa.array(kinds).dictionary_encode(),
            "name": pa.array(ids),
            "source": pa.array(["planted"] * len(ids)).dictionary_encode(),
        }
    )


def _edges(rows: list[tuple[str, int, int, int, int]], *, places: bool) -> pa.Table:
    names = pa.array([row[0] for row in rows]).dictionary_encode()
    columns: dict[str, Any] = {
        "relation": names,
        "display_relation": names,
        "head": pa.array([row[1] for row in rows], pa.int32()),
        "tail": pa.array([row[2] for row in rows], pa.int32()),
        "split": pa.array([row[3] for row in rows], pa.uint8()),
    }
    assert list(columns)[:4] == EDGES.names
    if places:
        columns["position"] = pa.array([row[4] if row[4] >= 0 else NO_PLACE for row in rows], pa.int32())
        columns["timestamp"] = pa.array([86_400 * (row[4] + 1) if row[4] >= 0 else NO_TIME for row in rows], pa.int64())
    return pa.table(columns)


def _built(nodes: pa.Table, edges: pa.Table, out: Path, features: dict[str, pa.Table]) -> TypedGraph:
    return build_graph(nodes, edges, GraphSettings(add_reverse="never"), out, features)
