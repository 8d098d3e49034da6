"""The whole life of a run of every training case on a pretended device, one after the other in one process.

``python -m tests.device.rehearsal mps --precision fp32 --out found.json [CASE ...]`` trains, evaluates, checkpoints, is
stopped in the middle of an epoch, goes on, ends with its final figures, and then exports, ranks, recommends and traces
influence; in fp32 its run is also used (``uses.py``). Of each case it says what would have failed on that device, and
what a step asks of it: launches and waits of the gradient and of the whole step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from benchmarks.parts.made_up_graphs import typed

from graphmill.graph.typed_graph import TypedGraph
from tests.device import drawing, pretend
from tests.training.cases import CASES, STEPPED, Case

PARTS = ("launches", "waits")


def _typed(out: Path) -> TypedGraph:
    graph: TypedGraph = typed(out, 200, 900, 25)
    return graph


_SAMPLED: dict[str, dict[str, Any]] = {
    "full": {},
    "edge_sampled": {"edge_sample_size": 40},
}
_SIZES = {"embedding_dim": 16, "hidden_dim": 16, "num_heads": 2, "num_layers": 2}
RANKED_WITH_BASELINES = "conve-kvsall"
AS_IT_IS = "no settings, 25 relations"
"""HGT as it is by default."""
MANY_RELATIONS = {
    f"{mode}, 25 relations, {loss}": Case(
        "hgt",
        {"model": _SIZES, "objective": {"loss": loss}, "acceleration": {"batching": mode}, "sampling": sizes},
        graph=_typed,
    )
    for loss in ("link_contrastive", "softmax")
    for mode, sizes in _SAMPLED.items()
} | {AS_IT_IS: Case("hgt", {}, graph=_typed)}
"""Steps only, in the parts that the settings have by themselves. What they launch must not grow with the relations."""


def counted_in_ci(name: str, precision: str) -> bool:
    """Whether every run of the tests counts the launches of this case of 25 relations."""
    return precision == "fp32" or (precision == "bf16" and ("sampled" in name or name == AS_IT_IS))


def rehearse(name: str, kind: str, precision: str, folder: Path, device: pretend.Dispatch) -> dict[str, Any]:
    """One case: problems, the error it ended with ("" for none), and medians a step: of each phase, and the largest."""
    tally = pretend.DEVICE.tally
    tally.clear()
    steps: dict[str, list[tuple[int, ...]]] = {}
    last: dict[str, Counter[str]] = {}
    error = ""
    try:
        with device:
            _life(name, kind, precision, folder, steps, last)
    except Exception as problem:
        frames = [f for f in traceback.extract_tb(problem.__traceback__) if "/graphmill/" in f.filename][-1:]
        where = "".join(f" at {Path(f.filename).name}:{f.lineno}" for f in frames)
        error = f"{type(problem).__name__}: {str(problem)[:300]}{where}"
    phases = {
        phase: {
            part: int(statistics.median(column)) for part, column in zip(PARTS, zip(*counts, strict=True), strict=True)
        }
        for phase, counts in steps.items()
        if counts
    }
    return {
        "error": error,
        "problems": dict(tally.problems),
        "phases": phases,
        "a_step": {part: max((medians[part] for medians in phases.values()), default=0) for part in PARTS},
        "steps": {phase: len(counts) for phase, counts in steps.items()},
        "peak_bytes": tally.peak_bytes,
        "last_step": {name: dict(counter.most_common(60)) for name, counter in last.items()},
    }


def _life(
    name: str,
    kind: str,
    precision: str,
    folder: Path,
    steps: dict[str, list[tuple[int, ...]]],
    last: dict[str, Counter[str]],
) -> None:
    from graphmill.errors import StoppedError
    from graphmill.influence.settings import InfluenceSettings
    from graphmill.runs.export import evaluate_run, export_run, restore
    from graphmill.runs.train import train
    from graphmill.systems.registry import entry
    from graphmill.training.engine import Engine
    from graphmill.training.run_directory import RunDirectory
    from graphmill.training.signals import StopRequest
    from graphmill.usage.explain import trace_influence
    from graphmill.usage.ranking import rank_any
    from graphmill.usage.recommendations import recommend_run
    from tests.device import uses
    from tests.training.runs import settings_of

    case = {**CASES, **MANY_RELATIONS}[name]
    graph = case.graph(folder / "graph")
    on_device = {"device": kind, "precision": precision}
    parts = 4 if name in MANY_RELATIONS else 2  # micro-batches
    on_device["micro_batches"] = 1 if name in MANY_RELATIONS else parts  # what a step launches: as the settings have it
    short = {"epochs": 2, "steps_per_epoch": 3, "warmup_steps": 1, "lr_decay_epochs": 0}
    kept = {"keep_influence": 2, "checkpoint_every_epochs": 1}
    # One evaluation in the training; baselines have a precision of their own, and are those of one case for all.
    with_baselines = precision == "fp32" and name == RANKED_WITH_BASELINES
    judged: dict[str, Any] = {"eval_every": 2} | ({} if with_baselines else {"baselines": []})
    more = {"acceleration": on_device | kept, "training": short, "evaluation": judged, "export": {"csv": False}}
    values = settings_of(case, graph, more)
    (folder / "runs").mkdir()
    stop, whole = StopRequest(), Engine._step

    def counted(engine: Any, phase: Any, *rest: Any) -> None:
        tally = pretend.DEVICE.tally
        before, waits, places = tally.counts(), tally.waits.copy(), tally.places.copy()
        whole(engine, phase, *rest)
        for each in engine.system.phases:
            steps.setdefault(each.name, [])
        steps[phase.name].append(tuple(b - a for a, b in zip(before, tally.counts(), strict=True)))
        last.update(waits=tally.waits - waits, places=tally.places - places)
        if sum(len(counts) for counts in steps.values()) == 2:
            stop.request()

    Engine._step = counted  # type: ignore[method-assign]
    try:
        try:
            train(values, "rehearsal", root=str(folder / "runs"), stop=stop)
            raise AssertionError("it was asked to stop, and did not")
        except StoppedError:
            pass
        result = train(values, "rehearsal", root=str(folder / "runs"))
    finally:
        Engine._step = whole  # type: ignore[method-assign]
    assert result["device"] == kind, result["device"]
    numbers = [record["step"] for record in RunDirectory(result["run_dir"]).metrics.read("step")]
    assert numbers == sorted(numbers), "steps are recorded in their order, whichever of them is read later"
    if name in MANY_RELATIONS:
        return
    used = precision == "fp32" and name in uses.CASES
    if used and not entry(case.system).recommends:
        uses.predicts(result["run_dir"])
    restored = restore(result["run_dir"])
    export_run(restored)
    evaluate_run(restored)
    rank_any(restored)
    if restored.entry.recommends:
        recommend_run(restored, 5)
    if restored.entry.traces:
        request = InfluenceSettings.model_validate({"max_test_triples": 2, "top_k": 2, "checkpoints": 1})
        trace_influence(result["run_dir"], request, out=folder / "influence")
    if used:
        uses.use(restored, folder / "uses")


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", choices=("cuda", "mps"))
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = pretend.install(arguments.device)
    drawing.watch()
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        # Half precision casts weights, so its launches are others. What `full` launches in it is far from the limit.
        # bf16 has the most launches of the sampled modes; `make test-long` counts those of fp16.
        many = [name for name in MANY_RELATIONS if counted_in_ci(name, arguments.precision)]
        for name in arguments.cases or [*STEPPED, *many]:
            one = rehearse(name, arguments.device, arguments.precision, Path(folder) / name, device)
            result[name] = one
            print(f"{name}: {one['phases']}; {one['error'] or 'no error'}", flush=True)
            for problem, count in one["problems"].items():
                print(f"   {count} x {problem}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
