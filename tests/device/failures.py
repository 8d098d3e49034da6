"""What fails on a pretended device, and what becomes of the run: ``python -m tests.device.failures cuda`` (or ``mps``).

Prints one JSON line: for each failure what the run says of it. The device of the test is pretended for the whole process.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from tests.device import drawing, pretend

# What torch raises for them, NotImplementedError among it: see test_failures.py.
FAILURES: dict[str, Exception] = {
    "a dtype": TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64"),
    "an operator": NotImplementedError("The operator 'aten::_foo' is not currently implemented for the MPS device"),
    "a kernel": RuntimeError("CUDA error: an illegal memory access was encountered"),
}


@contextmanager
def failing(step: int, error: Exception) -> Iterator[None]:
    """The gradient of a step on the device fails; the CPU's never does."""
    from graphmill.training import engine

    compute, seen = engine.compute_gradient, [0]

    def failed(*arguments: Any, **options: Any) -> Any:
        seen[0] += 1
        if seen[0] > step and options["precision"].device.type != "cpu":
            raise error
        return compute(*arguments, **options)

    engine.compute_gradient = failed
    try:
        yield
    finally:
        engine.compute_gradient = compute


def falls_back(kind: str, values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Each failure in the second epoch, and one in an evaluation, then the same command once more and for longer; and
    one without leave to fall back."""
    from graphmill.runs.export import export_run, restore
    from graphmill.runs.train import train
    from graphmill.systems.mf.system import MfSystem
    from graphmill.training.run_directory import RunDirectory

    answer: dict[str, Any] = {}
    failures: dict[str, Any] = {name: partial(failing, 4, error) for name, error in FAILURES.items()}
    failures["an evaluation"] = partial(failing_in, MfSystem, "evaluate", FAILURES["an operator"])
    for name, fails in failures.items():
        root = str(folder / name.replace(" ", "_"))
        with fails():
            result = train(values, "failing", root=root)
            again = train(values, "failing", root=root)
            more = train({**values, "training": {**values["training"], "epochs": 3}}, "failing", root=root)
        resolved = RunDirectory(result["run_dir"]).read_json("manifest.json")["resolved"]
        export_run(restore(result["run_dir"]))
        answer[name] = {
            "device": result["device"],
            "reason": resolved["device_reason"],
            "steps": result["steps_done"],
            "reused": again["reused"],
            "later": more["device"],
        }
    strict = {**values, "acceleration": {**values["acceleration"], "device": kind}}
    try:
        with failing(4, FAILURES["a kernel"]):
            train(strict, "failing", root=str(folder / "strict"))
    except RuntimeError as error:
        answer["without leave"] = str(error)
    return answer


@contextmanager
def failing_in(kind: type, method: str, error: Exception) -> Iterator[None]:
    """A method of a system fails on the device; on the CPU it never does."""
    whole = getattr(kind, method)

    def failed(system: Any, *arguments: Any, **options: Any) -> Any:
        on = arguments[0] if method == "to" else system.device
        if on.type != "cpu":
            raise error
        return whole(system, *arguments, **options)

    setattr(kind, method, failed)
    try:
        yield
    finally:
        setattr(kind, method, whole)


def looks_like_a_mac() -> dict[str, str]:
    """What ``graphmill doctor`` says where the pretended device is a Mac's."""
    from graphmill.diagnostics.doctor import examine

    with patch.object(sys, "platform", "darwin"):
        return {finding.what: finding.detail for finding in examine()}


def _apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest relative difference of two runs' losses."""
    from graphmill.training.run_directory import RunDirectory

    losses = [[r["losses"]["total"] for r in RunDirectory(run["run_dir"]).metrics.read("step")] for run in (one, other)]
    return max(abs(a - b) / abs(a) for a, b in zip(*losses, strict=True))


def casts_together(values: dict[str, Any], folder: Path) -> float:
    """How far half precision's losses are apart when autocast casts each weight by itself."""
    from graphmill.runs.train import train
    from graphmill.systems.hgt import model

    low = {"precision": "bf16"}
    request = {**values, "acceleration": {**values["acceleration"], **low}}
    together, cast = train(request, "together", root=str(folder / "together")), model.cast_together
    model.cast_together = lambda layers: nullcontext()
    try:
        return _apart(together, train(request, "alone", root=str(folder / "alone")))
    finally:
        model.cast_together = cast


def runs_short(kind: str, values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A device with less memory than the run takes: the ladder, and the losses with and without."""
    from graphmill.runs.train import train

    # A budget that the planner does not reach: what runs short is to be seen in the step.
    how = {"micro_batches": 1, "device": kind, "memory_budget": "64GiB"}
    one = {**values, "acceleration": {**values["acceleration"], **how}}
    pretend.DEVICE.tally.clear()
    plain = train(one, "plain", root=str(folder / "plain"))
    peak, whole = pretend.DEVICE.tally.peak_bytes, pretend.DEVICE.total
    pretend.DEVICE.total = int(0.93 * peak)
    try:
        short = train(one, "short", root=str(folder / "short"))
    finally:
        pretend.DEVICE.total = whole
    return {
        "shrunk": short["shrunk"],
        "apart": _apart(plain, short),
        "peak": plain["peak_device_memory_bytes"],
        "notes": short["notes"],
    }


def skips(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A gradient that is not finite in ComplEx's third step: whether it changed a weight, and how the run ends."""
    from graphmill.errors import TrainingError
    from graphmill.runs.train import train
    from graphmill.training import engine
    from graphmill.training.optimizers import PhaseOptimizer

    compute, apply, seen, same = engine.compute_gradient, PhaseOptimizer.step, [0], []

    def bad(system: Any, model: Any, parameters: Any, *arguments: Any, **options: Any) -> Any:
        gradient = compute(system, model, parameters, *arguments, **options)
        seen[0] += 1
        if seen[0] == 3:
            for parameter in parameters:
                parameter.grad.mul_(float("nan"))
            gradient.values.mul_(float("nan"))
        return gradient

    def step(optimizer: PhaseOptimizer, *arguments: Any) -> None:
        before = [p.detach().clone() for p in optimizer.parameters]
        apply(optimizer, *arguments)
        same.append(all(torch.equal(*each) for each in zip(before, optimizer.parameters, strict=True)))

    engine.compute_gradient, PhaseOptimizer.step = bad, step  # type: ignore[method-assign]
    try:
        train(values, "skips", root=str(folder / "skips"))
    except TrainingError as error:
        return {"same": same, "error": type(error).__name__}
    finally:
        engine.compute_gradient, PhaseOptimizer.step = compute, apply  # type: ignore[method-assign]
    return {"same": same, "error": ""}


def draws_ahead(kind: str) -> list[str]:
    """The problems of a thread that draws a batch and puts it on the device, by each of the ways."""
    from graphmill.training.contract import Phase
    from graphmill.training.trainee import Batches

    class Drawing:
        def step(self, phase: Phase, epoch: int, index: int) -> torch.Tensor:
            return on_device + 1 if index == 0 else torch.ones(2).to(torch.device(kind, 0))

    tally, on_device = pretend.DEVICE.tally, torch.ones(2, device=kind)
    drawing.watch()
    tally.clear()
    batches: Any = Batches(Drawing(), 1)  # type: ignore[arg-type]
    for index in range(2):
        batches(Phase("train", 2, 1, 1), 0, index)
    batches.close()
    return sorted(tally.problems)


def copies(kind: str) -> dict[str, Any]:
    """Copies to MPS that nobody waits for: by torch alone, whose source is gone, and by ours, which keeps it."""
    from graphmill.kernels import devices

    tally, device = pretend.DEVICE.tally, torch.device(kind, 0)
    gc.collect()  # what earlier runs left, and sources that they filled the list with
    torch.mps.synchronize()
    devices._SOURCES.clear()
    tally.clear()
    torch.ones(3).to(device, non_blocking=True)
    alone = list(tally.problems)
    tally.clear()
    arrived = [devices.to_device(torch.full((9,), float(n)), device) for n in range(200)]
    waits, read = sum(tally.waits.values()), [float(x[0]) for x in arrived]
    return {"alone": alone, "kept": list(tally.problems), "waits": waits, "right": read == list(range(200))}


def main(kind: str) -> None:
    """See the module's head."""
    torch.set_num_threads(1)
    device = pretend.install(kind)
    from tests.training.cases import CASES
    from tests.training.runs import settings_of

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        graphs = {name: CASES[name].graph(folder / name) for name in ("mf", "hgt-full", "complex")}
        on = {"acceleration": {"device": "auto", "precision": "fp32", "micro_batches": 1}}
        length = {"training": {"epochs": 2, "steps_per_epoch": 4, "warmup_steps": 1, "lr_decay_epochs": 2}}
        values = {name: settings_of(CASES[name], graphs[name], on, length) for name in graphs}
        with device:
            result = {"falls back": falls_back(kind, values["mf"], folder)}
            result["runs short"] = runs_short(kind, values["hgt-full"], folder)
            result["draws ahead"] = draws_ahead(kind)
            if kind == "mps":
                result["doctor"] = looks_like_a_mac()
                result["copies"] = copies(kind)
            if kind == "cuda":
                result["skips"] = skips(values["complex"], folder)
                result["casts"] = casts_together(values["hgt-full"], folder)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
