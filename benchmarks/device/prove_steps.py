"""The proof's phases about one step: where the kernel workload's goes, and every system's at a real size."""

from __future__ import annotations

import statistics
import time
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from benchmarks.device import plain_forms
from benchmarks.device.prove_common import FOLDER, case, profiled, row, wait
from benchmarks.parts import made_up_graphs
from graphmill.runs.planning import plan_run
from graphmill.runs.resolve import merge, resolve
from graphmill.systems import registry
from graphmill.training.allocator import HeapWatch
from graphmill.training.device import empty_device_cache
from graphmill.training.engine import Engine
from graphmill.training.run_state import TrainingListener


def profile_phase(device: torch.device, tiny: bool) -> str:
    """Where a step of the kernel workload goes: launches against the device's time at work."""
    from benchmarks.parts import hgt_graphs, hgt_step

    said = []
    for kind, options in (("ours", set()), ("ours", {"bf16"}), ("pyg", {"repaired"}))[: 1 if tiny else 3]:
        torch.manual_seed(0)
        graph = hgt_graphs.synthetic(300, 900, 30) if tiny else hgt_graphs.load("67k")
        model = (hgt_step.Ours if kind == "ours" else hgt_step.PyG)(graph, set(options)).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

        def step(model: Any = model, optimizer: Any = optimizer) -> None:
            hgt_step.mean_squares(model()).backward()
            optimizer.step()
            optimizer.zero_grad()

        for _ in range(1 if tiny else 4):
            step()
        result = profiled(step, device)
        most = result.pop("most")
        row(variant=",".join([kind, *sorted(options)]), **result)
        for name, ms, count in most:
            print(f"   {ms:9.3f} ms {count:6d} x {name}")
        said.append(f"{kind} {result['launches']} launches")
        del model, optimizer
    return "; ".join(said)


_HGT = {"hidden_dim": 256, "embedding_dim": 256, "num_heads": 8, "num_layers": 2}
_SIZES: dict[str, dict[str, Any]] = {
    "hgt default": {"acceleration": {"micro_batches": 1}},
    "hgt in four chunks": {},
    "hgt": {"model": _HGT, "acceleration": {"batching": "full"}},
    "hgt edge_sampled": {
        "model": _HGT,
        "acceleration": {"batching": "edge_sampled"},
    },
    "conve": {"acceleration": {"batch_size": 1024}},
    "sasrec": {"acceleration": {"batch_size": 128}},
    "tisasrec": {"acceleration": {"batch_size": 128}},
    "mf": {"acceleration": {"batch_size": 4096}},
    "lightgcn": {"acceleration": {"batch_size": 4096}},
    "complex": {"acceleration": {"batch_size": 1024}},
    "kgat": {"acceleration": {"batch_size": 2048}},
    "mmgcn": {"acceleration": {"batch_size": 2048}},
    "dragon": {"acceleration": {"batch_size": 2048}},
}
"""What is written of each system's settings; the first are those that a cut-off would cost most."""
_OF = {
    "tisasrec": "sasrec",
    "complex": "conve",
    "lightgcn": "mf",
    "kgat": "mf",
    "mmgcn": "mf",
    "dragon": "mf",
    "hgt default": "hgt",
    "hgt in four chunks": "hgt",
    "hgt edge_sampled": "hgt",
}
"""Systems that learn from another's graph."""
_TINY: dict[str, dict[str, Any]] = {
    "hgt default": {"acceleration": {"micro_batches": 1}},
    "hgt": {"model": _HGT | {"hidden_dim": 16, "embedding_dim": 16, "num_heads": 2}},
    **{label: {"acceleration": {"batch_size": 50}} for label in ("conve", "mf", "kgat")},
}


@cache
def _graph(source: str, tiny: bool) -> Any:
    if source == "hgt":
        return made_up_graphs.typed(FOLDER, *((300, 900, 10) if tiny else (67_000, 200_000, 30)))
    if source == "conve":
        return made_up_graphs.triples(FOLDER, *((120, 6, 900) if tiny else (14_541, 237, 272_000)))
    if source == "sasrec":
        return made_up_graphs.sequences(FOLDER, *((60, 50, 8) if tiny else (4_000, 3_400, 200)))
    return made_up_graphs.interactions(
        FOLDER, *((80, 60, 900, 200, 8) if tiny else (20_000, 10_000, 600_000, 200_000, 768))
    )


def systems(device: torch.device, tiny: bool) -> str:
    """A step of every system at a real size: sampling, each precision, launches, memory beside the planner's figure."""
    for label, settings in (_TINY if tiny else _SIZES).items():
        for precision in ("fp32",) if tiny else ("fp32", "bf16"):
            with case(system=label, precision=precision):
                _system(label, settings, precision, device, tiny)
    return "all ran"


class _Notes(TrainingListener):
    """A listener that says what goes wrong."""

    def on_note(self, text: str) -> None:
        print("NOTE", text)


class Trained:
    """A system on the device, stepped by the engine: each phase by its own optimizer, losses read as often as there."""

    def __init__(self, label: str, settings: dict[str, Any], graph: Any, precision: str, device: torch.device) -> None:
        on_device = {"device": device.type, "precision": precision}
        values = {"system": label.split()[0], "preset": "none", **settings}
        job = resolve(merge(values, {"data": str(graph.path), "acceleration": on_device}), "prove")
        self.plan = plan_run(job, graph, "prove")
        self.system: Any = registry.create(label.split()[0], graph, job.settings, job.batching)
        s, step_sizes = job.settings, self.plan.option.step_sizes()
        self.engine = Engine(
            self.system, s.training, s.acceleration, s.evaluation,
            device=device, precision=job.precision, step_sizes=step_sizes, listener=_Notes(),
        )  # fmt: skip
        self.engine._heap = HeapWatch()

    def batch(self, number: int, phase: int = 0) -> Any:
        one = self.system.phases[phase]
        return self.system.step(one, 0, number % one.steps_per_epoch)

    def step(self, batch: Any, phase: int = 0) -> None:
        self.engine.batches = lambda *_: batch  # type: ignore[assignment]
        self.engine._step(self.system.phases[phase], 0, 0)


def _system(label: str, settings: dict[str, Any], precision: str, device: torch.device, tiny: bool) -> None:
    """Some steps of each phase in one precision, a row a phase."""
    made = Trained(label, settings, _graph(_OF.get(label, label), tiny), precision, device)
    option, phases = made.plan.option, made.system.phases
    for number, phase in enumerate(phases):
        empty_device_cache(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        sampling, steps = [], []
        for turn in range(2 if tiny else 10):
            begin = time.perf_counter()
            batch = made.batch(turn, number)
            sampling.append(time.perf_counter() - begin)
            wait(device)
            begin = time.perf_counter()
            made.step(batch, number)
            wait(device)
            steps.append(time.perf_counter() - begin)
        peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
        more = profiled(partial(made.step, batch, number), device)
        most = more.pop("most")
        row(
            system=label + f", {phase.name}" * (len(phases) > 1),
            precision=precision,
            ms=statistics.median(steps[3:] or steps) * 1e3,
            sampling_ms=statistics.median(sampling[3:] or sampling) * 1e3,
            peak_mb=peak / 1e6,
            planned_mb=(option.estimate.peak if option else 0) / 1e6,
            **more,
        )
        for kernel, ms, count in most[:4]:
            print(f"   {ms:9.3f} ms {count:6d} x {kernel}")


def plain(device: torch.device, tiny: bool) -> str:
    """SASRec's and KGAT's steps in turn with their public PyTorch form, from batches on the host; fp32."""
    said = []
    for name, both in (("sasrec", _sasrec_pair), ("kgat_pairs", _kgat_pair), ("kgat_facts", _kgat_pair)):
        ours, theirs = both(name, device, tiny)
        seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(1 if tiny else 9):
            for which, step in (("ours", ours), ("theirs", theirs)):
                wait(device)
                begin = time.perf_counter()
                for number in range(2 if tiny else 20):
                    step(number)
                wait(device)
                seconds[which].append((time.perf_counter() - begin) / (2 if tiny else 20))
        a, b = (statistics.median(seconds[which][2:] or seconds[which]) * 1e3 for which in ("ours", "theirs"))
        row(
            step=name, ms=a, plain_ms=b, faster=b / a,
            launches=profiled(lambda: ours(0), device)["launches"],  # noqa: B023
            plain_launches=profiled(lambda: theirs(0), device)["launches"],  # noqa: B023
        )  # fmt: skip
        said.append(f"{name} {b / a:.3g} x")
    return "; ".join(said)


def _sasrec_pair(name: str, device: torch.device, tiny: bool) -> tuple[Any, Any]:
    """By the papers' training: width 50, 200 items, one negative; users' newest windows, 128 a step."""
    length, size = (10, 16) if tiny else (200, 128)
    graph = _graph("sasrec", tiny)
    settings = {
        "model": {"embedding_dim": 50, "norm": "original", "max_length": length},
        "objective": {"loss": "bce", "windows": "last"},
        "acceleration": {"batch_size": size},
    }
    made = Trained(name, settings, graph, "fp32", device)
    batches = [made.batch(n) for n in range(4)]
    items = 1 + max(int(max(b.items.max(), b.targets.max(), b.negatives.max())) for b in batches)
    rows = [_padded(b, length) for b in batches]
    model = plain_forms.Sasrec(items, length, 50, 2, 1, 0.2).to(device).train()
    step = plain_forms.sasrec_step(model)
    return lambda n: made.step(batches[n % 4]), lambda n: step(*rows[n % 4])


def _padded(batch: Any, length: int) -> list[np.ndarray]:
    """Items, next items and negatives as rows of ``length``, the newest last, 0 before them."""
    out = [np.zeros((len(batch.lengths), length), np.int64) for _ in range(3)]
    ends = np.cumsum(batch.lengths)
    for row_, (end, count) in enumerate(zip(ends, batch.lengths, strict=True)):
        for rows, values in zip(out, (batch.items, batch.targets, batch.negatives[:, 0]), strict=True):
            rows[row_, length - count :] = values[end - count : end] + 1
    return out


def _kgat_pair(name: str, device: torch.device, tiny: bool) -> tuple[Any, Any]:
    """As published: width 64, layers of 64, 32 and 16, one negative; 1,024 pairs or 2,048 facts a step."""
    made, step = _kgats(device, tiny)
    view, phase = made.system.view, int(name == "kgat_facts")
    batches = [made.batch(n, phase) for n in range(4)]
    rows = [
        (b.heads, b.relations, b.tails, b.wrong_tails)
        if phase
        else (b.users + view.user_offset, b.positives + view.item_offset, b.negatives.reshape(-1) + view.item_offset)
        for b in batches
    ]
    return lambda n: made.step(batches[n % 4], phase), lambda n: step(*rows[n % 4])


@cache
def _kgats(device: torch.device, tiny: bool) -> tuple[Any, Any]:
    """Ours and the public form's step, on a graph of about the size of KGAT's last-fm."""
    sizes = (80, 60, 900, 200, 8) if tiny else (24_000, 48_000, 2_000_000, 460_000, 8)
    graph = made_up_graphs.interactions(FOLDER / "plain", *sizes)
    settings = {"acceleration": {"batch_size": 50 if tiny else 1024}}
    made = Trained("kgat", settings, graph, "fp32", device)
    facts, count = made.system.facts, graph.num_nodes
    places = torch.from_numpy(np.stack((facts.head, facts.tail)))
    weights = torch.from_numpy(facts.first_values.copy())
    matrix = torch.sparse_coo_tensor(places, weights, (count, count)).coalesce().to(device)
    model = plain_forms.Kgat(count, facts.num_relations, [64, 64, 32, 16], matrix, 0.1).to(device).train()
    return made, plain_forms.kgat_step(model)
