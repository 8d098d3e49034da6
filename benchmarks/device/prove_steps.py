"""The proof's phases about one step: where the kernel workload's goes, and every recipe's at a real size."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from benchmarks.device.prove_common import FOLDER, profiled, row, short, wait
from benchmarks.parts import made_up_graphs


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
        found = profiled(step, device)
        most = found.pop("most")
        row(variant=",".join([kind, *sorted(options)]), **found)
        for name, ms, count in most:
            print(f"   {ms:9.3f} ms {count:6d} x {name}")
        said.append(f"{kind} {found['launches']} launches")
        del model, optimizer
    return "; ".join(said)


_HGT = {"hidden_dim": 256, "embedding_dim": 256, "num_heads": 8, "num_layers": 2}
_SIZES = {
    "hgt": {"model": _HGT, "acceleration": {"batching": "full"}},
    "hgt edge_sampled": {
        "model": _HGT,
        "acceleration": {"batching": "edge_sampled"},
        "sampling": {"accumulation_steps": 4},
    },
    "conve": {"acceleration": {"batch_size": 1024}},
    "sasrec": {"acceleration": {"batch_size": 128}},
    "tisasrec": {"acceleration": {"batch_size": 128}},
    "bpr_mf": {"acceleration": {"batch_size": 4096}},
    "kgat": {"acceleration": {"batch_size": 2048}},
    "mmgcn": {"acceleration": {"batch_size": 2048}},
    "dragon": {"acceleration": {"batch_size": 2048}},
}


_OF = {"tisasrec": "sasrec", "kgat": "bpr_mf", "mmgcn": "bpr_mf", "dragon": "bpr_mf", "hgt edge_sampled": "hgt"}
"""Systems that learn from another's graph."""
_TINY = {"hgt": {"model": {"hidden_dim": 16, "embedding_dim": 16, "num_heads": 2}}}


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


def recipes(device: torch.device, tiny: bool) -> str:
    """A step of every recipe at a real size: sampling, each precision, launches, memory beside the planner's figure."""
    graphs: dict[str, Any] = {}
    failed = []
    for label, own in _SIZES.items():
        source = _OF.get(label, label)
        if tiny and label not in ("hgt", "bpr_mf", "conve"):
            continue
        for precision in ("fp32",) if tiny else ("fp32", "tf32", "bf16", "fp16"):
            try:
                graph = graphs.get(source) or graphs.setdefault(source, _graph(source, tiny))
                chosen: Any = _TINY.get(label, {"acceleration": {"batch_size": 50}}) if tiny else own
                _recipe(label, {"data": str(graph.path), **chosen}, graph, precision, device, 2 if tiny else 10)
            except Exception as error:
                row(recipe=label.replace(" ", "_"), precision=precision, failed=short(error))
                failed.append(f"{label} {precision}")
    torch.backends.cuda.matmul.allow_tf32 = False
    return f"failed: {', '.join(failed)}" if failed else "all ran"


def _recipe(label: str, own: dict[str, Any], graph: Any, precision: str, device: torch.device, steps: int) -> None:
    """Some steps of one recipe in one precision, as a row."""
    from graphmill.runs.planning import plan_run
    from graphmill.runs.resolve import merge, resolve
    from graphmill.systems import registry
    from graphmill.training.optimizers import PhaseOptimizer
    from graphmill.training.precision import Precision
    from graphmill.training.processes import Ranks
    from graphmill.training.step import clip_, compute_gradient

    exact = "fp32" if precision == "tf32" else precision
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    on_device = {"acceleration": {"device": device.type, "allow_fallback": False, "precision": exact}}
    job = resolve(merge({"recipe": label.split()[0], "preset": "none", **own}, on_device), "prove")
    plan = plan_run(job, graph, "prove")
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    recipe = registry.create(label.split()[0], graph, job.settings, job.batching)
    recipe.to(device)
    execution = plan.execution(job)
    model = recipe.build(execution).to(device).train()
    phase = recipe.phases[0]
    optimizer = PhaseOptimizer(job.settings.training, recipe.parameter_groups(model, phase), device)
    arithmetic = Precision(exact, device)

    def step(batch: Any) -> None:
        options = {"execution": execution, "precision": arithmetic, "ranks": Ranks(), "seed_parts": (0, "prove", 0, 0)}
        gradient = compute_gradient(recipe, model, optimizer.parameters, batch, **options)  # type: ignore[arg-type]
        if gradient.finite:
            clip_(optimizer.parameters, gradient.norm, 0.0)
            optimizer.step(1e-4)
        model.zero_grad()

    sampling, step_times = [], []
    for number in range(steps):
        begin = time.perf_counter()
        batch = recipe.step(phase, 0, number % phase.steps_per_epoch)
        sampling.append(time.perf_counter() - begin)
        wait(device)
        begin = time.perf_counter()
        step(batch)
        wait(device)
        step_times.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    more = profiled(lambda: step(batch), device) if precision in ("fp32", "bf16") else {}
    most = more.pop("most", [])
    row(
        recipe=label.replace(" ", "_"),
        precision=precision,
        ms=statistics.median(step_times[3:] or step_times) * 1e3,
        sampling_ms=statistics.median(sampling[3:] or sampling) * 1e3,
        peak_mb=peak / 1e6,
        planned_mb=(plan.option.estimate.peak if plan.option else 0) / 1e6,
        **more,
    )
    for kernel, ms, count in most[:4]:
        print(f"   {ms:9.3f} ms {count:6d} x {kernel}")
