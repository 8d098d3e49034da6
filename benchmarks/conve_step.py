"""One ConvE measurement in this process, as a JSON line: ``python -m benchmarks.conve_step step --variant ours``.

Workloads: ``step`` (training steps on FB15k-237, d 200 as 10 × 20, batch 256), ``evaluate`` (its filtered test ranking,
both sides), ``loss`` (the 1-N loss alone for any number of entities), ``tracin`` (influence of training on test triples),
``reach`` (training time until the filtered MRR, both sides, of 2,000 seeded validation triples is ``--target``).
``benchmarks.conve`` runs them in turn, each in a fresh process. The rival's process needs PyKEEN alone.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.card import ROOT, peak_rss

BATCH, DIM, SHAPE = 256, 200, (10, 20)


def data_folder(name: str) -> Path:
    """The public data set ``name``: ``$GRAPHMILL_DATASETS``, or beside the checkout."""
    return Path(os.environ.get("GRAPHMILL_DATASETS", ROOT.parent / "shared" / "datasets")) / name


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


def recipe_on(name: str) -> Any:
    from graphmill.settings import parse
    from graphmill.systems.conve.recipe import ConveRecipe
    from graphmill.systems.conve.settings import ConveSettings

    return ConveRecipe(typed_graph(name), parse(ConveSettings, {"recipe": "conve"}, "benchmark"), "full")


# ---------------------------------------------------------------------- training steps


def our_steps(count: int, precision: str) -> list[float]:
    return _timed(_our_training(precision)[2], count)


def _our_training(precision: str) -> tuple[Any, Any, Callable[[int], None]]:
    """Recipe, model, and a function that does one training step, by its number over all epochs."""
    from graphmill.training.contract import Execution
    from graphmill.training.optimizers import PhaseOptimizer
    from graphmill.training.precision import Precision
    from graphmill.training.processes import Ranks
    from graphmill.training.step import compute_gradient

    recipe = recipe_on("FB15k-237")
    cpu, phase = torch.device("cpu"), recipe.phases[0]
    model = recipe.build(Execution()).train()
    optimizer = PhaseOptimizer(recipe.settings.training, recipe.parameter_groups(model, phase), cpu)
    arithmetic = Precision(precision, cpu)

    def step(number: int) -> None:
        batch = recipe.step(phase, *divmod(number, phase.steps_per_epoch))
        found = compute_gradient(
            recipe, model, optimizer.parameters, batch, execution=Execution(), precision=arithmetic, ranks=Ranks(),
            seed_parts=(0, number),
        )  # fmt: skip
        assert found.finite
        optimizer.step(1e-3)
        optimizer.zero_grad()

    return recipe, model, step


def product_steps(count: int, convolution: bool = False) -> list[float]:
    """The matrix products of a step and nothing else: scores and their two gradients, the linear layer and its two.

    ``convolution``: with the convolution's, which are a product of filters and windows a picture, and its two.
    """
    entities, channels, positions, entries = 14_541, 32, 18 * 18, 9
    x, e, s = torch.randn(BATCH, DIM), torch.randn(entities, DIM), torch.randn(BATCH, entities)
    features = channels * positions
    a, w, h = torch.randn(BATCH, features), torch.randn(DIM, features), torch.randn(BATCH, DIM)
    outs = [torch.empty(m) for m in (s.shape, x.shape, e.shape, h.shape, a.shape, w.shape)]
    filters, cells = torch.randn(BATCH, channels, entries), torch.randn(BATCH, entries, positions)
    maps = a.view(BATCH, channels, positions)
    more = [torch.empty(m) for m in (maps.shape, filters.shape, cells.shape)]

    def step(_: int) -> None:
        torch.mm(x, e.T, out=outs[0])
        torch.mm(s, e, out=outs[1])
        torch.mm(s.T, x, out=outs[2])
        torch.mm(a, w.T, out=outs[3])
        torch.mm(h, w, out=outs[4])
        torch.mm(h.T, a, out=outs[5])
        if convolution:
            torch.bmm(filters, cells, out=more[0])
            torch.bmm(maps, cells.mT, out=more[1])
            torch.bmm(filters.mT, maps, out=more[2])

    return _timed(step, count)


# ---------------------------------------------------------------------- time to a quality

REACH_TRIPLES, REACH_EVERY = 2000, 73  # validation triples asked for; steps between two looks, an eighth of an epoch


def our_reach(target: float, limit: float, precision: str) -> dict[str, Any]:
    """Seconds of training steps until the MRR of the chosen validation triples is ``target``; what each look found."""
    from dataclasses import replace

    from graphmill.evaluation.ranking.queries import LinkQueries
    from graphmill.systems.conve.ranking import both_sides, rank_both_sides

    recipe, model, step = _our_training(precision)
    number = {name: i for i, name in enumerate(recipe.graph.node_table().column("id").to_pylist())}
    relations = {r.name: r.index for r in recipe.graph.relations}
    chosen = {(relations[r], number[h], number[t]) for h, r, t in _reach_triples()}
    whole, few = both_sides(recipe.graph, "valid"), []
    for queries in whole.relations:
        r, inverse = queries.relation % len(relations), queries.relation >= len(relations)
        pairs = zip(queries.heads.tolist(), queries.tails.tolist(), strict=True)
        keep = np.array([((r, b, a) if inverse else (r, a, b)) in chosen for a, b in pairs], dtype=bool)
        few.append(replace(queries, heads=queries.heads[keep], tails=queries.tails[keep]))
    asked = LinkQueries("valid", tuple(few))
    assert asked.total == 2 * REACH_TRIPLES

    def mrr() -> float:
        return rank_both_sides(recipe.scorer(model.eval()), asked, (10,)).micro["mrr"]

    def steps(first: int) -> None:
        model.train()
        for index in range(first, first + REACH_EVERY):
            step(index)

    looks: list[tuple[int, float, float]] = []
    seconds, done = 0.0, 0
    while seconds < limit and (not looks or looks[-1][2] < target):
        started = time.perf_counter()
        steps(done)
        seconds, done = seconds + time.perf_counter() - started, done + REACH_EVERY
        looks.append((done, seconds, mrr()))
    return {"s": seconds, "reached": looks[-1][2] >= target, "looks": looks}


def pykeen_reach(target: float, limit: float) -> dict[str, Any]:
    """The same by PyKEEN's loop; the time of its evaluations is taken out."""
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.training import LCWATrainingLoop, TrainingCallback
    from pykeen.triples import TriplesFactory

    train, valid, test, model = _pykeen()
    asked = TriplesFactory.from_labeled_triples(
        np.array(_reach_triples(), dtype=str), entity_to_id=train.entity_to_id, relation_to_id=train.relation_to_id
    ).mapped_triples
    assert len(asked) == REACH_TRIPLES
    more = [train.mapped_triples, valid.mapped_triples, test.mapped_triples]
    looks: list[tuple[int, float, float]] = []
    clock = {"steps": -1, "since": 0.0, "seconds": 0.0}

    class Watch(TrainingCallback):
        def on_batch(self, epoch: int, batch: Any, batch_loss: float, **kwargs: Any) -> None:
            now = time.perf_counter()
            if clock["steps"] >= 0:  # the call is inside a step: the first one starts the clock
                clock["seconds"] += now - clock["since"]
            clock["steps"] += 1
            if clock["steps"] and clock["steps"] % REACH_EVERY == 0:
                found = RankBasedEvaluator().evaluate(
                    model, asked, batch_size=BATCH, additional_filter_triples=more, use_tqdm=False
                )
                model.train()
                looks.append((int(clock["steps"]), clock["seconds"], float(found.get_metric("mrr"))))
                if looks[-1][2] >= target or clock["seconds"] >= limit:
                    raise _EnoughError
            clock["since"] = time.perf_counter()

    loop = LCWATrainingLoop(model=model, triples_factory=train, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3))
    with contextlib.suppress(_EnoughError):
        loop.train(
            train, num_epochs=1000, batch_size=BATCH, label_smoothing=0.1, use_tqdm=False, use_tqdm_batch=False,
            callbacks=[Watch()],
        )  # fmt: skip
    return {"s": looks[-1][1], "reached": looks[-1][2] >= target, "looks": looks}


def _reach_triples() -> list[list[str]]:
    """2,000 distinct validation triples whose entities and relation training has seen, the same for everyone."""
    parts = {}
    for split in ("train", "valid"):
        with gzip.open(data_folder("FB15k-237") / f"{split}.txt.gz", "rt", encoding="utf-8") as file:
            parts[split] = [line.rstrip("\r\n").split("\t") for line in file]
    entities = {e for h, _, t in parts["train"] for e in (h, t)}
    usable = [triple for triple in parts["valid"] if triple[0] in entities and triple[2] in entities]
    places = np.random.default_rng(0).choice(len(usable), REACH_TRIPLES, replace=False)
    return [usable[i] for i in np.sort(places)]


# ---------------------------------------------------------------------- the rival


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
    from graphmill.training.contract import Execution

    recipe = recipe_on("FB15k-237")
    model = recipe.build(Execution()).eval()
    recipe.evaluate(model, "valid", final=False, poll=lambda: None)  # queries of another split: warms nothing but code

    def evaluate(_: int) -> None:
        recipe.evaluate(model, "test", final=True, poll=lambda: None)

    return _timed(evaluate, 1, warm=0)


def pykeen_evaluation() -> list[float]:
    from pykeen.evaluation import RankBasedEvaluator

    train, valid, test, model = _pykeen()
    evaluator = RankBasedEvaluator()
    more = [train.mapped_triples, valid.mapped_triples]

    def evaluate(_: int) -> None:
        evaluator.evaluate(model, test.mapped_triples, batch_size=BATCH, additional_filter_triples=more, use_tqdm=False)

    return _timed(evaluate, 1, warm=0)


# ---------------------------------------------------------------------- the loss alone


def loss_memory(entities: int, chunk: int) -> dict[str, float]:
    """Peak memory of loss and gradients above that of the tables and their gradients."""
    from graphmill.systems.conve.one_to_n import one_to_n_loss

    width = 32
    x = torch.randn(BATCH, width).requires_grad_()
    table = torch.randn(entities, width).requires_grad_()
    bias = torch.zeros(entities).requires_grad_()
    rows, columns = torch.arange(BATCH), torch.randint(0, entities, (BATCH,))
    before = peak_rss()
    started = time.perf_counter()
    one_to_n_loss(x, table, bias, rows, columns, one=0.9, zero=1e-6, block=chunk).backward()
    gradients = (entities * (width + 1) * 4) / 2**30
    return {"own_gb": peak_rss() - before - gradients, "s": time.perf_counter() - started}


# ---------------------------------------------------------------------- influence


def our_influence(train: int, explained: int, checkpoints: int) -> dict[str, float]:
    from graphmill.influence.tracin import Request, TracedCheckpoint, influence
    from graphmill.training.contract import Execution

    recipe = recipe_on("FB15k-237")
    model = recipe.build(Execution()).eval()
    moments = [TracedCheckpoint(i, 1e-3, lambda: (recipe.tracer(model, "fp32"), None)) for i in range(checkpoints)]
    triples = recipe.traced_triples("train")
    triples = triples if train == 0 else triples[:: max(1, len(triples) // train)][:train]
    started = time.perf_counter()
    found = influence(recipe, moments, triples, recipe.traced_triples("test")[:explained], Request())
    seconds = time.perf_counter() - started
    return {"s": seconds, "per_triple": seconds / len(triples) / checkpoints, "norm": float(np.linalg.norm(found))}


def vmap_influence(train: int, explained: int, chunk: int = 32) -> dict[str, float]:
    """Per-example gradients by torch.func.vmap, written out, of the same labels; their dot products with the test's."""
    from torch.func import functional_call, grad, vmap

    from graphmill.training.contract import Execution

    recipe = recipe_on("FB15k-237")
    model = recipe.build(Execution()).eval()
    parameters = {n: p.detach() for n, p in model.named_parameters()}
    buffers = dict(model.named_buffers())
    # The tables' gradients have two rows each: differentiate the rows looked up, as any careful user would.
    dense = {n: p for n, p in parameters.items() if n not in ("entities", "relations", "entity_bias")}
    one = recipe.targets[0]

    class FromVectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, head: torch.Tensor, relation: torch.Tensor) -> torch.Tensor:
            m = self.model
            maps = torch.relu(m.feature_norm(m.convolution(m.input_norm(m.picture(head[None], relation[None])))))
            return torch.relu(m.output_norm(m.projection(maps.flatten(1))))[0]

    wrapped = FromVectors()
    frozen = {f"model.{n}": t for n, t in [*parameters.items(), *buffers.items()] if n not in dense}

    def loss(weights: dict[str, torch.Tensor], head: Any, relation: Any, tail: Any, bias: Any) -> torch.Tensor:
        named = {f"model.{n}": w for n, w in weights.items()} | frozen
        score = functional_call(wrapped, named, (head, relation)) @ tail + bias
        return torch.nn.functional.softplus(score) - one * score

    per_example = vmap(grad(loss, argnums=(0, 1, 2, 3, 4)), in_dims=(None, 0, 0, 0, 0), chunk_size=chunk)

    def flat(labels: np.ndarray) -> torch.Tensor:
        h, r, t = (torch.from_numpy(labels[:, i].copy()) for i in range(3))
        found = per_example(
            dense, parameters["entities"][h], parameters["relations"][r], parameters["entities"][t],
            parameters["entity_bias"][t],
        )  # fmt: skip
        return torch.cat([g.flatten(1) for g in found[0].values()], dim=1)

    triples = recipe.traced_triples("train")
    triples = triples[:: max(1, len(triples) // train)][:train]
    labels = recipe.traced_labels(triples).reshape(-1, 3)
    right = flat(recipe.traced_labels(recipe.traced_triples("test")[:explained]).reshape(-1, 3))
    started = time.perf_counter()
    for start in range(0, len(labels), chunk):
        flat(labels[start : start + chunk]) @ right.T
    seconds = time.perf_counter() - started
    return {"s": seconds, "per_triple": seconds / len(triples)}


def _timed(work: Callable[[int], None], count: int, warm: int = 2) -> list[float]:
    seconds = []
    for index in range(count + warm):
        started = time.perf_counter()
        work(index)
        seconds.append(time.perf_counter() - started)
    return seconds[warm:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=["step", "evaluate", "loss", "tracin", "reach"])
    parser.add_argument("--variant", default="ours", help="ours, ours,bf16, products, pykeen, vmap")
    parser.add_argument("--convolution", action="store_true", help="products: with the convolution's products")
    parser.add_argument("--count", type=int, default=10, help="steps, or training triples (0: all)")
    parser.add_argument("--explained", type=int, default=100)
    parser.add_argument("--checkpoints", type=int, default=1)
    parser.add_argument("--entities", type=int, default=10_000)
    parser.add_argument("--target", type=float, default=0.2, help="reach: the MRR")
    parser.add_argument("--limit", type=float, default=3600, help="reach: seconds of training at most")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    imported = peak_rss()
    found: dict[str, Any]
    if args.workload == "loss":
        found = loss_memory(args.entities, 8192)
    elif args.workload == "tracin":
        mine = args.variant == "ours"
        found = (
            our_influence(args.count, args.explained, args.checkpoints)
            if mine
            else vmap_influence(args.count, args.explained)
        )
    elif args.workload == "reach" and args.variant == "pykeen":
        found = pykeen_reach(args.target, args.limit)
    elif args.workload == "reach":
        found = our_reach(args.target, args.limit, "bf16" if "bf16" in args.variant else "fp32")
    elif args.workload == "evaluate":
        found = {"seconds": our_evaluation() if args.variant == "ours" else pykeen_evaluation()}
    elif args.variant == "pykeen":
        found = {"seconds": pykeen_steps(args.count)}
    elif args.variant == "products":
        found = {"seconds": product_steps(args.count, args.convolution)}
    else:
        found = {"seconds": our_steps(args.count, "bf16" if "bf16" in args.variant else "fp32")}
    print(json.dumps(found | {"peak_gb": peak_rss(), "imported_gb": imported}))


if __name__ == "__main__":
    main()
