"""What the tests of sharding by rows run: ``python -m tests.training.sharding_program GROUPS.json``.

One start serves all: each group of jobs is done by ranks that are forks of this process. For every job the gradient of
a step in float64, put together of all ranks' rows, the bytes of the step and of a pass over the layers, and, where asked
for, a whole training in float64 through the worker, at a step of which a rank may kill itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs import train as worker
from graphmill.runs.resolve import resolve
from graphmill.systems import registry
from graphmill.training import engine, sharding
from graphmill.training.contract import StepSizes
from graphmill.training.precision import Precision
from graphmill.training.processes import Ranks, join
from graphmill.training.step import compute_gradient
from tests.training.forked_ranks import fork_ranks


def one_step(values: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """Per phase the whole gradient by name, losses and norm; figures of a validation; the bytes sent for the layers."""
    job = resolve(values, "sharding_program")
    system = registry.create(job.settings.system, TypedGraph.open(job.settings.data), job.settings, job.batching)
    if ranks.world > 1:
        system.shard(ranks)
    system.to(torch.device("cpu"))
    model = system.build(StepSizes())
    if system.shards is not None:
        system.shards.cut(model)
    model = model.double().train()
    system.begin_epoch(model, 1)
    named, out = dict(model.named_parameters()), {}
    for phase in system.phases:
        names = [n for g in system.parameter_groups(model, phase) for n in g.names]
        for parameter in model.parameters():
            parameter.grad = None
        reduced, exchanged = ranks.bytes_reduced, ranks.bytes_exchanged
        with batch_rows() as request:
            result = compute_gradient(
                system,
                model,
                [named[n] for n in names],
                system.step(phase, 1, 2),
                step_sizes=StepSizes(micro_batches=2),
                precision=Precision("fp32", torch.device("cpu")),
                ranks=ranks,
                seed_parts=(0, phase.name, 1, 2),
            )
        exchanged = ranks.bytes_exchanged - exchanged
        of_all = ranks.sum_floats([float(exchanged), float(sum(request))])
        gradients = {n: named[n].grad for n in names if named[n].grad is not None}
        if (shards := system.shards) is not None:
            for n in [n for n in gradients if shards.holds(named[n])]:
                gradients[n] = shards.whole(shards.bounds[n], gradients[n])
        out[phase.name] = {
            "gradients": {n: g.clone() for n, g in gradients.items()},
            "losses": result.losses,
            "norm": result.norm,
            "reduced": ranks.bytes_reduced - reduced,
            "exchanged": of_all[0] / ranks.world,
            "asked": of_all[1] / ranks.world,
        }
    sent = {}
    if system.shards is not None:
        ranges = {n: system.shards.range_of(n) for n in system.shards.bounds}
        rows = {n: last - first for n, (first, last) in ranges.items()}
        read = ranks.sum_floats([float(rows_read(system))])[0] / ranks.world
        sent = {"rows": rows, "layers": layer_bytes(system, model, ranks), "read": read}
    with torch.no_grad():
        vectors = np.concatenate([block.vectors for block in system.embeddings(model.eval())])
    return {"phases": out, "sent": sent, "vectors": vectors}


@contextlib.contextmanager
def batch_rows() -> Iterator[list[int]]:
    """Bytes of the rows that a rank's part of a batch reads, on whichever rank they are: a number for each fetch.

    Those are the fetches of exchanges that are made while this is open; the layers' exchanges were made with the graph.
    """
    kind, request = sharding.RowExchange, list[int]()
    make, fetch = kind.__init__, kind.fetch

    def making(self: Any, ranks: Ranks, bounds: Any, wanted: np.ndarray, device: torch.device) -> None:
        make(self, ranks, bounds, wanted, device)

        def fetching(rows: torch.Tensor) -> torch.Tensor:
            request.append(len(wanted) * rows.shape[1] * rows.element_size())
            return fetch(self, rows)

        self.fetch = fetching

    kind.__init__ = making  # type: ignore[method-assign]
    try:
        yield request
    finally:
        kind.__init__ = make  # type: ignore[method-assign]


def rows_read(system: Any) -> int:
    """How many nodes of other ranks the edges into this rank's nodes come from: what it fetches for a layer."""
    if system.name == "lightgcn":
        exchanges = [system._graph.user_rows.exchange, system._graph.item_rows.exchange]
    else:
        exchanges = [system.mine.matrix.exchange if system.name == "kgat" else system.mine.exchange]
    return sum(sum(each._received) - each._received[each.ranks.rank] for each in exchanges)


def layer_bytes(system: Any, model: torch.nn.Module, ranks: Ranks) -> float:
    """What a rank sends for one pass over the layers, both ways, as a mean over the ranks."""
    before = ranks.bytes_exchanged
    states = propagated(system, model)
    torch.stack([state.sum() for state in states]).sum().backward()
    return ranks.sum_floats([float(ranks.bytes_exchanged - before)])[0] / ranks.world


def propagated(system: Any, model: Any) -> Any:
    """Each layer's result, or what comes of them."""
    if system.name == "lightgcn":
        return model(system._graph)
    if system.name == "kgat":
        return model(model.nodes(), system._matrix(model))
    return [system.mine._embed(model.encoder, system.inputs(system.spectral(model)), None, None)]


def in_float64() -> None:
    """Every model that is built from now on has float64 numbers, and so have its moments and checkpoints."""
    create = registry.create

    def creating(*arguments: Any) -> Any:
        system: Any = create(*arguments)
        build, evaluate = system.build, system.evaluate
        system.build = lambda step_sizes: build(step_sizes).double()
        if system.name == "hgt":  # which scores vectors of fp32 with its decoder
            system.evaluate = lambda model, *split, **more: evaluate(deepcopy(model).float(), *split, **more)
        return system

    registry.create = creating


def kill_at(step: int, ranks: Ranks) -> None:
    """The last rank kills itself before this step's gradient."""
    compute, process = engine.compute_gradient, [0]

    def computing(*arguments: Any, **options: Any) -> Any:
        process[0] += 1
        if process[0] == step and ranks.rank == ranks.world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return compute(*arguments, **options)

    engine.compute_gradient = computing


def work(jobs: list[dict[str, Any]], folder: Path) -> None:
    """Do the jobs in order, all ranks together."""
    ranks = join()
    worker.join = lambda *_: ranks  # type: ignore[assignment]
    ranks.close = lambda: None  # type: ignore[method-assign]
    for job in jobs:
        places = ("lightgcn.system", "kgat.system", "hgt.rank_messages")
        modules = [import_module(f"graphmill.systems.{place}") for place in places]
        if job.get("empty"):  # of three the second holds nothing, of two the first
            for module in modules:
                module.divide = lambda work, parts: (0, *[len(work) // 3 * (parts - 2)] * (parts - 1), len(work))  # type: ignore[attr-defined]
        if job.get("step"):
            result = one_step(job["values"], ranks)
            if ranks.main:
                torch.save(result, folder / f"{job['name']}.pt")
        for module in modules:
            module.divide = sharding.divide  # type: ignore[attr-defined]
        if job.get("train"):
            in_float64()
            if job.get("kill_at"):
                kill_at(job["kill_at"], ranks)
            result = worker.train(job["values"], "sharding_program", root=job["train"])
            if ranks.main:
                torch.save(result, folder / f"{job['name']}.pt")
        ranks.barrier()
    torch.distributed.destroy_process_group()


def main(path: Path) -> None:
    """Do the jobs of each group of the file, and leave the exit codes of its ranks in ``codes.json``."""
    torch.set_num_threads(1)
    groups = json.loads(path.read_text())
    codes = [fork_ranks(each["world"], partial(work, each["jobs"], Path(each["folder"]))) for each in groups]
    path.with_name("codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
