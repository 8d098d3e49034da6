"""The asset ``<dataset>/<model>_recommendations``: the best items of every user; new items only, unless users repeat
items."""

from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.components.plan import ModelPlan, RecommendationSettings, Reference
from graphmill.components.worker_asset import Step, WorkerAsset
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.interactions import ITEM, RELATION, USER
from graphmill.orchestration.checks import Check
from graphmill.orchestration.io_managers import REMEDY
from graphmill.orchestration.metadata import markdown_table, parquet_file, records, scalars
from graphmill.parquet import ParquetTable

COLUMNS = {
    "user_id": "the user's id, unchanged",
    "user_name": "the user's name, if the data has one",
    "rank": "1 is the best",
    "item_id": "the item's id, unchanged",
    "item_name": "the item's name, if the data has one",
    "score": "the model's score; compare it only among the items of one user",
}
COMPLETE = Check(
    "users_have_items",
    "Every user gets recommendations.k items. If not: some users have too few new items; lower recommendations.k.",
)
VARIED = Check(
    "users_differ",
    "Users get different items. If all get the same: the model has learnt popularity; see the ranking.",
)
EXAMPLE_USERS, EXAMPLE_ITEMS = 8, 5
"""Users in the asset's table, spread over all users, and items of each; the file has all of them."""
RECENT = 3
MOST_RECOMMENDED = 15


def recommendations_asset(plan: ModelPlan) -> WorkerAsset:
    """The asset of recommendations. The worker writes ``recommendations.parquet`` into the run directory."""
    return WorkerAsset(
        part="recommendations",
        stage="release",
        kinds={"parquet", "markdown"},
        description=(
            f"The items that {plan.name} scores highest for every user of {plan.dataset}: see `how_to_load`, and `examples` "
            "to judge for yourself. Items that the user has already taken are left out (exclude_seen)."
        ),
        settings=plan.recommendations,
        checks=(COMPLETE, VARIED),
        job=lambda step: {"mode": "recommend", "run_dir": step.run_dir, **step.settings.model_dump()},
        page=_page,
    )


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    result, settings = step.report.result, step.settings
    file = str(result["file"])
    table = ParquetTable(step.path(file), remedy=REMEDY).read()
    graph = TypedGraph.open(step.path(str(step.inputs["export"]["graph"]["path"])))
    users, items = int(result["users"]), graph.node_type(ITEM).count
    counted = sorted(pc.value_counts(table["item_id"]).to_pylist(), key=lambda row: (-row["counts"], row["values"]))
    full = int((table["rank"].to_numpy() == settings.k).sum())
    most = counted[0]["counts"] if counted else 0
    figures = {
        "users": users,
        "items_recommended": len(counted),
        "catalogue_coverage": len(counted) / max(items, 1),
        "most_recommended_share": most / max(users, 1),
    }
    names = _Names(graph)
    popular = [
        {"item": names.of(ITEM, row["values"]), "users": row["counts"], "of_users": row["counts"] / users}
        for row in counted[:MOST_RECOMMENDED]
    ]
    rest = {
        "k": settings.k,
        **({"notes": "; ".join(result["notes"])} if "notes" in result else {}),
        "examples": dg.MetadataValue.md(markdown_table(_examples(table, names, settings))),
        "most_recommended": records(popular),
        **parquet_file(step.plan.root, file, COLUMNS),
    }
    summary = (
        f"{settings.k} items for each of {users:,} users. {len(counted):,} of {items:,} items are recommended to "
        f"somebody; the most frequent one to {most / max(users, 1):.0%} of the users."
    )
    varied = f"{len(counted):,} of {items:,} items are recommended to somebody"
    return step.result(
        {"run_dir": step.run_dir, "file": file},
        step.page(summary, rest, plotted=scalars(figures)),
        [
            step.check(COMPLETE, full == users, f"{full:,} of {users:,} users have {settings.k} items", "warn"),
            step.check(VARIED, most < users or len(counted) > settings.k, varied),
        ],
    )


class _Names:
    """Names of users and items by id, and the items of each user, in order if there is one."""

    def __init__(self, graph: TypedGraph) -> None:
        nodes = graph.node_table()
        self._graph, self._ids, self._labels = graph, nodes["id"], nodes["name"]
        relation = next(r for r in graph.relations if (r.source, r.name, r.target) == (USER, RELATION, ITEM))
        self._edges = edges = graph.edges(relation)
        self._order = edges.position if edges.position is not None else edges.timestamp
        self.met_as = "has met, among others" if self._order is None else "met last"
        """The label of :meth:`met`."""

    def _local(self, kind: str, node: str) -> int:
        of = self._graph.node_type(kind)
        return int(pc.index(self._ids.slice(of.offset, of.count), node).as_py())

    def _named(self, kind: str, local: int) -> str:
        at = self._graph.node_type(kind).offset + local
        node, label = self._ids[at].as_py(), self._labels[at].as_py()
        return str(label) if label == node else f"{label} ({node})"

    def of(self, kind: str, node: str) -> str:
        """The name of the user or item with the id, or the id alone."""
        return self._named(kind, self._local(kind, node))

    def met(self, node: str) -> list[str]:
        """The user's last items, the newest last; without an order, the user's most popular items."""
        rows = np.flatnonzero(np.asarray(self._edges.src) == self._local(USER, node))
        items = np.asarray(self._edges.dst)[rows]
        by = np.diff(self._edges.indptr)[items] if self._order is None else np.asarray(self._order)[rows]
        return [self._named(ITEM, int(item)) for item in items[np.argsort(by, kind="stable")][-RECENT:]]


def _examples(table: pa.Table, names: _Names, settings: RecommendationSettings) -> list[dict[str, Any]]:
    """Example users, spread over all users, with their items and their recommendations with scores."""
    first = np.flatnonzero(table["rank"].to_numpy() == 1)
    chosen = first[np.unique(np.linspace(0, len(first) - 1, min(EXAMPLE_USERS, len(first))).astype(int))]
    rows = []
    for start in chosen.tolist():
        user = table["user_id"][start].as_py()
        rows_of = table.slice(start, settings.k).filter(pc.field("user_id") == user).slice(0, EXAMPLE_ITEMS).to_pylist()
        best = ", ".join(f"{names.of(ITEM, row['item_id'])} ({row['score']:.2f})" for row in rows_of)
        met = ", ".join(names.met(user))
        rows.append({"user": names.of(USER, user), names.met_as: met, "recommended (score)": best})
    return rows
