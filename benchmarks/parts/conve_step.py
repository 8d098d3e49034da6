"""One ConvE measurement in this process, as a JSON line: ``python -m benchmarks.parts.conve_step step --variant ours``.

Workloads: ``step`` (training steps on FB15k-237, d 200 as 10 × 20, batch 256), ``evaluate`` (its filtered test ranking,
both sides). ``benchmarks.conve`` runs them in turn, each in a fresh process. The rival's process needs PyKEEN alone.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.parts.card import DATASETS, peak_rss

BATCH, DIM, SHAPE = 256, 200, (10, 20)


def data_folder(name: str) -> Path:
    """The public data set ``name``."""
    return DATASETS / name


def typed_graph(name: str) -> Any:
    """The data set as a graph, made once per machine."""
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.ingest.triples import read_triples

    out = Path(tempfile.gettempdir()) / "graphmill-benchmarks" / name
    if (out / "manifest.json").is_file():
        return TypedGraph.open(out)
    tables = read_triples(data_folder(name))
    return build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), out)


def system_on(name: str) -> Any:
    from graphmill.settings import parse
    from graphmill.systems.conve.settings import ConveSettings
    from graphmill.systems.conve.system import ConveSystem

    return ConveSystem(typed_graph(name), parse(ConveSettings, {"system": "conve"}, "benchmark"), "full")


# ---------------------------------------------------------------------- training steps


def our_steps(count: int, precision: str) -> list[float]:
    from graphmill.training.contract import StepSizes
    from graphmill.training.optimizers import PhaseOptimizer
    from graphmill.training.precision import Precision
    from graphmill.training.processes import Ranks
    from graphmill.training.step import compute_gradient

    system = system_on("FB15k-237")
    cpu, phase = torch.device("cpu"), system.phases[0]
    model = system.build(StepSizes()).train()
    optimizer = PhaseOptimizer(system.settings.training, system.parameter_groups(model, phase), cpu)
    arithmetic = Precision(precision, cpu)

    def step(number: int) -> None:
        batch = system.step(phase, *divmod(number, phase.steps_per_epoch))
        result = compute_gradient(
            system, model, optimizer.parameters, batch, step_sizes=StepSizes(), precision=arithmetic, ranks=Ranks(),
            seed_parts=(0, number),
        )  # fmt: skip
        assert result.finite
        optimizer.step(1e-3)
        model.zero_grad()

    return _timed(step, count)


class _EnoughError(Exception):
    """The rival's training loop has done the steps asked for."""


def _pykeen() -> tuple[Any, Any, Any, Any]:
    from pykeen.models import ConvE
    from pykeen.triples import TriplesFactory

    folder = data_folder("FB15k-237")
    splits = []
    for split in ("train", "valid", "test"):
        with gzip.open(folder / f"{split}.txt.gz", "rt", encoding="utf-8") as file:
            splits.append(np.array([line.split() for line in file], dtype=str))
    train = TriplesFactory.from_labeled_triples(splits[0], create_inverse_triples=True)
    others = [
        TriplesFactory.from_labeled_triples(
            part, entity_to_id=train.entity_to_id, relation_to_id=train.relation_to_id, create_inverse_triples=False
        )
        for part in splits[1:]
    ]
    model = ConvE(triples_factory=train, embedding_dim=DIM, embedding_height=SHAPE[0], embedding_width=SHAPE[1])
    return train, others[0], others[1], model


def pykeen_steps(count: int) -> list[float]:
    from pykeen.training import LCWATrainingLoop, TrainingCallback

    train, _, _, model = _pykeen()
    marks: list[float] = []

    class Clock(TrainingCallback):
        def on_batch(self, epoch: int, batch: Any, batch_loss: float, **kwargs: Any) -> None:
            marks.append(time.perf_counter())
            if len(marks) > count:
                raise _EnoughError

    loop = LCWATrainingLoop(model=model, triples_factory=train, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3))
    with contextlib.suppress(_EnoughError):
        loop.train(
            train, num_epochs=1, batch_size=BATCH, label_smoothing=0.1, use_tqdm=False, use_tqdm_batch=False,
            callbacks=[Clock()],
        )  # fmt: skip
    return np.diff(marks).tolist()


# ---------------------------------------------------------------------- filtered evaluation


def our_evaluation() -> list[float]:
    from graphmill.training.contract import StepSizes

    system = system_on("FB15k-237")
    model = system.build(StepSizes()).eval()
    system.evaluate(model, "valid", final=False, poll=lambda: None)  # queries of another split: warms nothing but code

    def evaluate(_: int) -> None:
        system.evaluate(model, "test", final=True, poll=lambda: None)

    return _timed(evaluate, 1, warm=0)


def pykeen_evaluation() -> list[float]:
    from pykeen.evaluation import RankBasedEvaluator

    train, valid, test, model = _pykeen()
    evaluator = RankBasedEvaluator()
    more = [train.mapped_triples, valid.mapped_triples]

    def evaluate(_: int) -> None:
        evaluator.evaluate(model, test.mapped_triples, batch_size=BATCH, additional_filter_triples=more, use_tqdm=False)

    return _timed(evaluate, 1, warm=0)


def _timed(work: Callable[[int], None], count: int, warm: int = 2) -> list[float]:
    seconds = []
    for index in range(count + warm):
        started = time.perf_counter()
        work(index)
        seconds.append(time.perf_counter() - started)
    return seconds[warm:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=["step", "evaluate"])
    parser.add_argument("--variant", default="ours", help="ours, ours,bf16, pykeen")
    parser.add_argument("--count", type=int, default=10, help="steps")
    args = parser.parse_args()
    imported = peak_rss()
    if args.workload == "evaluate":
        seconds = our_evaluation() if args.variant == "ours" else pykeen_evaluation()
    elif args.variant == "pykeen":
        seconds = pykeen_steps(args.count)
    else:
        seconds = our_steps(args.count, "bf16" if "bf16" in args.variant else "fp32")
    print(json.dumps({"seconds": seconds, "peak_gb": peak_rss(), "imported_gb": imported}))


if __name__ == "__main__":
    main()
