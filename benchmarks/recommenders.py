"""``python -m benchmarks.recommenders --json``: KGAT's phases, full ranking, and what BPR-MF, KGAT and the floors reach.

Each figure comes from a fresh process: times on all threads, with the settings of graphmill's worker for both sides;
quality on one thread each, two processes at once. ``--only ROW`` measures some rows and leaves the others of
``benchmarks/results/recommenders.json`` as they are. Rows:

* ``step``: KGAT's phases beside :mod:`benchmarks.naive.kgat`, a stand-in for public code, in turn
* ``large``: the same at amazon-book's shape, ours beside the time in which its bytes can be moved
* ``evaluation``: full ranking of equal scores beside the two usual ways of doing it
* ``floors``: the product's own (popularity, item-kNN, EASE, BPR-MF) on tiktok, baby and last-fm, settings by validation, and
  the seconds of finding them on all threads
* ``starts``: the two factorisations by themselves that KGAT starts from there, three seeds each
* ``kgat``: last-fm by the public implementation's protocol and settings (whole train, 145 epochs at 0.001, test read once),
  started from BPR-MF's vectors; ``kgat_own``: the same from those of a sampled softmax, and with two settings of our own;
  ``kgat_valid``: all with a tenth of train held out, by which the epoch is chosen; three seeds each
* ``kgat_masked``: the rival's settings and our own with a step's pairs left out of its propagation, by both protocols
* ``baby``: KGAT without knowledge on baby, in the same way, 60 epochs of batches of 4,096, three seeds
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.card import Row, as_a_worker, fresh, in_turn, row, store
from benchmarks.kgat_step import DIMS
from graphmill.training.device import allowed_cores

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
STEP = "benchmarks.kgat_step"
EPOCH_TARGETS = {"last-fm": 6.0, "book": 3.0}
RECORDED = {"last-fm": 3.2, "book": 41.7}
"""Seconds an epoch of the public implementation took once on two threads, with its memory settings tuned."""
LAST_FM_TARGET = 0.389
RIVAL = 0.3463
"""Best of the public implementation's epochs, chosen on the test, without pretrained vectors."""
SEEDS = (0, 1, 2)
START, EPOCHS = {"regularisation": 0.03, "negatives_per_positive": 4}, 180
"""The best factorisation by BPR, on validation: rates 0.001 to 0.01, λ 0.01 to 0.1, 1, 4, 16 negatives."""
SOFT_START, SOFT_EPOCHS = {"loss": "sampled_softmax", "regularisation": 0.3, "negatives_per_positive": 64}, 100
"""The best factorisation by validation of both losses, 4 to 64 negatives and λ from 0.03 to 1."""
FROM_SOFTMAX = ("from softmax", "softmax")
"""Forms of KGAT that start from the latter."""
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "tuned": {
        "model": {"message_dropout": 0.3},
        "objective": {"negatives_per_positive": 4},
        "training": {"lr_decay": "cosine"},
    },
    "tuned, batch 16384": {
        "model": {"message_dropout": 0.3},
        "objective": {"negatives_per_positive": 4},
        "training": {"lr_decay": "cosine"},
        "acceleration": {"batch_size": 16384, "lr_scaling": "sqrt"},
    },
    "masked": {"objective": {"mask_pairs": True}},
    "tuned, masked": {
        "model": {"message_dropout": 0.3},
        "objective": {"negatives_per_positive": 4, "mask_pairs": True},
        "training": {"lr_decay": "cosine"},
    },
    "softmax": {
        "model": {"message_dropout": 0.3},
        "objective": {"loss": "sampled_softmax", "negatives_per_positive": 16},
        "training": {"lr_decay": "cosine"},
    },
}
"""KGAT's settings beside the rival's, by validation: several negatives of a pair, more dropout, and a rate that falls; pairs
that a step is to predict left out of its propagation."""
MASKED = ("masked", "tuned, masked")


# ---------------------------------------------------------------- time


def step_rows() -> Iterator[Row]:
    """KGAT's phases on last-fm and at the size of book-crossing."""
    for data, factor in EPOCH_TARGETS.items():
        steps = "15" if data == "last-fm" else "3"
        variants = {v: ["--data", data, "--variant", v, "--steps", steps] for v in ("naive", "ours")}
        variants["large"] = [*variants["ours"], "--batch", "16384"]
        variants["bf16"] = [*variants["ours"], "--precision", "bf16"]
        found = in_turn(STEP, variants, 5 if data == "last-fm" else 3, as_a_worker())
        yield row(
            f"kgat {data}, batch 16384",
            "epoch",
            "s",
            median(run["epoch"] for run in found["large"]),
            rival="plain, batch 1024",
            theirs=median(run["epoch"] for run in found["naive"]),
            target="ratio <= 0.125",
        )
        yield row(
            f"kgat {data}, bf16",
            "epoch",
            "s",
            median(run["epoch"] for run in found["bf16"]),
            rival="plain, fp32",
            theirs=median(run["epoch"] for run in found["naive"]),
        )
        for part in ("cf", "kg", "attention", "evaluation", "epoch"):
            ours, theirs = ([run[part] for run in found[v] if part in run] for v in ("ours", "naive"))
            if not ours:
                continue
            ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
            note = f"pair by pair {1 / ratio:.2f} × as fast"
            if part == "epoch":
                note += f"; the public implementation as recorded, 2 threads: {RECORDED[data]} s"
            target = f"ratio <= {1 / factor:.4f}" if part == "epoch" else ""
            yield row(
                f"kgat {data}",
                part,
                "s",
                median(ours),
                rival="plain",
                theirs=median(theirs),
                target=target,
                note=note,
            )


def large_rows() -> Iterator[Row]:
    """KGAT at amazon-book's shape, beside a floor: bytes that must be moved at the rate of a copy here, and products."""
    found = fresh(STEP, ["--data", "amazon-book", "--steps", "3"], as_a_worker())
    nodes, edges, width = found["nodes"], found["edges"], 64
    rate = _copy_rate()
    # Forward and backward of three layers: a gathered row an edge, and index and weight; Adam on the vectors.
    gathered = 2 * edges * (sum((64, 64, 32)) * 4 + 3 * 12)
    dense = nodes * width * 4 * (7 + 40)
    bytes_moved = {"cf": gathered + dense, "kg": nodes * width * 4 * 9, "attention": edges * (2 * width * 4 + 24)}
    # Attention projects every node that a relation has as head or tail: gathered, multiplied, written.
    projected, product_rate = found["projected"], _product_rate(width)
    bytes_moved["attention"] += projected * 3 * width * 4
    maps = sum(a * b for a, b in pairwise(DIMS))  # two a layer, each with two products for its gradients
    products = {"cf": 6 * 2.0 * nodes * maps, "attention": 2.0 * projected * width * width}
    for part, size in bytes_moved.items():
        floor = size / rate + products.get(part, 0.0) / product_rate
        note = f"{size / 1e9:.2f} GB at {rate / 1e9:.1f} GB/s"
        if part in products:
            note += f" and {products[part] / 1e9:.0f} GFLOP at {product_rate / 1e9:.0f} GFLOP/s"
        yield row(
            "kgat amazon-book's shape",
            part,
            "s",
            found[part],
            rival="floor",
            theirs=floor,
            target="ratio <= 3",
            note=note,
        )


def _product_rate(width: int) -> float:
    """Operations a second, for a table's product with a square matrix."""
    import torch

    x, w = torch.randn(1 << 16, width), torch.randn(width, width)
    out, best = torch.empty_like(x), 0.0
    for _ in range(10):
        started = time.perf_counter()
        torch.mm(x, w, out=out)
        best = max(best, 2 * x.numel() * width / (time.perf_counter() - started))
    return best


def _copy_rate() -> float:
    """Bytes read and written a second."""
    import torch

    a = torch.ones(1 << 25)
    b, best = torch.empty_like(a), 0.0
    for _ in range(5):
        started = time.perf_counter()
        b.copy_(a)
        best = max(best, 2 * 4 * a.numel() / (time.perf_counter() - started))
    return best


def evaluation_rows() -> Iterator[Row]:
    """100,000 users × 25,000 items, equal scores."""
    variants = {v: ["--one", "evaluation", "--variant", v] for v in ("ours", "loop", "dense")}
    found = in_turn("benchmarks.recommenders", variants, 3, as_a_worker())
    ours = median(run["seconds"] for run in found["ours"])
    assert len({round(run["recall"], 10) for runs in found.values() for run in runs}) == 1
    about = {
        "loop": ("each item sought in the user's array, in Python (MMRec's way)", "ratio <= 0.1"),
        "dense": ("a dense matrix of hits (RecBole's way)", "ratio <= 0.667"),
    }
    for name, (text, target) in about.items():
        theirs = median(run["seconds"] for run in found[name])
        note = "20 held-out items each, 50 masked; scores given, those of 2,000 users fifty times; equal recall"
        yield row(
            "full ranking, 25,000 items",
            "100,000 users",
            "s",
            ours,
            rival=text,
            theirs=theirs,
            target=target,
            note=note,
        )


def evaluate_once(variant: str) -> dict[str, float]:
    """Seconds of ranking 100,000 users, of which 2,000 differ, and the recall found."""
    import torch

    from graphmill.evaluation.item_ranking import METRICS, rank_items
    from graphmill.evaluation.recommendation import KnownItems

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    users, distinct, items, seen, held = 100_000, 2000, 25_000, 50, 20
    # As many rows follow each other as the largest block has users.
    scores = torch.randn(distinct, items).repeat(4, 1)
    drawn = rng.permuted(np.tile(np.arange(1000), (distinct, 1)), axis=1)[:, : seen + held] * 25
    drawn = np.tile(drawn, (users // distinct, 1))
    known, test = (np.sort(part, axis=1) for part in (drawn[:, :seen], drawn[:, seen:]))

    def rows(part: np.ndarray) -> KnownItems:
        return KnownItems(np.arange(users + 1) * part.shape[1], part.ravel())

    if variant == "ours":

        def of_users(asked: np.ndarray) -> torch.Tensor:
            first = int(asked[0]) % distinct
            return scores[first : first + len(asked)]

        rank_items(of_users, items, rows(known), rows(test), 50, users=np.arange(8))  # compiles
        started = time.perf_counter()
        lists = rank_items(of_users, items, rows(known), rows(test), 50)
        recall = lists.metrics(METRICS, [5, 10, 20, 50])["recall@20"]
        return {"seconds": time.perf_counter() - started, "recall": recall}
    started = time.perf_counter()
    block = 4096 if variant == "loop" else 164  # RecBole's batch: 4,096,000 scores
    hits = []
    for first in range(0, users, block):
        part = slice(first, first + block)
        masked = scores[first % distinct :][: min(block, users - first)]
        row_of = torch.arange(len(masked)).repeat_interleave(seen)
        masked[row_of, torch.from_numpy(known[part].ravel())] = -1e10
        top = torch.topk(masked, 50, dim=1).indices
        if variant == "dense":
            matrix = torch.zeros_like(masked, dtype=torch.int)
            matrix[torch.arange(len(masked)).repeat_interleave(held), torch.from_numpy(test[part].ravel())] = 1
            hits.append(torch.gather(matrix, 1, top).numpy().astype(bool))
        else:
            # What is held out of a user is an array there, and so is each list.
            hits.append(np.array([[i in own for i in line] for own, line in zip(test[part], top.numpy(), strict=True)]))
    hit = np.concatenate(hits)
    place = np.log2(np.arange(2, 52))
    for k in (5, 10, 20, 50):  # the metrics beside recall, so that all do the same work
        (hit[:, :k] / place[:k]).sum(1).mean()
        (np.cumsum(hit[:, :k], 1) * hit[:, :k] / np.arange(1, k + 1)).sum(1).mean()
    recall = float((hit[:, :20].sum(1) / held).mean())
    return {"seconds": time.perf_counter() - started, "recall": recall}


# ---------------------------------------------------------------- quality


def graph_of(data: str, folder: Path) -> Path:
    """``tiktok``, ``baby``, ``last-fm`` (whole train), ``last-fm valid`` (a tenth of it held out)."""
    from benchmarks.recommender_data import root
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.kgat_files import read_kgat
    from graphmill.ingest.mmrec import read_mmrec

    tables = read_kgat(root() / "last-fm-hetrec" / "kgat") if "last" in data else read_mmrec(root() / data)
    split = {"given": "add_valid", "valid": 0.1} if "valid" in data else {}
    settings = GraphSettings.model_validate({"add_reverse": "never", "split": split})
    return build_graph(tables.nodes, tables.edges, settings, folder / "graph", tables.features).path


def train_one(folder: Path, recipe: str, graph: Path, **sections: Any) -> dict[str, Any]:
    """A training as a user starts it, on one thread; its report."""
    from graphmill.worker.job import merge
    from graphmill.worker.run import train

    values = {"recipe": recipe, "data": str(graph), "preset": "none", "acceleration": {"device": "cpu", "threads": 1}}
    with contextlib.redirect_stdout(sys.stderr):
        return dict(train(merge(values, sections), "benchmark", root=str(folder / "runs")))


def floors_once(data: str) -> dict[str, dict[str, Any]]:
    """Figures of the product's floors on ``data``, each at its best setting by validation, and the seconds to find it."""
    from graphmill.graph.interactions import interaction_view
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.recipes.recommenders.evaluate import RecommenderEvaluator
    from graphmill.recipes.recommenders.settings import RecommenderSettings
    from graphmill.worker.job import parse_settings
    from graphmill.worker.recommender_floor import best_bpr_mf

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = graph_of(data, folder)
        values = {"recipe": "bpr_mf", "data": str(graph), "preset": "none", "acceleration": {"device": "cpu"}}
        settings = parse_settings(values, "benchmark")
        assert isinstance(settings, RecommenderSettings)
        view = interaction_view(TypedGraph.open(graph))
        evaluator, out = RecommenderEvaluator(view, settings), {}
        for floor, tuned in evaluator.floors.items():
            found = evaluator.floor_lists(floor, "test").metrics(("recall", "ndcg"), [20])
            out[floor] = {**found, "setting": tuned.setting, "seconds": tuned.seconds}
        started = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):
            form, best = best_bpr_mf(settings, view, folder / "runs")
        epoch = best["best_epoch"] or best["epochs_done"]
        out["bpr_mf"] = {m: best["metrics"][f"test_{m}"] for m in ("recall@20", "ndcg@20")}
        out["bpr_mf"] |= {"setting": f"{form}, epoch {epoch}", "seconds": time.perf_counter() - started}
        return out


def floor_rows() -> Iterator[Row]:
    """One row a floor and data set."""
    for data in ("tiktok", "baby", "last-fm", "last-fm valid"):
        arguments = ["--one", "floors", "--data", data]
        for name, found in fresh("benchmarks.recommenders", arguments, as_a_worker()).items():
            seconds = f"tuned in {found['seconds']:.1f} s on {allowed_cores()} threads"
            note = f"ndcg@20 {found['ndcg@20']:.4f}; {found['setting']}; {seconds}"
            yield row(f"{data}, {name}", "test recall@20", "", found["recall@20"], note=note)


def factorisation(folder: Path, graph: Path, data: str, seed: int, settings: str) -> dict[str, Any]:
    """The training of the vectors that KGAT starts from."""
    before, of_start = (SOFT_EPOCHS, SOFT_START) if settings in FROM_SOFTMAX else (EPOCHS, START)
    return train_one(
        folder,
        "bpr_mf",
        graph,
        objective=of_start,
        training={"epochs": before, "seed": seed, "patience_epochs": 0},
        evaluation={"eval_every": before if data == "last-fm" else 10, "floors": False},
    )


def start_once(data: str, seed: int, settings: str) -> dict[str, float]:
    """A factorisation alone."""
    with tempfile.TemporaryDirectory() as name:
        found = factorisation(Path(name), graph_of(data, Path(name)), data, seed, settings)
    metrics = found["metrics"]
    epoch = found["best_epoch"] or found["epochs_done"]
    return {"recall": metrics["test_recall@20"], "ndcg": metrics["test_ndcg@20"], "epoch": epoch}


def start_rows() -> Iterator[Row]:
    """What the vectors that KGAT starts from reach by themselves, on last-fm: means over seeds."""
    for data in ("last-fm", "last-fm valid"):
        for settings, name in (("", "bpr, four negatives"), ("softmax", "softmax, 64 negatives")):
            runs = of_seeds(["--one", "start", "--data", data, "--settings", settings], SEEDS)
            recalls, gains = ([f"{run[metric]:.4f}" for run in runs] for metric in ("recall", "ndcg"))
            note = f"seeds {', '.join(recalls)}; ndcg@20 {_mean(runs, 'ndcg'):.4f} ({', '.join(gains)}); "
            note += f"epochs {', '.join(str(run['epoch']) for run in runs)}"
            yield row(f"start of kgat {data}, {name}", "test recall@20", "", _mean(runs, "recall"), note=note)


def of_seeds(arguments: list[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A measurement of each seed; nothing is timed, so one a core at once."""

    def one(seed: int) -> dict[str, Any]:
        return fresh("benchmarks.recommenders", [*arguments, "--seed", str(seed)], ONE_THREAD)

    with ThreadPoolExecutor(min(2, allowed_cores())) as pool:
        return list(pool.map(one, seeds))


def _mean(runs: Sequence[dict[str, Any]], name: str) -> float:
    return float(np.mean([run[name] for run in runs]))


def kgat_once(data: str, seed: int, settings: str) -> dict[str, float]:
    """A factorisation, and KGAT from its vectors, with the rival's settings or one of our own."""
    own = OWN.get(settings, {})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = graph_of(data, folder)
        whole = data == "last-fm"
        epochs, batch, rate = (60, 4096, 0.002) if data == "baby" else (145, 1024, 0.001)
        start = factorisation(folder, graph, data, seed, settings)
        found = train_one(
            folder,
            "kgat",
            graph,
            training={
                "epochs": epochs,
                "learning_rate": rate,
                "seed": seed,
                "patience_epochs": 0,
                "init_from": start["run_dir"],
                **own.get("training", {}),
            },
            model=own.get("model", {}),
            objective=own.get("objective", {}),
            acceleration={"batch_size": batch, **own.get("acceleration", {})},
            evaluation={"eval_every": epochs if whole else 5, "floors": True},
        )
    metrics = found["metrics"]
    floors = {n: metrics[f"test_{n}_recall@20"] for n in ("popularity", "item_knn", "ease")}
    floors["bpr_mf"] = start["metrics"]["test_recall@20"]
    return {
        "recall": metrics["test_recall@20"],
        "ndcg": metrics["test_ndcg@20"],
        "epoch": found["best_epoch"] or found["epochs_done"],
        **{f"floor {n}": v for n, v in floors.items()},
    }


def kgat_rows(datasets: Sequence[str] = ("last-fm",), seeds: Sequence[int] = SEEDS) -> Iterator[Row]:
    """KGAT on last-fm by the rival's protocol and with its settings: means over seeds."""
    for workload in datasets:
        data, _, settings = workload.partition(", ")
        arguments = ["--one", "kgat", "--data", data, *(["--settings", settings] if settings else [])]
        runs = of_seeds(arguments, seeds)
        found = {key: _mean(runs, key) for key in runs[0]}
        floors = {k.removeprefix("floor "): v for k, v in found.items() if k.startswith("floor ")}
        best = max(floors, key=floors.__getitem__)
        verdict = "above" if found["recall"] > floors[best] else "BELOW"
        note = "seeds " + ", ".join(f"{run['recall']:.4f}" for run in runs) + f"; ndcg@20 {found['ndcg']:.4f}, epochs "
        note += ", ".join(str(run["epoch"]) for run in runs) + f"; {verdict} the best floor; "
        note += ", ".join(f"{name} {value:.4f}" for name, value in floors.items())
        target = f"ours >= {LAST_FM_TARGET}" if data == "last-fm" else ""
        if settings in OWN:
            note += f"; settings by validation: {OWN[settings]}"
        if data != "baby":
            note += f"; the public implementation without pretraining, its epoch chosen on test: {RIVAL}"
        yield row(
            f"kgat {workload}",
            "test recall@20",
            "",
            found["recall"],
            rival=f"floor {best}",
            theirs=floors[best],
            target=target,
            note=note,
        )


def kgat_own_rows() -> Iterator[Row]:
    """The same from better vectors, and with settings of our own."""
    yield from kgat_rows([f"last-fm, {settings}" for settings in ("from softmax", *OWN) if settings not in MASKED])


def kgat_valid_rows() -> Iterator[Row]:
    """All of them with the epoch chosen on a tenth of the training items."""
    others = (f"last-fm valid, {settings}" for settings in ("from softmax", *OWN) if settings not in MASKED)
    yield from kgat_rows(("last-fm valid", *others))


def kgat_masked_rows() -> Iterator[Row]:
    """The rival's settings and our own with the step's pairs left out of its propagation: both protocols."""
    yield from kgat_rows([f"{data}, {settings}" for data in ("last-fm valid", "last-fm") for settings in MASKED])


def baby_rows() -> Iterator[Row]:
    """KGAT without knowledge on baby: the epoch by validation."""
    yield from kgat_rows(("baby",))


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "step": step_rows,
    "evaluation": evaluation_rows,
    "floors": floor_rows,
    "starts": start_rows,
    "kgat": kgat_rows,
    "kgat_own": kgat_own_rows,
    "kgat_valid": kgat_valid_rows,
    "kgat_masked": kgat_masked_rows,
    "baby": baby_rows,
    "large": large_rows,
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(ROWS), action="append", help="rows to measure; without it, all")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/recommenders.json")
    parser.add_argument(
        "--one", choices=["evaluation", "floors", "start", "kgat"], help="one measurement, in this process"
    )
    parser.add_argument("--variant", choices=["ours", "loop", "dense"], default="ours")
    parser.add_argument("--data", choices=["tiktok", "baby", "last-fm", "last-fm valid"], default="tiktok")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--settings", choices=["", "from softmax", *OWN], default="", help="of kgat; empty: the rival's"
    )
    args = parser.parse_args()
    if args.one:
        one: dict[str, Callable[[], dict[str, Any]]] = {
            "evaluation": lambda: evaluate_once(args.variant),
            "floors": lambda: floors_once(args.data),
            "start": lambda: start_once(args.data, args.seed, args.settings),
            "kgat": lambda: kgat_once(args.data, args.seed, args.settings),
        }
        print(json.dumps(one[args.one]()))
        return
    for name in args.only or ROWS:
        for found in ROWS[name]():
            print(json.dumps(found.__dict__, ensure_ascii=False), flush=True)
            if args.json:
                store("recommenders", found, "python -m benchmarks.recommenders --json")


if __name__ == "__main__":
    main()
