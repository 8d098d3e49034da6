"""One phase of the proof on a CUDA device (``prove_cuda.sh`` runs them): ROW lines are figures, RESULT is the verdict.

``--device cpu --tiny`` goes through the same code here: it proves the script, not the product.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.device import prove_conve, prove_steps
from benchmarks.device.prove_common import FOLDER, ROWS, row, short, wait
from benchmarks.parts import made_up_graphs

OUT = Path(os.environ.get("OUT", "prove_out"))


def card(device: torch.device, tiny: bool) -> str:
    """The machine, what it does at its best, and that a product in each precision is right."""
    row(torch=torch.__version__, python=sys.version.split()[0], cores=os.cpu_count() or 0)
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(0)
        row(device=about.name.replace(" ", "_"), gib=about.total_memory / 2**30, sms=about.multi_processor_count)
    from benchmarks.parts.hgt_step import limits

    size, numbers = (256, 1 << 18) if tiny else (8192, 1 << 29)
    row(kind="limits", **limits(device, size, numbers))
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        row(kind="limits_tf32", fp32=limits(device, size, numbers)["fp32"])
        torch.backends.cuda.matmul.allow_tf32 = False
    x = torch.ones(64, device=device)
    for name, work in (("add_", lambda: x.add_(0.0)), ("view", lambda: x[3:5].T)):
        wait(device)
        begin = time.perf_counter()
        for _ in range(2000):
            work()
        wait(device)
        row(kind="call", name=name, microseconds=(time.perf_counter() - begin) / 2000 * 1e6)
    return "measured"


def _cases(tiny: bool, names: list[str] | None = None) -> dict[str, Any]:
    from tests.training.cases import CASES

    chosen = names or (["bpr-mf", "hgt-full"] if tiny else list(CASES))
    return {name: CASES[name] for name in chosen}


def _graph(case: Any, made: dict[str, Any]) -> Any:
    if case.graph.__name__ not in made:
        made[case.graph.__name__] = case.graph(FOLDER / case.graph.__name__)
    return made[case.graph.__name__]


def _values(case: Any, graph: Any, device: torch.device, *more: dict[str, Any]) -> dict[str, Any]:
    from tests.training.runs import settings_of
    from tests.training.test_cuda import without_dropout

    on = {"device": device.type, "allow_fallback": False, "precision": "fp32"}
    length = {"epochs": 2, "steps_per_epoch": 10, "warmup_steps": 2, "lr_decay_epochs": 0}
    return settings_of(case, graph, without_dropout(case.recipe), {"acceleration": on, "training": length}, *more)


def _losses(result: dict[str, Any]) -> np.ndarray:
    from graphmill.training.run_directory import RunDirectory

    return np.array([r["losses"]["total"] for r in RunDirectory(result["run_dir"]).metrics.read("step")])


def traces(device: torch.device, tiny: bool) -> str:
    """Twenty steps of every recipe and mode on the CPU and on the device, evaluated, checkpointed, with final figures."""
    from graphmill.runs.train import train

    made: dict[str, Any] = {}
    bad = []
    for name, case in _cases(tiny).items():
        begin = time.perf_counter()
        try:
            graph = _graph(case, made)
            runs = [
                train(_values(case, graph, where), "prove", root=str(FOLDER / f"{name}-{n}"))
                for n, where in enumerate((torch.device("cpu"), device))
            ]
            a, b = (_losses(r) for r in runs)
            apart = float(np.max(np.abs(a - b) / np.maximum(np.abs(a), 1e-12)))
            figures = max(
                (abs(runs[1]["metrics"][k] - v) for k, v in runs[0]["metrics"].items() if not k.endswith("_mr")),
                default=0.0,
            )
            row(
                case=name,
                steps=len(a),
                largest_relative_difference=apart,
                largest_metric_difference=float(figures),
                s=time.perf_counter() - begin,
            )
            if not apart <= 2e-3 or not figures <= 0.05:
                bad.append(f"{name} differs")
        except Exception as error:
            row(case=name, failed=short(error))
            bad.append(name)
    return f"{len(bad)} bad: {', '.join(bad)}" if bad else "all as on the CPU"


def _stopping(compute: Callable[..., Any], stop: Any, after: int) -> Callable[..., Any]:
    """``compute``, which asks for a stop once it was called so often."""
    seen = [0]

    def counted(*arguments: Any, **options: Any) -> Any:
        found = compute(*arguments, **options)
        seen[0] += 1
        if seen[0] == after:
            stop.request()
        return found

    return counted


def resume(device: torch.device, tiny: bool) -> str:
    """A run that is stopped after five steps and goes on, against one that is not: the same bits, deterministic on."""
    from graphmill.errors import StoppedError
    from graphmill.runs.train import train
    from graphmill.training import engine
    from graphmill.training.signals import StopRequest

    made: dict[str, Any] = {}
    bad = []
    for name, case in _cases(
        tiny, ["bpr-mf"] if tiny else ["bpr-mf", "hgt-full", "conve-kvsall", "sasrec", "kgat"]
    ).items():
        graph = _graph(case, made)
        values = _values(case, graph, device, {"acceleration": {"deterministic": "on"}})
        compute = engine.compute_gradient
        try:
            whole = _losses(train(values, "prove", root=str(FOLDER / f"{name}-whole")))
            stop = StopRequest()
            engine.compute_gradient = _stopping(compute, stop, after=5)
            with suppress(StoppedError):
                train(values, "prove", root=str(FOLDER / f"{name}-cut"), stop=stop)
            engine.compute_gradient = compute
            found = _losses(train(values, "prove", root=str(FOLDER / f"{name}-cut")))
            same = len(found) == len(whole) and bool((found == whole).all())
            row(
                case=name,
                steps=len(found),
                same_bits=same,
                largest=float(np.abs(found - whole).max()) if len(found) == len(whole) else -1.0,
            )
            if not same:
                bad.append(f"{name} differs")
        except Exception as error:
            row(case=name, failed=short(error))
            bad.append(name)
        finally:
            engine.compute_gradient = compute
    return f"{len(bad)} bad: {', '.join(bad)}" if bad else "all go on to the same end"


def hgt(device: torch.device, tiny: bool) -> str:
    """The kernel workload in fresh processes, ours and PyG's on the same card."""
    graph, steps = ("tiny", 2) if tiny else ("67k", 14)
    program = (
        "from benchmarks.parts import hgt_step; from benchmarks.parts import hgt_graphs; "
        "hgt_graphs._SIZES['tiny'] = (300, 900, 30); hgt_step.main()"
    )
    tf32 = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    variants: list[tuple[str, dict[str, str], str]] = [
        ("ours,alone" if tiny else "ours", {}, "fp32"),
        ("pyg,repaired", {}, "fp32"),
    ]
    if not tiny:
        variants += [("ours,bf16", {}, "bf16"), ("ours", tf32, "tf32"), ("pyg,repaired", tf32, "tf32")]
        variants.append(("ours,bf16,checkpoint", {}, "bf16"))
    found: dict[tuple[str, str], float] = {}
    for variant, environment, precision in variants:
        command = [sys.executable, "-c", program, "--graph", graph, "--variant", variant]
        command += ["--device", device.type, "--steps", str(steps)]
        try:
            done = subprocess.run(
                command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=200 if tiny else 60
            )
        except subprocess.TimeoutExpired:
            row(variant=variant, precision=precision, failed="took too long")
            continue
        if done.returncode:
            row(
                variant=variant,
                precision=precision,
                failed=done.stderr.strip().splitlines()[-1][:160] if done.stderr.strip() else "?",
            )
            continue
        result = json.loads(done.stdout.strip().splitlines()[-1])
        seconds = statistics.median(result["seconds"][4:] or result["seconds"][1:])
        found[variant, precision] = seconds
        row(variant=variant, precision=precision, ms=seconds * 1e3, gb=result.get("device_gb", result["peak_gb"]))
    if ("ours", "fp32") in found and ("pyg,repaired", "fp32") in found:
        return f"ours / PyG repaired, fp32: {found['ours', 'fp32'] / found['pyg,repaired', 'fp32']:.3g}"
    return "not both were measured"


def oom(device: torch.device, tiny: bool) -> str:
    """Memory that really runs out in a step: the ladder, the gradient after it, and what a step costs then."""
    from graphmill.runs.train import train

    if device.type != "cuda":
        return "needs a device: not run"
    graph = made_up_graphs.typed(FOLDER, 20_000, 120_000, 20)
    base = {
        "recipe": "hgt",
        "data": str(graph.path),
        "preset": "none",
        "model": {"hidden_dim": 256, "embedding_dim": 256, "num_layers": 2, "dropout": 0.0},
        "training": {"epochs": 1, "steps_per_epoch": 4},
        "evaluation": {"eval_every": 9, "max_queries": 5},
        "acceleration": {"device": "cuda", "precision": "fp32", "batching": "full", "deterministic": "on"},
    }
    base["acceleration"] |= {"loss_chunks": 1}  # type: ignore[operator]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    plain = train(base, "prove", root=str(FOLDER / "plain"))
    peak, total = torch.cuda.max_memory_allocated(), torch.cuda.get_device_properties(0).total_memory
    said = []
    for share in (0.9, 0.75, 0.6):
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(share * peak / total)
        try:
            begin = time.perf_counter()
            found = train(base, "prove", root=str(FOLDER / f"short{share}"))
            apart = float(np.max(np.abs(_losses(found) - _losses(plain)) / np.abs(_losses(plain))))
            row(
                share=share,
                peak_mb=peak / 1e6,
                rungs=len(found["shrunk"]),
                last=str(found["shrunk"][-1:]).replace(" ", "_"),
                ms=found["seconds_per_step"] * 1e3,
                plain_ms=plain["seconds_per_step"] * 1e3,
                losses_apart=apart,
                s=time.perf_counter() - begin,
            )
            said.append(f"{share}: {len(found['shrunk'])} rungs")
        except Exception as error:
            row(share=share, failed=short(error))
            said.append(f"{share}: {type(error).__name__}")
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    return "; ".join(said)


def cancel(device: torch.device, tiny: bool) -> str:
    """SIGTERM in the middle of a training: how long until the checkpoint is there, and that the same command goes on."""
    from graphmill.errors import StoppedError
    from graphmill.runs.train import train
    from graphmill.training.signals import StopRequest

    graph = made_up_graphs.typed(FOLDER, 300, 900, 10) if tiny else made_up_graphs.typed(FOLDER, 20_000, 120_000, 20)
    width = 16 if tiny else 256
    values = {
        "recipe": "hgt",
        "data": str(graph.path),
        "preset": "none",
        "model": {"hidden_dim": width, "embedding_dim": width, "num_layers": 2, "num_heads": 2},
        "training": {"epochs": 2, "steps_per_epoch": 4000},
        "evaluation": {"eval_every": 9},
        "acceleration": {"device": device.type, "precision": "fp32", "batching": "full"},
    }
    after = 2.0 if tiny else 8.0
    sent: list[float] = []

    def send() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    for turn in range(2):
        timer = threading.Timer(after, send)
        timer.start()
        with StopRequest() as stop:
            try:
                train(values, "prove", root=str(FOLDER / "cancelled"), stop=stop)
                said = "ended before it was told to"
            except StoppedError as error:
                said = f"stopped {time.monotonic() - sent[-1]:.2f} s after SIGTERM"
                row(turn=turn, seconds=time.monotonic() - sent[-1], sentence=str(error)[:60].replace(" ", "_"))
            except Exception as error:
                timer.cancel()
                row(turn=turn, failed=short(error))
                return f"turn {turn} failed"
        timer.cancel()
    return said


def compile_phase(device: torch.device, tiny: bool) -> str:
    """torch.compile through the product's probe; slow, so it is run when asked for."""
    from graphmill.runs.train import train

    made: dict[str, Any] = {}
    for name, case in _cases(
        tiny, ["hgt-no-messages"] if tiny else ["conve-kvsall", "hgt-no-messages", "sasrec"]
    ).items():
        try:
            values = _values(case, _graph(case, made), device, {"acceleration": {"compile": "default"}})
            report = train(values, "prove", root=str(FOLDER / f"{name}-compiled"))["compile"]
            row(
                case=name,
                **{
                    k: report[k]
                    for k in ("graphs", "recompiles", "compile_seconds", "eager_seconds", "compiled_seconds", "kept")
                },
            )
        except Exception as error:
            row(case=name, failed=short(error))
    return "see rows"


PHASES = {
    "card": card,
    "traces": traces,
    "resume": resume,
    "hgt": hgt,
    "profile": prove_steps.profile_phase,
    "recipes": prove_steps.recipes,
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
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("RESULT no CUDA device")
        raise SystemExit(1)
    said = "?"
    try:
        said = PHASES[args.phase](device, args.tiny)
    finally:
        OUT.mkdir(parents=True, exist_ok=True)
        (OUT / f"{args.phase}.json").write_text(json.dumps({"result": said, "rows": ROWS}, indent=1, default=str))
        print("RESULT", said, flush=True)


if __name__ == "__main__":
    main()
