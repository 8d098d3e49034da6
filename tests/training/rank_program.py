"""What the tests of several processes run: ``python -m tests.training.rank_program WORLD JOBS.json``.

One start serves all cases: the ranks are forks of this process. For every job the gradient of one step in float64, the
bytes that were reduced for it, and, where asked for, a whole training through the worker. Rank 0 leaves ``NAME.pt``.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from graphmill.errors import TrainingError
from graphmill.evaluation.ranking.shared_queries import Share, shared
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs import train as worker
from graphmill.runs.resolve import resolve
from graphmill.systems import registry
from graphmill.training.contract import Encoded, StepBatch, StepSizes, System
from graphmill.training.precision import Precision
from graphmill.training.processes import Ranks, join
from graphmill.training.sharding import require_equal_replicas
from graphmill.training.step import compute_gradient
from tests.training.forked_ranks import fork_ranks


def gradients(values: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """Per phase: gradients by name, losses, norm, bytes reduced, and what they are at least, both ways that there are."""
    job = resolve(values, "rank_program")
    system = registry.create(job.settings.system, TypedGraph.open(job.settings.data), job.settings, job.batching)
    system.to(torch.device("cpu"))
    model = system.build(StepSizes()).double().train()
    named, out = dict(model.named_parameters()), {}
    for phase in system.phases:
        names = [n for g in system.parameter_groups(model, phase) for n in g.names]
        for parameter in model.parameters():
            parameter.grad = None
        before = ranks.bytes_reduced
        batch = system.step(phase, 1, 2)
        result = compute_gradient(
            system,
            model,
            [named[n] for n in names],
            batch,
            step_sizes=StepSizes(micro_batches=2),
            precision=Precision("fp32", torch.device("cpu")),
            ranks=ranks,
            seed_parts=(0, phase.name, 1, 2),
        )
        with_gradient = [n for n in names if named[n].grad is not None]
        out[phase.name] = {
            "gradients": {n: named[n].grad.clone() for n in with_gradient},
            "losses": result.losses,
            "norm": result.norm,
            "bytes": ranks.bytes_reduced - before,
            "parameter_bytes": sum(named[n].numel() * 8 for n in with_gradient),
            "encoding_bytes": None,
        }
        if batch.replicated:
            out[phase.name]["encoding_bytes"] = least_bytes(system, model, batch, [named[n] for n in names])
    return out


def least_bytes(system: System, model: torch.nn.Module, batch: StepBatch, parameters: list[torch.nn.Parameter]) -> int:
    """What must be reduced at least for a replicated step: the encoding's gradient and those that pass it by."""
    (group,) = batch.shard(0, 2).groups()  # a share: of a whole batch only the rows in it may be encoded
    encoded = system.encode(model, group)
    if encoded is None:
        return sum(p.numel() * p.element_size() for p in parameters)
    leaves = {name: t.detach().requires_grad_(t.requires_grad) for name, t in encoded.tensors.items()}
    loss = torch.stack([term.sum for term in system.terms(model, group, Encoded(leaves))]).sum()
    for parameter in parameters:
        parameter.grad = None  # rows of a table are added to a gradient that is there, and none is handed on
    direct = torch.autograd.grad(loss, parameters, allow_unused=True)
    reduced = [*(t for t in leaves.values() if t.requires_grad), *(g for g in direct if g is not None)]
    return sum(t.numel() * t.element_size() for t in reduced)


def evaluations(values: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """Validation figures of the same weights, by this process alone and by all of them together."""
    job = resolve(values, "rank_program")
    system = registry.create(job.settings.system, TypedGraph.open(job.settings.data), job.settings, job.batching)
    system.to(torch.device("cpu"))
    model = system.build(StepSizes()).eval()
    share = Share(ranks.rank, ranks.world, ranks.sum_array)
    with torch.no_grad():
        alone = system.evaluate(model, "valid", final=True, poll=lambda: None)
        with shared(share):
            together = system.evaluate(model, "valid", final=True, poll=lambda: None)
    return {"alone": alone, "shared": together, "blocks": share.blocks}


def drift(values: dict[str, Any], ranks: Ranks) -> list[str]:
    """What is said of equal replicas, and of one whose last parameter differs by one bit on the last rank."""
    job = resolve(values, "rank_program")
    system = registry.create(job.settings.system, TypedGraph.open(job.settings.data), job.settings, job.batching)
    model, said = system.build(StepSizes()), []
    for flipped in (False, True):
        name, last = list(model.named_parameters())[-1]
        if flipped and ranks.rank == ranks.world - 1:
            last.detach().view(-1)[0:1].view(torch.int32).bitwise_xor_(1)
        try:
            require_equal_replicas(model, ranks, "after epoch 1, step 2")
            said.append("")
        except TrainingError as error:
            said.append(str(error).replace(name, "LAST"))
    return said


def work(path: Path) -> None:
    """Do the jobs of the file in order, all ranks together."""
    ranks = join()
    # One process group for all jobs: the worker joins and leaves the one that is there.
    worker.join = lambda *_: ranks  # type: ignore[assignment]
    ranks.close = lambda: None  # type: ignore[method-assign]
    for job in json.loads(path.read_text()):
        result = {"gradients": gradients(job["values"], ranks)}
        if not job["name"].endswith("-tiny"):
            result["evaluated"] = evaluations(job["values"], ranks)
            result["drift"] = drift(job["values"], ranks)
        if job["train"]:
            result["result"] = worker.train(job["values"], "rank_program", root=job["train"])
        if ranks.main:
            torch.save(result, path.parent / f"{job['name']}.pt")
        ranks.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(any(fork_ranks(int(sys.argv[1]), partial(work, Path(sys.argv[2])))))
