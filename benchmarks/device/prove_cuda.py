"""One phase of the proof on a CUDA device (``prove_cuda.sh`` runs them): ROW lines are figures, RESULT is the verdict.

``--device cpu --tiny`` goes through the same code here: it proves the script, not the product.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.device import prove_conve, prove_steps
from benchmarks.device.prove_common import BAD, FOLDER, case, row, wait
from benchmarks.parts import made_up_graphs
from benchmarks.parts.card import fresh
from graphmill.runs.resolve import merge


def card(device: torch.device, tiny: bool) -> str:
    """The machine, what it does at its best, and that a product in each precision is right."""
    row(torch=torch.__version__, python=sys.version.split()[0], cores=os.cpu_count() or 0)
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(0)
        row(device=about.name, gib=about.total_memory / 2**30, sms=about.multi_processor_count)
    from benchmarks.parts.hgt_step import limits

    size, numbers = (256, 1 << 18) if tiny else (8192, 1 << 29)
    best = limits(device, size, numbers)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        best["tf32"] = limits(device, size, numbers)["fp32"]
        torch.backends.cuda.matmul.allow_tf32 = False
    for name, most in best.items():
        row(best=name, most=most)
    x = torch.ones(64, device=device)
    for name, work in (("add_", lambda: x.add_(0.0)), ("view", lambda: x[3:5].T)):
        wait(device)
        begin = time.perf_counter()
        for _ in range(2000):
            work()
        wait(device)
        row(call=name, microseconds=(time.perf_counter() - begin) / 2000 * 1e6)
    return "measured"


def _cases(tiny: bool, *names: str) -> dict[str, Any]:
    """Those of the training suite by these names, or all; the first two where it is tiny."""
    from tests.training.cases import CASES

    chosen = names or (("mf", "hgt-full") if tiny else tuple(CASES))
    return {name: CASES[name] for name in chosen[: 2 if tiny else None]}


@cache
def _graph(make: Callable[[Path], Any]) -> Any:
    return make(FOLDER / make.__name__)


def _values(of: Any, device: torch.device, *more: dict[str, Any]) -> dict[str, Any]:
    from tests.training.runs import settings_of
    from tests.training.test_cuda import without_dropout

    on = {"device": device.type, "precision": "fp32"}
    length = {"epochs": 2, "steps_per_epoch": 10, "warmup_steps": 2, "lr_decay_epochs": 0}
    fixed = {"acceleration": on, "training": length}
    return settings_of(of, _graph(of.graph), without_dropout(of.system), fixed, *more)


def _losses(result: dict[str, Any]) -> np.ndarray:
    from graphmill.training.run_directory import RunDirectory

    return np.array([r["losses"]["total"] for r in RunDirectory(result["run_dir"]).metrics.read("step")])


def traces(device: torch.device, tiny: bool) -> str:
    """Twenty steps of every system and mode on the CPU and on the device, evaluated, checkpointed, with final figures."""
    from graphmill.runs.train import train

    for name, of in _cases(tiny).items():
        with case(case=name):
            begin = time.perf_counter()
            runs = [
                train(_values(of, where), "prove", root=str(FOLDER / f"{name}-{n}"))
                for n, where in enumerate((torch.device("cpu"), device))
            ]
            a, b = (_losses(r) for r in runs)
            apart = float(np.max(np.abs(a - b) / np.maximum(np.abs(a), 1e-12)))
            figures = max(
                (abs(runs[1]["metrics"][k] - v) for k, v in runs[0]["metrics"].items() if not k.endswith("_mr")),
                default=0.0,
            )
            row(case=name, steps=len(a), apart=apart, figures_apart=float(figures), s=time.perf_counter() - begin)
            if not apart <= 2e-3 or not figures <= 0.05:
                BAD.append(f"{name} differs")
    return "all as on the CPU"


def _stopping(compute: Callable[..., Any], stop: Any, after: int) -> Callable[..., Any]:
    """``compute``, which asks for a stop once it was called so often."""
    seen = [0]

    def counted(*arguments: Any, **options: Any) -> Any:
        result = compute(*arguments, **options)
        seen[0] += 1
        if seen[0] == after:
            stop.request()
        return result

    return counted


def resume(device: torch.device, tiny: bool) -> str:
    """A run that is stopped after five steps and goes on, against one that is not: the same bits."""
    from graphmill.errors import StoppedError
    from graphmill.runs.train import train
    from graphmill.training import engine
    from graphmill.training.signals import StopRequest

    compute = engine.compute_gradient  # type: ignore[attr-defined]
    for name, of in _cases(tiny, "mf", "hgt-full", "conve-kvsall", "sasrec", "kgat").items():
        with case(case=name):
            values = _values(of, device)
            whole = _losses(train(values, "prove", root=str(FOLDER / f"{name}-whole")))
            stop = StopRequest()
            engine.compute_gradient = _stopping(compute, stop, after=5)  # type: ignore[attr-defined]
            try:
                with suppress(StoppedError):
                    train(values, "prove", root=str(FOLDER / f"{name}-cut"), stop=stop)
            finally:
                engine.compute_gradient = compute  # type: ignore[attr-defined]
            result = _losses(train(values, "prove", root=str(FOLDER / f"{name}-cut")))
            same = len(result) == len(whole) and bool((result == whole).all())
            row(case=name, steps=len(result), same_bits=same)
            if not same:
                BAD.append(f"{name} differs")
    return "all go on to the same end"


def hgt(device: torch.device, tiny: bool) -> str:
    """The kernel workload in fresh processes, ours and PyG's on the same card, with what a step has to compute and move."""
    ours, pyg = "ours", "pyg,repaired"
    variants = [(ours, "fp32"), (pyg, "fp32"), ("ours,bf16", "bf16"), (ours, "tf32"), (pyg, "tf32")]
    answer: dict[tuple[str, str], float] = {}
    for variant, precision in variants[: 3 if tiny else None]:
        with case(variant=variant, precision=precision):
            said = ["--variant", variant, "--device", device.type, "--least"]
            said += ["--graph", "tiny" if tiny else "67k", "--steps", "2" if tiny else "14"]
            tf32 = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"} if precision == "tf32" else {}
            result = fresh("benchmarks.parts.hgt_step", said, tf32)
            answer[variant, precision] = ms = statistics.median(result["seconds"][4:] or result["seconds"][1:]) * 1e3
            gb = result.get("device_gb", result["peak_gb"])
            row(variant=variant, precision=precision, ms=ms, gb=gb, gflop=result["gflop"], moved_gb=result["moved_gb"])
    return (
        f"ours / PyG repaired, fp32: {answer.get((ours, 'fp32'), math.nan) / answer.get((pyg, 'fp32'), math.nan):.3g}"
    )


def _long(tiny: bool, device: torch.device, **training: int) -> dict[str, Any]:
    """HGT with layers on a graph whose step takes a part of a second, for the phases that break into it."""
    graph = made_up_graphs.typed(FOLDER, *((300, 900, 10) if tiny else (20_000, 120_000, 20)))
    width = 16 if tiny else 256
    return {
        "system": "hgt",
        "data": str(graph.path),
        "preset": "none",
        "model": {"hidden_dim": width, "embedding_dim": width, "num_layers": 2, "dropout": 0.0},
        "training": training,
        "evaluation": {"eval_every": 9, "max_queries": 5},
        "acceleration": {"device": device.type, "precision": "fp32", "batching": "full"},
    }


def oom(device: torch.device, tiny: bool) -> str:
    """Memory that really runs out in a step: the ladder, the gradient after it, and what a step costs then.

    With nine tenths of the peak the run has to go on; with less, it may say that memory ran out. A CPU simulates a limit.
    """
    from graphmill.errors import OutOfMemoryError
    from graphmill.runs.train import train

    values = merge(
        _long(tiny, device, epochs=1, steps_per_epoch=4),
        {"acceleration": {"micro_batches": 1}},
    )
    plain = train(values, "prove", root=str(FOLDER / "plain"))
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 28_000
    for share in (0.9, 0.75, 0.6):
        with case(share=share), _at_most(int(share * peak), device):
            try:
                result = train(values, "prove", root=str(FOLDER / f"short{share}"))
            except OutOfMemoryError as error:
                row(share=share, ended=str(error)[:150])
                if share == 0.9:
                    BAD.append("0.9 of the peak does not go on")
                continue
            apart = float(np.max(np.abs(_losses(result) - _losses(plain)) / np.abs(_losses(plain))))
            ms, plain_ms = (r["seconds_per_step"] * 1e3 for r in (result, plain))
            row(share=share, peak_mb=peak / 1e6, rungs=result["shrunk"], ms=ms, plain_ms=plain_ms, losses_apart=apart)
            if not apart <= 1e-4:
                BAD.append(f"{share} of the peak has other losses")
    return "goes on with nine tenths of its memory"


@contextmanager
def _at_most(count: int, device: torch.device) -> Iterator[None]:
    """No more than ``count`` bytes of the device's memory."""
    if device.type != "cuda":
        with patch.dict(os.environ, GRAPHMILL_ALLOCATION_LIMIT=str(count)):
            yield
        return
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(count / torch.cuda.get_device_properties(0).total_memory)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def cancel(device: torch.device, tiny: bool) -> str:
    """SIGTERM in the middle of a training: how long until the checkpoint is there, and that the same command goes on."""
    from graphmill.errors import StoppedError
    from graphmill.runs.train import train
    from graphmill.training.signals import StopRequest

    values = _long(tiny, device, epochs=2, steps_per_epoch=4000)
    sent: list[float] = []

    def send() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    for turn in range(2):
        timer = threading.Timer(2.0 if tiny else 8.0, send)
        with case(turn=turn), StopRequest() as stop:
            timer.start()
            try:
                train(values, "prove", root=str(FOLDER / "cancelled"), stop=stop)
                raise RuntimeError("it ended before it was told to")
            except StoppedError as error:
                seconds = time.monotonic() - sent[-1]
                row(turn=turn, seconds=seconds, sentence=str(error)[:60])
                if seconds > (60 if tiny else 10):
                    BAD.append(f"turn {turn} took {seconds:.1f} s")
            finally:
                timer.cancel()
    return "stopped twice, and went on between"


def compile_phase(device: torch.device, tiny: bool) -> str:
    """torch.compile through the product's probe; slow, so it is run when asked for."""
    from graphmill.runs.train import train

    said = ("graphs", "recompiles", "compile_seconds")
    for name, of in _cases(tiny, "hgt-full", "conve-kvsall", "sasrec").items():
        with case(case=name):
            values = _values(of, device, {"acceleration": {"compile": "default"}})
            report = train(values, "prove", root=str(FOLDER / f"{name}-compiled"))["compile"]
            row(case=name, **{k: report[k] for k in said})
    return "all were compiled"


PHASES = {
    "card": card,
    "traces": traces,
    "resume": resume,
    "hgt": hgt,
    "profile": prove_steps.profile_phase,
    "systems": prove_steps.systems,
    "plain": prove_steps.plain,
    "conve": prove_conve.conve,
    "oom": oom,
    "cancel": cancel,
    "compile": compile_phase,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phase", choices=PHASES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    if os.environ.get("PROVE_NUMBA", "") != "1":
        # The CPU's reference runs do without: compiling all kernels on a bare machine takes minutes.
        sys.modules["numba"] = None  # type: ignore[assignment]
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("RESULT no CUDA device")
        raise SystemExit(1)
    said = "cut off"
    try:
        said = PHASES[args.phase](device, args.tiny)
    finally:
        print("RESULT", f"{len(BAD)} bad: {', '.join(BAD)}" if BAD else said, flush=True)
    raise SystemExit(bool(BAD))


if __name__ == "__main__":
    main()
