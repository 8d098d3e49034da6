"""People who join after the training: how well they are recommended to from their history, and after a retraining.

``python -m benchmarks.fold_in --json`` hides a tenth of the users, trains on the others, and folds the hidden ones in from
their training interactions (``graphmill recommend --history``). Their held-out items are ranked by that and by the same
settings trained on everybody: MF and LightGCN on last-fm (a random split of each user's items, recall@20), SASRec
on the movies (leave-one-out, HR@10, the validation item being part of the history).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.parts import card
from benchmarks.parts.later_nodes import TARGET, ends_of, tables_of
from benchmarks.sequence_quality import SETTINGS
from graphmill.graph.build import build_graph
from graphmill.graph.interactions import interaction_relation
from graphmill.graph.settings import GraphSettings
from graphmill.graph.splits import TEST, TRAIN
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.public_readers import read_interactions
from graphmill.runs.export import restore
from graphmill.runs.resolve import merge, read_settings
from graphmill.runs.train import train
from graphmill.usage.recommendations import recommend_history

SHARE = 0.1
EXAMPLES = card.ROOT / "examples" / "recommenders"
SYSTEMS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "mf": ("last-fm", 20, read_settings(EXAMPLES / "last_fm_mf_bpr.yaml")),
    "lightgcn": ("last-fm", 20, {**read_settings(EXAMPLES / "music_lightgcn.yaml"), "training": {"epochs": 100}}),
    "sasrec": ("movies", 10, merge(SETTINGS["movies"], {"system": "sasrec", "training": {"epochs": 60}})),
}
"""Data, cut-off and settings."""


def graph_of(data: str, folder: Path) -> TypedGraph:
    """last-fm's interactions and facts with a split of their own, or the movies' sequences."""
    if data == "movies":
        from benchmarks.parts.recommender_data import data_file

        tables = read_interactions(data_file(data), "sequence")
        return build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), folder)
    tables = read_interactions(card.DATASETS / "last-fm-hetrec" / "kgat", "kgat")
    split = {"method": "random", "given": "redraw", "valid": 0.1, "test": 0.2}
    settings = GraphSettings.model_validate({"add_reverse": "never", "split": split})
    return build_graph(tables.nodes, tables.edges, settings, folder)


def held_out(graph: TypedGraph, hidden: np.ndarray) -> dict[str, set[str]]:
    """Ids of the test items of each hidden user that has training interactions."""
    relation = interaction_relation(graph)
    edges, ids = graph.edges(relation), graph.node_table()["id"].to_pylist()
    first, second = graph.node_type(relation.source).offset, graph.node_type(relation.target).offset
    split, src = np.asarray(edges.split), np.asarray(edges.src)
    warm = np.bincount(src[split == TRAIN], minlength=graph.node_type(relation.source).count) > 0
    request: dict[str, set[str]] = {}
    for user, item in zip(src[split == TEST].tolist(), np.asarray(edges.dst)[split == TEST].tolist(), strict=True):
        if hidden[user + first] and warm[user]:
            request.setdefault(ids[user + first], set()).add(ids[item + second])
    return request


def recall(lists: dict[str, list[str]], held_items: dict[str, set[str]]) -> float:
    """Mean over users of the part of their held-out items in their list."""
    return float(np.mean([len(items & set(lists.get(user, []))) / len(items) for user, items in held_items.items()]))


def measure(graph: TypedGraph, values: dict[str, Any], k: int, folder: Path, seed: int = 0) -> dict[str, Any]:
    """Recall@k of hidden users' test items by folding in and by a retraining, which is made once in ``folder``."""
    relation = interaction_relation(graph)
    users = graph.node_type(relation.source)
    hidden = np.zeros(graph.num_nodes, bool)
    hidden[users.offset : users.offset + users.count] = np.random.default_rng(seed).random(users.count) < SHARE
    heads, tails, split = ends_of(graph)
    touched = hidden[heads] | hidden[tails]
    request = held_out(graph, hidden)
    sequential = values["system"] in ("sasrec", "tisasrec")
    rest = tables_of(graph, ~hidden, ~touched, split=True)
    settings = GraphSettings(include_node_types=[t.name for t in graph.node_types], add_reverse="never")
    smaller = build_graph(rest.nodes, rest.edges, settings, folder / f"smaller-{seed}")
    before = restore(
        train({**values, "data": str(smaller.path)}, "fold_in", root=str(folder / f"before-{seed}"))["run_dir"]
    )
    # What may be known when the test item is asked for.
    history = touched & (split != TEST) if sequential else touched & (split == TRAIN)
    nodes = np.zeros(graph.num_nodes, bool)
    nodes[heads[history]] = nodes[tails[history]] = True
    about = recommend_history(
        before, tables_of(graph, nodes, history, split=False), "history", k, output=folder / "a.parquet"
    )
    lists: dict[str, list[str]] = {}
    for row in pq.read_table(folder / "a.parquet").to_pylist():
        lists.setdefault(row["user_id"], []).append(row["item_id"])
    whole = restore(train({**values, "data": str(graph.path)}, "fold_in", root=str(folder / "after"))["run_dir"])
    again = _retrained(whole, graph, history, heads, tails, sorted(request), k)
    return {"ours": recall(lists, request), "theirs": recall(again, request), "users": len(request), **about}


def _retrained(
    whole: Any, graph: TypedGraph, history: np.ndarray, heads: np.ndarray, tails: np.ndarray, users: list[str], k: int
) -> dict[str, list[str]]:
    """The ``k`` best items of users by the model that was trained with them, without those of their history."""
    relation = interaction_relation(graph)
    user_type, items = graph.node_type(relation.source), graph.node_type(relation.target)
    ids = graph.node_table()["id"].to_pylist()
    place = {ids[user_type.offset + n]: n for n in range(user_type.count)}
    numbers = np.array([place[user] for user in users], np.int64)
    if hasattr(whole.system, "view"):
        scores = whole.system.scorer(whole.model).of_users(numbers).cpu().numpy().copy()
    else:
        sequences = whole.system.data.sequences
        ends = {int(u): int(a) for u, a in zip(*sequences.targets("test"), strict=True)}
        stops = np.array([ends[int(u)] for u in numbers])
        scores = whole.system.score_at(whole.model, lambda: None)(numbers, stops).cpu().numpy().copy()
    row = {int(n): r for r, n in enumerate(numbers)}
    for user, item in zip(
        (heads[history] - user_type.offset).tolist(), (tails[history] - items.offset).tolist(), strict=True
    ):
        if user in row:
            scores[row[user], item] = -np.inf
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return {user: [ids[items.offset + n] for n in best[r]] for r, user in enumerate(users)}


def main() -> None:
    """Run and write results/fold_in.json."""
    if card.handed_over({"nodes": "later_nodes", "snapshots": "snapshots", "attributes": "attributes"}):
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="a draw of hidden users each")
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    command = f"python -m benchmarks.fold_in --json --seeds {' '.join(map(str, options.seeds))}"
    for name in options.systems:
        data, k, values = SYSTEMS[name]
        with tempfile.TemporaryDirectory() as temporary:
            graph = graph_of(data, Path(temporary) / "graph")
            result = [measure(graph, values, k, Path(temporary), seed) for seed in options.seeds]
        users = [each["users"] for each in result]
        ours, theirs = (float(np.average([each[who] for each in result], weights=users)) for who in ("ours", "theirs"))
        how = sorted({each.get("fold_in", "the history alone") for each in result})
        note = f"{sum(users):,} hidden users of {len(users)} draws; {', '.join(how)}"
        where, metric = f"{name} {data}", f"recall@{k}"
        row = card.row(where, metric, "", ours, rival="retraining", theirs=theirs, target=TARGET, note=note)
        print(row, result, flush=True)
        if options.json:
            print(card.store("fold_in", row, command), flush=True)


if __name__ == "__main__":
    main()
