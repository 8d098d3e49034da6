"""Graphs of a real size, made up: typed, triples, interactions with knowledge and features, sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.interactions_csv import read_sequence
from graphmill.ingest.tables import feature_key, features_schema


def nodes(counts: dict[str, int]) -> pa.Table:
    types = np.repeat(list(counts), list(counts.values())).tolist()
    ids = pa.array([f"n{i}" for i in range(len(types))])
    source = pa.array(["made up"] * len(types)).dictionary_encode()
    index = pa.array(range(len(types)), pa.int64())
    return pa.table(
        {"index": index, "id": ids, "type": pa.array(types).dictionary_encode(), "name": ids, "source": source}
    )


def edges(names: list[str], head: np.ndarray, tail: np.ndarray, split: np.ndarray | None = None) -> pa.Table:
    kind = pa.array(names).dictionary_encode()
    columns = {
        "relation": kind,
        "display_relation": kind,
        "head": pa.array(head, pa.int32()),
        "tail": pa.array(tail, pa.int32()),
    }
    return pa.table(columns if split is None else columns | {"split": pa.array(split, pa.uint8())})


def ends(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    return (rng.random(size) ** 1.5 * count).astype(np.int64)


def typed(folder: Path, total: int, links: int, relations: int) -> Any:
    """Five types; ``links`` undirected links over ``relations`` / 2 relations, each in both directions."""
    rng, shares = np.random.default_rng(0), (0.35, 0.25, 0.2, 0.15, 0.05)
    counts = {f"t{n}": max(int(total * share), 8) for n, share in enumerate(shares)}
    first = dict(zip(counts, np.cumsum([0, *counts.values()][:-1]), strict=True))
    names: list[str] = []
    head, tail = [], []
    for number in range(relations // 2):
        s, t = f"t{number % 5}", f"t{(number + number // 5) % 5}"
        h, u = ends(rng, counts[s], links // relations) + first[s], ends(rng, counts[t], links // relations) + first[t]
        kept = h != u
        names += [f"r{number}"] * int(kept.sum())
        head.append(h[kept])
        tail.append(u[kept])
    return build_graph(
        nodes(counts),
        edges(names, np.concatenate(head), np.concatenate(tail)),
        GraphSettings(),
        folder / f"typed{total}",
    )


def triples(folder: Path, entities: int, relations: int, count: int) -> Any:
    rng = np.random.default_rng(1)
    h, t, r = ends(rng, entities, count), ends(rng, entities, count), ends(rng, relations, count)
    kept = h != t
    return build_graph(
        nodes({"entity": entities}),
        edges([f"r{x}" for x in r[kept]], h[kept], t[kept]),
        GraphSettings(),
        folder / "triples",
    )


def interactions(folder: Path, users: int, items: int, pairs: int, facts: int, width: int) -> Any:
    rng, entities = np.random.default_rng(2), max(items // 2, 8)
    key = np.unique(rng.integers(0, users, pairs) * items + ends(rng, items, pairs))
    u, i = key // items, key % items
    fact = np.unique(rng.integers(0, items, facts) * entities + ends(rng, entities, facts))
    head = np.concatenate((u, users + fact // entities))
    tail = np.concatenate((users + i, users + items + fact % entities))
    names = ["interacted"] * len(u) + [f"f{x}" for x in fact % 9]
    split = np.concatenate((rng.choice(3, len(u), p=(0.8, 0.1, 0.1)), np.zeros(len(fact), int)))
    ours, features = pa.array(np.arange(users, users + items, dtype=np.int32)), {}
    for name, f in (("image", width), ("text", max(width // 2, 4))):
        values = pa.array(rng.normal(size=items * f).astype(np.float32))
        features[feature_key("item", name)] = pa.table(
            [ours, pa.FixedSizeListArray.from_arrays(values, f)], features_schema(f)
        )
    counts = {"user": users, "item": items, "entity": entities}
    return build_graph(
        nodes(counts), edges(names, head, tail, split), GraphSettings(add_reverse="never"), folder / "pairs", features
    )


def sequences(folder: Path, users: int, items: int, most: int) -> Any:
    rng, lines = np.random.default_rng(3), []
    for user in range(users):
        length = int(rng.integers(3, most))
        chosen, times = ends(rng, items, length), np.cumsum(rng.integers(1, 900, length))
        lines += [f"u{user} i{i} {t}\n" for i, t in zip(chosen, times, strict=True)]
    path = folder / "sequences.txt"
    path.write_text("".join(lines))
    tables = read_sequence(path)
    return build_graph(tables.nodes, tables.edges, GraphSettings(), folder / "sequences")
