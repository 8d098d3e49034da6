"""Two ways to follow a graph that grows, beside a fresh training: ``python -m benchmarks.fold_in snapshots``.

``months``: ml-latest-small, one of its last twelve months after the other. A snapshot has every rating up to the end of
its month; the newest fifth of each user's ratings in that month is the test, a twentieth of the others validation. ``mf``
by defaults: trained fresh; started from the month before for the default epochs of ``follow``; and not trained at all,
the users and films since the month before the first folded in (``recommend --history``). ``relations``: Hetionet's sample,
whose relations come in five parts, and ComplEx. Figures are of the test, and time is that of the user's CPU, one thread.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from benchmarks.parts import card
from graphmill.components.following import FollowSettings
from graphmill.evaluation.ranking.recommendation import KnownItems, set_metrics
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.public_readers import read_edges, read_interactions
from graphmill.runs.export import restore
from graphmill.runs.train import train
from graphmill.usage.recommendations import recommend_history

METRIC = {"mf": "ndcg@20", "complex": "mrr"}
COMMAND = "OMP_NUM_THREADS=1 python -m benchmarks.fold_in snapshots --json"


def trained(system: str, graph: Path, root: Path, seed: int, before: str = "") -> tuple[str, float, float]:
    """The run, its test figure, and the seconds of the user's CPU."""
    began = os.times().user
    warm = {"init_from": before, "epochs": FollowSettings().epochs} if before else {}
    values = {"system": system, "data": str(graph), "training": {"seed": seed, **warm}}
    values |= {"acceleration": {"device": "cpu"}, "evaluation": {"baselines": []}}
    outcome = train(values, "snapshots", root=str(root))
    return outcome["run_dir"], outcome["metrics"][f"test_{METRIC[system]}"], os.times().user - began


def months() -> list[pd.DataFrame]:
    """The month before the last twelve, and these: ratings with ``x_label`` 0 train, 1 validation, 2 test."""
    every = pd.read_csv(card.DATASETS / "ml-latest-small" / "ratings.csv.gz").sort_values("timestamp", kind="stable")
    every["month"] = pd.to_datetime(every["timestamp"], unit="s").dt.strftime("%Y-%m")
    every["draw"] = np.random.default_rng(0).random(len(every))
    outcome = []
    for month in sorted(every["month"].unique())[-13:]:
        upto = every[every["month"] <= month].copy()
        now = upto[upto["month"] == month]
        place = now.groupby("userId").cumcount(ascending=False)
        newest = place < np.floor(now.groupby("userId")["movieId"].transform("size") / 5)
        upto["x_label"] = np.where(upto["draw"] < 0.05, 1, 0)
        upto.loc[now.index[newest], "x_label"] = 2
        outcome.append(upto.rename(columns={"userId": "userID", "movieId": "itemID"}))
    return outcome


def folded(base: str, old: pd.DataFrame, new: pd.DataFrame, folder: Path) -> tuple[float, float]:
    """NDCG@20 of the test of ``new`` by folding what came since ``old`` into the run ``base``, and the seconds."""
    seen = old[old["x_label"] == 0].index
    since = new[(new["x_label"] == 0) & ~new.index.isin(seen)]
    since[["userID", "itemID", "timestamp"]].to_csv(folder / "since.csv", index=False)
    began = os.times().user
    tables = read_interactions(folder / "since.csv", "interactions_csv")
    recommend_history(restore(base), tables, "since.csv", 20, output=folder / "lists.parquet")
    seconds = os.times().user - began
    lists = pq.read_table(folder / "lists.parquet").to_pandas()
    test = new[new["x_label"] == 2].sort_values(["userID", "itemID"])
    users = test["userID"].unique()
    ranked = np.full((len(users), 20), -1, np.int64)
    for place, user in enumerate(users):
        ours = lists.loc[lists["user_id"] == str(user), "item_id"].astype(int).to_numpy()
        ranked[place, : len(ours)] = ours
    counts = test.groupby("userID").size().reindex(users).to_numpy()
    held = KnownItems(np.concatenate(([0], np.cumsum(counts))), test["itemID"].to_numpy())
    return set_metrics(ranked, held, np.arange(len(users)), [20])["ndcg@20"], seconds


def of_months(folder: Path, seed: int) -> list[dict[str, Any]]:
    """Figures and seconds of each month, by way."""
    settings, rows, last, base = GraphSettings.model_validate({"add_reverse": "never"}), [], "", ("", pd.DataFrame())
    for number, data in enumerate(months()):
        data[["userID", "itemID", "x_label"]].to_csv(folder / "kg.inter", sep="\t", index=False)
        tables = read_interactions(folder / "kg.inter", "mmrec", ids="names")
        graph = build_graph(tables.nodes, tables.edges, settings, folder / f"graph-{number}").path
        fresh = trained("mf", graph, folder / ("fresh" if number else "base"), seed)
        if not number:
            last, base = fresh[0], (fresh[0], data)
            continue
        warm = trained("mf", graph, folder / "warm", seed, last)
        last = warm[0]
        kept = folded(*base, data, folder)
        rows.append({"part": str(data["month"].max()), "fresh": fresh[1:], "warm": warm[1:], "embed only": kept})
        print(rows[-1], flush=True)
    return rows


def of_relations(folder: Path, seed: int) -> list[dict[str, Any]]:
    """Figures and seconds of the second to the last of five parts of the relations, the commonest first."""
    data = pd.read_csv(card.DATASETS / "hetionet" / "kg_5k.csv.gz", dtype=str, keep_default_na=False)
    names, rows, last = list(data["relation"].value_counts().index), [], ""
    for number in range(5):
        chosen = names[: (number + 1) * len(names) // 5]
        data[data["relation"].isin(chosen)].to_csv(folder / "kg.csv", index=False)
        tables = read_edges(folder / "kg.csv")
        graph = build_graph(tables.nodes, tables.edges, GraphSettings(), folder / f"relations-{number}").path
        fresh = trained("complex", graph, folder / "fresh", seed)
        warm = trained("complex", graph, folder / "warm", seed, last) if last else fresh
        last = warm[0]
        if number:
            rows.append({"part": f"{len(chosen)} relations", "fresh": fresh[1:], "warm": warm[1:]})
            print(rows[-1], flush=True)
    return rows


def rows_of(what: str, rows: list[dict[str, Any]]) -> list[card.Row]:
    """The mean figure of each way over that of the fresh trainings, and its share of their time."""
    results = []
    for way in [name for name in rows[0] if name not in ("part", "fresh")]:
        ratio, share = (sum(row[way][n] for row in rows) / sum(row["fresh"][n] for row in rows) for n in (0, 1))
        ratios = {row["part"]: row[way][0] / row["fresh"][0] for row in rows if row["fresh"][0]}
        note = f"worst {min(ratios.values()):.3f}, mean of ratios {np.mean([*ratios.values()]):.3f}; ratio of each: "
        note += ", ".join(f"{part} {each:.3f}" for part, each in ratios.items())
        note += "".join(f"; {row['part']}: {row[way][0]:.3f} over 0" for row in rows if row["part"] not in ratios)
        results += [
            card.row(
                f"{what}, {way}", "mean figure over a fresh training's", "", ratio, target="ours >= 0.97", note=note
            ),
            card.row(f"{what}, {way}", "time over a fresh training's", "", share, target="ours <= 0.25"),
        ]
    return results


def main() -> None:
    """Run and write results/snapshots.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["months", "relations"], help="one of both; without it, both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="write the results file")
    options = parser.parse_args()
    for what, measure in (("months", of_months), ("relations", of_relations)):
        if options.only not in (None, what):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            rows = measure(Path(temporary), options.seed)
        for result in rows_of(what, rows):
            print(result, flush=True)
            if options.json:
                print(card.store("snapshots", result, COMMAND), flush=True)


if __name__ == "__main__":
    main()
