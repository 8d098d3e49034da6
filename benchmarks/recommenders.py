"""``python -m benchmarks.recommenders --json``: what MF, KGAT and the baselines reach.

Each figure comes from a fresh process, on one thread each, two processes at once.
``--only ROW`` measures some rows and leaves the others of
``benchmarks/results/recommenders.json`` as they are. Rows:

* ``baselines``: the product's own (popularity, item-kNN, EASE, MF) on tiktok, baby and last-fm, settings by validation,
  and the seconds of finding them on all threads
* ``kgat``: last-fm by the public implementation's protocol and settings (whole train, 145 epochs at 0.001, test read once),
  started from MF's vectors; three seeds. Recall and NDCG stand beside the product's best baseline, tuned as it does
* ``kgat_own``: the same with the settings of ``last_fm_kgat.yaml``, and again with a tenth of train held out, by which the
  epoch is chosen
* ``kgat_softmax``: linear layers that are short beside the vectors of MF with a softmax, by that loss for a few epochs
  (``last_fm_kgat_softmax.yaml``)
* ``baby``: KGAT without knowledge on baby, in the same way, 60 epochs of batches of 4,096, three seeds

``multimodal`` as the first word measures DRAGON and MMGCN instead (``parts/multimodal.py``), ``auto`` the choice of a system
(``parts/auto.py``).
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
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parts.card import (
    DATASETS,
    Row,
    as_a_worker,
    fresh,
    handed_over,
    replace_rows,
    row,
)
from graphmill.training.machine import allowed_cores

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
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
START, EPOCHS = {"loss": "bpr", "regularisation": 0.03, "negatives_per_positive": 4}, 180
"""The best factorisation by BPR, on validation: rates 0.001 to 0.01, λ 0.01 to 0.1, 1, 4, 16 negatives."""
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "tuned, masked": {
        "model": {"message_dropout": 0.3},
        "objective": {"negatives_per_positive": 4, "mask_pairs": True},
        "training": {"lr_decay": "cosine"},
    },
    "softmax, short layers": {
        "model": {"aggregation": "gcn", "leaky_slope": 1.0, "layer_dims": [64, 64], "layer_length": 0.5},
        "objective": {
            "loss": "sampled_softmax",
            "negatives_per_positive": 64,
            "regularisation": 0.3,
            "mask_pairs": True,
        },
        "training": {"epochs": 4, "learning_rate": 0.0001, "lr_decay": "cosine", "lr_decay_epochs": 10},
    },
}
"""KGAT's settings beside the rival's, by validation: several negatives of a pair, more dropout, and a rate that falls; pairs
that a step is to predict left out of its propagation. Or the loss and the start of MF with a softmax, and a few epochs
of linear layers that are short beside it."""
STARTS: dict[str, dict[str, Any]] = {
    "softmax, short layers": {
        "objective": {"loss": "sampled_softmax", "negatives_per_positive": 64, "regularisation": 0.3},
        "epochs": 130,
    }
}
"""Where KGAT starts from other vectors than :data:`START`; epochs without a validation split: the mean by validation."""


# ---------------------------------------------------------------- quality


def graph_of(data: str, folder: Path) -> Path:
    """``tiktok``, ``baby``, ``last-fm`` (whole train), ``last-fm valid`` (a tenth of it held out)."""
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.kgat_files import read_kgat
    from graphmill.ingest.mmrec import read_mmrec

    tables = read_kgat(DATASETS / "last-fm-hetrec" / "kgat") if "last" in data else read_mmrec(DATASETS / data)
    split = {"given": "add_valid", "valid": 0.1} if "valid" in data else {}
    settings = GraphSettings.model_validate({"add_reverse": "never", "split": split})
    return build_graph(tables.nodes, tables.edges, settings, folder / "graph", tables.features).path


def train_one(folder: Path, system: str, graph: Path, **sections: Any) -> dict[str, Any]:
    """A training as a user starts it, on one thread; its report."""
    from graphmill.runs.resolve import merge
    from graphmill.runs.train import train

    values = {"system": system, "data": str(graph), "preset": "none", "acceleration": {"device": "cpu"}}
    with contextlib.redirect_stdout(sys.stderr):
        return dict(train(merge(values, sections), "benchmark", root=str(folder / "runs")))


def baselines_once(data: str, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Figures of the product's baselines on ``data``, each at its best setting by validation, and the seconds to find it.

    ``seed``: of MF's trainings; the others have none.
    """
    from graphmill.graph.interactions import interaction_view
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.runs.resolve import parse_settings
    from graphmill.systems.recommenders.evaluate import RecommenderEvaluator
    from graphmill.systems.recommenders.settings import RecommenderSettings
    from graphmill.usage.baselines import train_mf

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = graph_of(data, folder)
        values = {
            "system": "mf",
            "data": str(graph),
            "preset": "none",
            "training": {"seed": seed},
            "acceleration": {"device": "cpu"},
        }
        settings = parse_settings(values, "benchmark")
        assert isinstance(settings, RecommenderSettings)
        view = interaction_view(TypedGraph.open(graph))
        evaluator, out = RecommenderEvaluator(view, settings), {}
        for baseline, tuned in evaluator.baselines.items():
            result = evaluator.baseline_lists(baseline, "test").metrics(("recall", "ndcg"), [20])
            out[baseline] = {**result, "setting": tuned.setting, "seconds": tuned.seconds}
        started = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):
            best = train_mf(settings, len(view.train), folder / "runs")
        epoch = best["best_epoch"] or best["epochs_done"]
        out["mf"] = {m: best["metrics"][f"test_{m}"] for m in ("recall@20", "ndcg@20")}
        out["mf"] |= {"setting": f"by its defaults, epoch {epoch}", "seconds": time.perf_counter() - started}
        return out


def baseline_rows() -> Iterator[Row]:
    """One row a baseline and data set."""
    for data in ("tiktok", "baby", "last-fm", "last-fm valid"):
        arguments = ["--one", "baselines", "--data", data]
        for name, result in fresh("benchmarks.recommenders", arguments, as_a_worker()).items():
            seconds = f"tuned in {result['seconds']:.1f} s on {allowed_cores()} threads"
            note = f"ndcg@20 {result['ndcg@20']:.4f}; {result['setting']}; {seconds}"
            yield row(f"{data}, {name}", "test recall@20", "", result["recall@20"], note=note)


def factorisation(folder: Path, graph: Path, data: str, seed: int, settings: str = "") -> dict[str, Any]:
    """The training of the vectors that KGAT starts from."""
    values, whole = STARTS.get(settings, {}), data == "last-fm"
    epochs = values.get("epochs", EPOCHS) if whole else EPOCHS
    return train_one(
        folder,
        "mf",
        graph,
        objective=values.get("objective", START),
        training={"epochs": epochs, "seed": seed, "patience_epochs": 0},
        evaluation={"eval_every": epochs if whole else 10, "baselines": []},
    )


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
    values = OWN.get(settings, {})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = graph_of(data, folder)
        whole = data == "last-fm"
        epochs, batch, rate = (60, 4096, 0.002) if data == "baby" else (145, 1024, 0.001)
        short = values.get("training", {}).get("epochs", 0)
        start = factorisation(folder, graph, data, seed, settings)
        result = train_one(
            folder,
            "kgat",
            graph,
            training={
                "epochs": epochs,
                "learning_rate": rate,
                "seed": seed,
                "patience_epochs": 0,
                "init_from": start["run_dir"],
                **values.get("training", {}),
            },
            model=values.get("model", {}),
            objective=values.get("objective", {}),
            acceleration={"batch_size": batch, **values.get("acceleration", {})},
            evaluation={"eval_every": (short or epochs) if whole else 2 if short else 5, "baselines": []},
        )
    metrics = result["metrics"]
    return {
        "recall": metrics["test_recall@20"],
        "ndcg": metrics["test_ndcg@20"],
        "epoch": result["best_epoch"] or result["epochs_done"],
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
        for name, target in zip(("recall", "ndcg"), TARGETS[data], strict=True):
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
    """The same with settings of our own, by both protocols."""
    yield from kgat_rows([f"{data}, tuned, masked" for data in ("last-fm", "last-fm valid")])


def kgat_softmax_rows() -> Iterator[Row]:
    """The same from the vectors of MF with a softmax, by that loss."""
    yield from kgat_rows([f"{data}, softmax, short layers" for data in ("last-fm", "last-fm valid")])


def baby_rows() -> Iterator[Row]:
    """KGAT without knowledge on baby: the epoch by validation."""
    yield from kgat_rows(("baby",))


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "baselines": baseline_rows,
    "kgat": kgat_rows,
    "kgat_own": kgat_own_rows,
    "kgat_softmax": kgat_softmax_rows,
    "baby": baby_rows,
}


def same_figure(new: Row, old: Row) -> bool:
    """Whether ``old`` is an earlier measurement of ``new``. Which baseline is the best one may have changed in between."""
    baselines = all(each.rival.startswith("baseline ") for each in (new, old))
    return (old.workload, old.metric) == (new.workload, new.metric) and (baselines or old.rival == new.rival)


def main() -> None:
    """Command line."""
    if handed_over({"multimodal": "multimodal", "auto": "auto"}):
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(ROWS), action="append", help="rows to measure; without it, all")
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/recommenders.json")
    parser.add_argument("--one", choices=["baselines", "kgat"], help="one measurement, in this process")
    parser.add_argument("--data", choices=["tiktok", "baby", "last-fm", "last-fm valid"], default="tiktok")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", choices=["", *OWN], default="", help="of kgat; empty: the rival's")
    args = parser.parse_args()
    if args.one:
        one: dict[str, Callable[[], dict[str, Any]]] = {
            "baselines": lambda: baselines_once(args.data, args.seed),
            "kgat": lambda: kgat_once(args.data, args.seed, args.settings),
        }
        print(json.dumps(one[args.one]()))
        return
    for name in args.only or ROWS:
        for result in ROWS[name]():
            print(json.dumps(result.__dict__, ensure_ascii=False), flush=True)
            if args.json:
                replace_rows(
                    "recommenders", [result], "python -m benchmarks.recommenders --json", partial(same_figure, result)
                )


if __name__ == "__main__":
    main()
