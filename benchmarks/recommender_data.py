"""Typed graphs for the benchmarks of recommenders: public interactions with their features, or the shape of a data set."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.interactions import RELATION
from graphmill.ingest.tables import feature_key, features_schema

SHAPES = {"music4all": (14_125, 80_735, 5_058_234, {"audio": 1024, "text": 384})}
"""Users, items, interactions and widths of features; everything random."""
KNOWLEDGE_SHAPES = {"book": (17_860, 14_967, 62_936, 151_623, 25, 61_000)}
"""Users, items, other entities, facts, relations, training interactions; everything random."""
FILES = {"movies": "ml-latest-small/ml-latest-small.txt.gz", "sports": "amazon-sports-seq/Sports.sasrec.txt.gz"}
RANDOM_FEATURES = {"baby": {"image": 4096, "text": 384}}


def root() -> Path:
    """Where the public data sets are."""
    return Path(os.environ.get("GRAPHMILL_DATASETS", Path(__file__).resolve().parents[2] / "shared" / "datasets"))


def data_file(name: str) -> Path:
    """One of :data:`FILES` among the public data sets."""
    return root() / FILES[name]


def knowledge_graph(data: str, folder: Path) -> TypedGraph:
    """Interactions and facts of one of :data:`KNOWLEDGE_SHAPES`."""
    from graphmill.ingest.user_items import ENTITY, ITEM, USER, edge_table, interaction_edges, node_table, numbers

    users, items, others, facts, relations, count = KNOWLEDGE_SHAPES[data]
    rng = np.random.default_rng(0)
    nodes = node_table([(USER, numbers(users)), (ITEM, numbers(items)), (ENTITY, numbers(others))], data)
    pairs = np.stack((rng.integers(0, users, count), (items * rng.random(count) ** 2).astype(np.int64)))
    total = items + others
    triples = np.stack(((total * rng.random(facts) ** 2).astype(np.int64), rng.integers(0, total, facts)))
    kinds = rng.integers(0, relations, facts)
    names = [f"r{i}" for i in range(relations)]
    known = edge_table(triples[0] + users, triples[1] + users, np.zeros(facts), kinds, names)
    edges = pa.concat_tables([interaction_edges(pairs[0], pairs[1], np.zeros(count), users), known])
    edges = edges.unify_dictionaries().combine_chunks()
    return build_graph(nodes, edges, GraphSettings(add_reverse="never"), folder)


def graph_of(data: str, folder: Path) -> TypedGraph:
    """``tiktok`` (its own features), ``baby`` (seeded random features: for time only), or one of :data:`SHAPES`."""
    rng = np.random.default_rng(0)
    if data in SHAPES:
        users, items, count, widths = SHAPES[data]
        # Popularity falls off as in real data, without its ties.
        rows = np.stack((rng.integers(0, users, count), (items * rng.random(count) ** 2).astype(np.int64)))
        pairs = np.unique(rows[0] * items + rows[1])
        split = rng.choice(3, len(pairs), p=(0.8, 0.1, 0.1))
        user, item = np.divmod(pairs, items)
    else:
        with gzip.open(root() / data / f"{data}.inter.gz") as file:
            table = np.loadtxt(file, skiprows=1, dtype=np.int64)
        user, item, split = table[:, 0], table[:, 1], table[:, -1]
        users, items, widths = int(user.max()) + 1, int(item.max()) + 1, RANDOM_FEATURES.get(data, {})
    features = {name: rng.normal(size=(items, width)).astype(np.float32) for name, width in widths.items()}
    if data == "tiktok":
        for name in ("image", "audio"):
            with gzip.open(root() / data / f"{name}_feat.npy.gz") as file:
                features[name] = np.load(io.BytesIO(file.read())).astype(np.float32)
    return _build(users, items, user, item, split, features, folder)


def _build(
    users: int,
    items: int,
    user: np.ndarray,
    item: np.ndarray,
    split: np.ndarray,
    features: dict[str, np.ndarray],
    folder: Path,
) -> TypedGraph:
    kinds = np.repeat(["user", "item"], [users, items])
    ids = np.concatenate((np.arange(users), np.arange(items)))
    names = np.char.add(np.where(kinds == "user", "u", "i"), ids.astype(str))
    nodes = pa.table(
        {
            "index": pa.array(np.arange(len(kinds))),
            "id": pa.array(names.tolist()),
            "type": pa.array(kinds.tolist()).dictionary_encode(),
            "name": pa.array(names.tolist()),
            "source": pa.array(["benchmark"] * len(kinds)).dictionary_encode(),
        }
    )
    relation = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(user), np.int32)), pa.array([RELATION]))
    edges = pa.table(
        {
            "relation": relation,
            "display_relation": relation,
            "head": pa.array(user.astype(np.int32)),
            "tail": pa.array((item + users).astype(np.int32)),
            "split": pa.array(split.astype(np.uint8)),
        }
    )
    tables = {}
    for name, values in features.items():
        own = pa.array(np.arange(users, users + items, dtype=np.int32))
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        tables[feature_key("item", name)] = pa.table([own, vectors], features_schema(values.shape[1]))
    return build_graph(nodes, edges, GraphSettings(add_reverse="never"), folder, tables)
