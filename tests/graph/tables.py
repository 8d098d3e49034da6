"""Small tables to build graphs from."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

CATEGORY = pa.dictionary(pa.int32(), pa.string())


def nodes_table(types: Sequence[str], ids: Sequence[str] | None = None) -> pa.Table:
    """One node per entry of ``types``; row i has index 100 + i."""
    rows = range(len(types))
    return pa.table(
        {
            "index": pa.array([100 + i for i in rows], pa.int64()),
            "id": pa.array(ids or [f"id{i}" for i in rows], pa.string()),
            "type": pa.array(list(types), pa.string()).cast(CATEGORY),
            "name": pa.array([f"node {i}" for i in rows], pa.string()),
            "source": pa.array(["test"] * len(types), pa.string()).cast(CATEGORY),
        }
    )


def edges_table(triples: Sequence[tuple[str, int, int]], **columns: Any) -> pa.Table:
    """``(relation, head row, tail row)`` each; other columns as given (``display_relation``: the relation)."""
    relation = [name for name, _, _ in triples]
    table = {
        "relation": pa.array(relation, pa.string()).cast(CATEGORY),
        "display_relation": pa.array(columns.pop("display_relation", relation), pa.string()).cast(CATEGORY),
        "head": pa.array([head for _, head, _ in triples], pa.int32()),
        "tail": pa.array([tail for _, _, tail in triples], pa.int32()),
    }
    kinds = {"split": pa.uint8(), "weight": pa.float32(), "timestamp": pa.int64()}
    return pa.table(table | {name: pa.array(values, kinds[name]) for name, values in columns.items()})


def random_tables(
    seed: int, counts: Mapping[str, int], relations: Mapping[str, tuple[str, str, int]]
) -> tuple[pa.Table, pa.Table]:
    """``counts`` nodes per type; per relation (source type, target type, edges) distinct random edges, written once.

    Within one type an edge goes from the lower to the higher row, so that none is another's reverse or a self loop.
    """
    rng = np.random.default_rng(seed)
    first = dict(zip(counts, np.cumsum([0, *counts.values()]), strict=False))
    triples: list[tuple[str, int, int]] = []
    for name, (source, target, edges) in relations.items():
        s, t = np.divmod(np.arange(counts[source] * counts[target]), counts[target])
        if source == target:
            s, t = s[s < t], t[s < t]
        pick = rng.choice(len(s), edges, replace=False)
        triples += [(name, int(first[source] + s[i]), int(first[target] + t[i])) for i in pick]
    order = rng.permutation(len(triples))
    return nodes_table([t for t, n in counts.items() for _ in range(n)]), edges_table([triples[i] for i in order])


def both_directions(edges: pa.Table) -> pa.Table:
    """``edges`` and the reverse of each."""
    columns = ["tail" if c == "head" else "head" if c == "tail" else c for c in edges.column_names]
    return pa.concat_tables([edges, edges.rename_columns(columns).select(edges.column_names)])
