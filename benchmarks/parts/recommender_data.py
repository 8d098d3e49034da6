"""Public files of interactions, and a made-up knowledge graph of a data set's shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.parts.card import DATASETS
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph

KNOWLEDGE_SHAPES = {"book": (17_860, 14_967, 62_936, 151_623, 25, 61_000)}
"""Users, items, other entities, facts, relations, training interactions; everything random."""
FILES = {"movies": "ml-latest-small/ml-latest-small.txt.gz", "sports": "amazon-sports-seq/Sports.sasrec.txt.gz"}


def data_file(name: str) -> Path:
    """One of :data:`FILES` among the public data sets."""
    return DATASETS / FILES[name]


def knowledge_graph(data: str, folder: Path) -> TypedGraph:
    """Interactions and facts of one of :data:`KNOWLEDGE_SHAPES`."""
    from graphmill.ingest.interactions import ENTITY, ITEM, USER, edge_table, interaction_edges, node_table, numbers

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
