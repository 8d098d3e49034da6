"""``python -m benchmarks.recommenders --json``: KGAT's phases, full ranking, and what BPR-MF, KGAT and the baselines reach.

Each figure comes from a fresh process: times on all threads, with the settings of graphmill's worker for both sides;
quality on one thread each, two processes at once. ``--only ROW`` measures some rows and leaves the others of
``benchmarks/results/recommenders.json`` as they are. Rows:

* ``step``: KGAT's phases beside :mod:`benchmarks.naive.kgat`, a stand-in for public code, in turn: with the defaults, which
  are what that computes, and with the settings whose quality is measured (``last_fm_kgat.yaml``). Stand-in and ours also
  beside the time that the public code itself was recorded to take, scaled to this run's machine (:mod:`benchmarks.rates`)
* ``large``: the same at amazon-book's shape, ours beside the time in which the least of bytes and products can be done
  (:mod:`benchmarks.kgat_limit`)
* ``evaluation``: full ranking of equal scores beside MMRec's way and, with ``--rival-python``, an interpreter that has
  RecBole 1.2.1, beside RecBole's own evaluator (:mod:`benchmarks.ranking_step`); without it beside an imitation alone
* ``baselines``: the product's own (popularity, item-kNN, EASE, BPR-MF) on tiktok, baby and last-fm, settings by validation,
  and the seconds of finding them on all threads
* ``starts``: the two factorisations by themselves that KGAT starts from there, three seeds each
* ``kgat``: last-fm by the public implementation's protocol and settings (whole train, 145 epochs at 0.001, test read once),
  started from BPR-MF's vectors; ``kgat_own``: the same from those of a sampled softmax, and with two settings of our own;
  ``kgat_valid``: all with a tenth of train held out, by which the epoch is chosen; three seeds each. Recall and NDCG stand
  beside the best of the product's baselines, tuned as it does
* ``kgat_masked``: the rival's settings and our own with a step's pairs left out of its propagation, by both protocols
* ``kgat_large``: batches of 16,384 (rate scaled by √) beside those of 1,024, paired by seed, for as many epochs (145, whole
  train): our settings without masks. A step may leave out half of the pairs at most, which on last-fm a masked one of 16,384
  would exceed (it is refused): with masks, as in ``last_fm_kgat.yaml``, 8,192 takes its place, and the unmasked large batch
  stands beside that file's as well
* ``baby``: KGAT without knowledge on baby, in the same way, 60 epochs of batches of 4,096, three seeds
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.card import (
    ROOT,
    Row,
    as_a_worker,
    fresh,
    in_turn,
    paired_difference,
    replace_rows,
    row,
    typical,
    typical_ratio,
)
from benchmarks.rates import recorded_rows, seconds_of
from graphmill.training.device import allowed_cores

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
STEP = "benchmarks.kgat_step"
Runs = dict[str, list[dict[str, Any]]]
"""What was measured to the results of its rounds."""
EPOCH_TARGETS = {"last-fm": 6.0, "book": 3.0}
LARGE_TARGET = "ratio <= 0.125"
CHECKED = "last_fm_kgat"
"""The settings file whose quality is measured."""
TARGETS = {
    "last-fm": ("ours >= 0.389", "ours >= 0.2317"),
    "last-fm valid": ("ours >= 0.3694", "ours >= 0.2173"),
    "baby": ("ratio >= 1", "ratio >= 1"),
}
"""Of Recall@20 and NDCG@20. On last-fm those of item-kNN, the best baseline that others had measured on each of the two
splits; the note says whether the product's own best baseline is reached, which has a softmax that they had not."""
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
WIDE = {
    "tuned, masked, batch 8192": {
        **OWN["tuned, masked"],
        "acceleration": {"batch_size": 8192, "lr_scaling": "sqrt"},
    }
}
"""What ``kgat_large`` measures beside those above."""


# ---------------------------------------------------------------- time


def step_rows() -> Iterator[Row]:
    """KGAT's phases on last-fm and at the size of book-crossing."""
    for data in EPOCH_TARGETS:
        steps = "15" if data == "last-fm" else "3"
        variants = {v: ["--data", data, "--variant", v, "--steps", steps] for v in ("rates", "naive", "ours")}
        variants["large"] = [*variants["ours"], "--batch", "16384"]
        variants["bf16"] = [*variants["ours"], "--precision", "bf16"]
        variants["checked"] = [*variants["ours"], "--settings", CHECKED]
        # So many pairs are more than half of last-fm's, which are not to be left out of a step (see the rows' quality).
        variants["checked large"] = [*variants["checked"], "--batch", "16384", *_unmasked(data)]
        found = in_turn(STEP, variants, 5 if data == "last-fm" else 3, as_a_worker())
        yield from _epoch_rows(data, found)
        for part in ("cf", "kg", "attention", "evaluation"):
            if part in found["ours"][0]:
                yield _beside_plain(f"kgat {data}", part, "s", found["ours"], found["naive"])
        for form, workload in (("ours", f"kgat {data}"), ("checked", f"kgat {data}, {CHECKED}.yaml")):
            yield _beside_plain(workload, "peak_gib", "GiB", found[form], found["naive"])


def _unmasked(data: str) -> list[str]:
    return ["--unmasked"] if data == "last-fm" else []


def _epoch_rows(data: str, found: Runs) -> Iterator[Row]:
    """Epochs of all forms beside the plain one's and the public implementation's."""
    target, masks = f"ratio <= {1 / EPOCH_TARGETS[data]:.4f}", ", unmasked" if _unmasked(data) else ""
    plain, name = found["naive"], f"kgat {data}"
    wide = "plain, batch 1024"
    yield _beside_plain(name, "epoch", "s", found["ours"], plain, target=target)
    yield _beside_plain(f"{name}, {CHECKED}.yaml", "epoch", "s", found["checked"], plain, target=target)
    yield _beside_plain(f"{name}, bf16", "epoch", "s", found["bf16"], plain, "plain, fp32")
    yield _beside_plain(f"{name}, batch 16384", "epoch", "s", found["large"], plain, wide, LARGE_TARGET)
    large = f"{name}, {CHECKED}.yaml{masks}, batch 16384"
    yield _beside_plain(large, "epoch", "s", found["checked large"], plain, wide, LARGE_TARGET)
    forms = {
        "plain": (f"{name}, plain", seconds_of(plain, "epoch"), "ratio <= 1.2"),
        "ours": (name, seconds_of(found["ours"], "epoch"), target),
        f"{CHECKED}.yaml": (f"{name}, {CHECKED}.yaml", seconds_of(found["checked"], "epoch"), target),
    }
    yield from recorded_rows("epoch", name, forms, found["rates"])


def _beside_plain(
    workload: str,
    key: str,
    unit: str,
    runs: list[dict[str, Any]],
    plain: list[dict[str, Any]],
    rival: str = "plain",
    target: str = "",
) -> Row:
    """A figure of the rounds beside the plain form's, with all of them in the note."""
    (ours, note), (theirs, their_note) = typical(runs, key), typical(plain, key)
    note = f"{note}; rival {their_note}"
    if key == "peak_gib":
        note = f"above the imports, the building of graph and recipe included (the rival's has ours as well); {note}"
        return row(workload, "peak memory", unit, ours, rival=rival, theirs=theirs, note=note)
    note = f"pair by pair {1 / typical_ratio(runs, plain, key):.2f} × as fast; {note}"
    return row(workload, key, unit, ours, rival=rival, theirs=theirs, target=target, note=note)


def large_rows() -> Iterator[Row]:
    """KGAT at amazon-book's shape, beside the least that it has to move and to multiply; in turn."""
    runs, limits = [], []
    for _ in range(3):
        runs.append(fresh(STEP, ["--data", "amazon-book", "--steps", "3"], as_a_worker()))
        limits.append(fresh("benchmarks.kgat_limit", ["--data", "amazon-book"], as_a_worker()))
    name = "kgat amazon-book's shape"
    for part in ("cf", "kg", "attention"):
        ours, note = typical(runs, part)
        # The least of the rounds' limits: at the rates of the one that was disturbed least.
        least = min(limits, key=lambda found: float(found[part]))
        every = ", ".join(f"{found[part]:.3g}" for found in limits)
        note = f"{note}; limit, the least of {every}: {least[f'{part} note']}"
        yield row(name, part, "s", ours, rival="limit", theirs=least[part], target="ratio <= 3", note=note)
        at_once = min(seconds_of(limits, f"{part} at once"))
        yield row(name, part, "s", ours, rival="limit, were its parts to go on at once", theirs=at_once)
    peak, note = typical(runs, "peak_gib")
    yield row(name, "peak memory", "GiB", peak, note=f"above the imports, the building of the graph included; {note}")


def evaluation_rows(rival_python: str = "") -> Iterator[Row]:
    """100,000 users × 25,000 items, equal scores. ``rival_python``: an interpreter that has RecBole."""
    about = {
        "loop": ("each item sought in the user's array, in Python (MMRec's way)", "ratio <= 0.1"),
        "dense": ("a dense matrix of hits (RecBole's way)", "ratio <= 0.667"),
    }
    if rival_python:
        about["recbole"] = ("RecBole's evaluator", "ratio <= 0.667")
    variants = {v: ["--variant", v] for v in ("ours", *about)}
    # RecBole's interpreter has neither this repository nor what is installed beside it.
    environment = as_a_worker() | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    found = in_turn("benchmarks.ranking_step", variants, 3, environment, {"recbole": rival_python})
    ours, our_note = typical(found["ours"], "seconds")
    assert len({round(run["recall"], 8) for runs in found.values() for run in runs}) == 1
    for name, (text, target) in about.items():
        theirs, note = typical(found[name], "seconds")
        note = f"those of 2,000 users fifty times; equal recall; {our_note}; rival {note}"
        note = f"20 held-out items each, 50 masked; scores given, {note}"
        if name == "dense":
            note += "; an imitation"
        if name == "recbole":
            note += f"; RecBole {found[name][0]['version']}, without its loader"
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
    from graphmill.runs.resolve import merge
    from graphmill.runs.train import train

    values = {"recipe": recipe, "data": str(graph), "preset": "none", "acceleration": {"device": "cpu", "threads": 1}}
    with contextlib.redirect_stdout(sys.stderr):
        return dict(train(merge(values, sections), "benchmark", root=str(folder / "runs")))


def baselines_once(data: str, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Figures of the product's baselines on ``data``, each at its best setting by validation, and the seconds to find it.

    ``seed``: of BPR-MF's trainings; the others have none.
    """
    from graphmill.graph.interactions import interaction_view
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.runs.recommender_baseline import best_bpr_mf
    from graphmill.runs.resolve import parse_settings
    from graphmill.systems.recommenders.evaluate import RecommenderEvaluator
    from graphmill.systems.recommenders.settings import RecommenderSettings

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = graph_of(data, folder)
        values = {
            "recipe": "bpr_mf",
            "data": str(graph),
            "preset": "none",
            "training": {"seed": seed},
            "acceleration": {"device": "cpu", "threads": int(os.environ.get("OMP_NUM_THREADS", 0))},
        }
        settings = parse_settings(values, "benchmark")
        assert isinstance(settings, RecommenderSettings)
        view = interaction_view(TypedGraph.open(graph))
        evaluator, out = RecommenderEvaluator(view, settings), {}
        for baseline, tuned in evaluator.baselines.items():
            found = evaluator.baseline_lists(baseline, "test").metrics(("recall", "ndcg"), [20])
            out[baseline] = {**found, "setting": tuned.setting, "seconds": tuned.seconds}
        started = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):
            form, best = best_bpr_mf(settings, view, folder / "runs")
        epoch = best["best_epoch"] or best["epochs_done"]
        out["bpr_mf"] = {m: best["metrics"][f"test_{m}"] for m in ("recall@20", "ndcg@20")}
        out["bpr_mf"] |= {"setting": f"{form}, epoch {epoch}", "seconds": time.perf_counter() - started}
        return out


def baseline_rows() -> Iterator[Row]:
    """One row a baseline and data set."""
    for data in ("tiktok", "baby", "last-fm", "last-fm valid"):
        arguments = ["--one", "baselines", "--data", data]
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
        evaluation={"eval_every": before if data == "last-fm" else 10, "baselines": []},
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
    own = {**OWN, **WIDE}.get(settings, {})
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
            evaluation={"eval_every": epochs if whole else 5, "baselines": []},
        )
    metrics = found["metrics"]
    return {
        "recall": metrics["test_recall@20"],
        "ndcg": metrics["test_ndcg@20"],
        "epoch": found["best_epoch"] or found["epochs_done"],
        "start": start["metrics"]["test_recall@20"],
    }


@cache
def baselines_of(data: str, seeds: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """Test ``recall@20`` and ``ndcg@20`` of each of the product's baselines on ``data``, tuned by it: means over seeds."""
    runs = of_seeds(["--one", "baselines", "--data", data], seeds)
    return {
        baseline: {
            metric: float(np.mean([run[baseline][metric] for run in runs])) for metric in ("recall@20", "ndcg@20")
        }
        for baseline in runs[0]
    }


def kgat_rows(datasets: Sequence[str] = ("last-fm",), seeds: Sequence[int] = SEEDS) -> Iterator[Row]:
    """KGAT on last-fm by the rival's protocol and with its settings, beside the best of the product's baselines by each
    metric: means over seeds."""
    for workload in datasets:
        data, _, settings = workload.partition(", ")
        arguments = ["--one", "kgat", "--data", data, *(["--settings", settings] if settings else [])]
        runs = of_seeds(arguments, seeds)
        baselines = baselines_of(data, tuple(seeds))
        about = "epochs " + ", ".join(str(run["epoch"]) for run in runs)
        about += f"; the vectors that it starts from {_mean(runs, 'start'):.4f} by recall"
        if settings in OWN:
            about += f"; settings by validation: {OWN[settings]}"
        if data != "baby":
            about += f"; the public implementation without pretraining, its epoch chosen on test: {RIVAL} by recall"
        # Of large batches: kgat_large, beside small ones.
        targets = ("", "") if "batch" in settings else TARGETS[data]
        for name, target in zip(("recall", "ndcg"), targets, strict=True):
            metric, ours = f"{name}@20", _mean(runs, name)
            best = max(baselines, key=lambda baseline: baselines[baseline][metric])
            verdict = "above" if ours > baselines[best][metric] else "BELOW"
            note = "seeds " + ", ".join(f"{run[name]:.4f}" for run in runs) + f"; {verdict} the best baseline; "
            note += (
                ", ".join(f"{baseline} {figures[metric]:.4f}" for baseline, figures in baselines.items()) + f"; {about}"
            )
            yield row(
                f"kgat {workload}",
                f"test {metric}",
                "",
                ours,
                rival=f"baseline {best}",
                theirs=baselines[best][metric],
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


def kgat_large_rows() -> Iterator[Row]:
    """Large batches beside small ones, by the seeds' differences."""
    tuned, masked = ("tuned", "tuned, batch 16384"), ("tuned, masked", "tuned, masked, batch 8192")
    found: Runs = {
        settings: of_seeds(["--one", "kgat", "--data", "last-fm", "--settings", settings], SEEDS)
        for settings in (*tuned, *masked)
    }
    held = "ratio >= 0.99"
    for small, large, rival, target in (
        (*tuned, "the same, batch 1024", held),
        (*masked, "the same, batch 1024", held),
        (masked[0], tuned[1], f"{CHECKED}.yaml, masked, batch 1024", ""),
    ):
        ours, theirs = found[large], found[small]
        for name in ("recall", "ndcg"):
            each = (", ".join(f"{run[name]:.4f}" for run in runs) for runs in (ours, theirs))
            note = f"{len(SEEDS)} seeds {' | '.join(each)}; {paired_difference(ours, theirs, name)}"
            note += "; 145 epochs both, whole train"
            yield row(
                f"kgat last-fm, {large}",
                f"test {name}@20",
                "",
                _mean(ours, name),
                rival=rival,
                theirs=_mean(theirs, name),
                target=target if name == "recall" else "",
                note=note,
            )


def baby_rows() -> Iterator[Row]:
    """KGAT without knowledge on baby: the epoch by validation."""
    yield from kgat_rows(("baby",))


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "step": step_rows,
    "evaluation": evaluation_rows,
    "baselines": baseline_rows,
    "starts": start_rows,
    "kgat": kgat_rows,
    "kgat_own": kgat_own_rows,
    "kgat_valid": kgat_valid_rows,
    "kgat_masked": kgat_masked_rows,
    "kgat_large": kgat_large_rows,
    "baby": baby_rows,
    "large": large_rows,
}


def same_figure(new: Row, old: Row) -> bool:
    """Whether ``old`` is an earlier measurement of ``new``. Which baseline is the best one may have changed in between."""
    baselines = all(each.rival.startswith("baseline ") for each in (new, old))
    return (old.workload, old.metric) == (new.workload, new.metric) and (baselines or old.rival == new.rival)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(ROWS), action="append", help="rows to measure; without it, all")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/recommenders.json")
    parser.add_argument("--one", choices=["baselines", "start", "kgat"], help="one measurement, in this process")
    parser.add_argument("--rival-python", default="", help="an interpreter that has RecBole 1.2.1, for evaluation")
    parser.add_argument("--data", choices=["tiktok", "baby", "last-fm", "last-fm valid"], default="tiktok")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--settings", choices=["", "from softmax", *OWN, *WIDE], default="", help="of kgat; empty: the rival's"
    )
    args = parser.parse_args()
    if args.one:
        one: dict[str, Callable[[], dict[str, Any]]] = {
            "baselines": lambda: baselines_once(args.data, args.seed),
            "start": lambda: start_once(args.data, args.seed, args.settings),
            "kgat": lambda: kgat_once(args.data, args.seed, args.settings),
        }
        print(json.dumps(one[args.one]()))
        return
    rows: dict[str, Callable[[], Iterator[Row]]] = {**ROWS, "evaluation": partial(evaluation_rows, args.rival_python)}
    for name in args.only or ROWS:
        for found in rows[name]():
            print(json.dumps(found.__dict__, ensure_ascii=False), flush=True)
            if args.json:
                replace_rows(
                    "recommenders", [found], "python -m benchmarks.recommenders --json", partial(same_figure, found)
                )


if __name__ == "__main__":
    main()
