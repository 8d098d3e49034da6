"""``python -m graphmill.worker``: what Dagster, torchrun and ``graphmill train`` start.

The job comes from a settings file (the only argument), from ``--job FILE`` (JSON: settings, run_root, mode), or, under
Dagster, from the Pipes extras of the same names. Modes: "train" (default); "export", "evaluate" and "rank" (with
``run_dir``). Exit codes: docs/exit_codes.md.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphmill.errors import EXIT_OK, EXIT_USER_ERROR, GraphmillError


def main(arguments: list[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    # Before torch is imported, because it reads this when it loads.
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    from dagster_pipes import PipesEnvVarParamsLoader

    main_rank = os.environ.get("RANK", "0") == "0"
    if PipesEnvVarParamsLoader().is_dagster_pipes_process():
        return _under_dagster(main_rank)
    from graphmill.worker.messages import Terminal

    try:
        job = _job(sys.argv[1:] if arguments is None else arguments)
    except GraphmillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if job is None:
        print("usage: python -m graphmill.worker SETTINGS.yaml | --job JOB.json", file=sys.stderr)
        return EXIT_USER_ERROR
    code = _run(job, [Terminal()] if main_rank else [])
    if main_rank and (path := os.environ.get("GRAPHMILL_EXIT_FILE")):
        Path(path).write_text(str(code))
    return code


def _job(arguments: list[str]) -> dict[str, Any] | None:
    from graphmill.worker.job import read_settings

    if len(arguments) == 1 and not arguments[0].startswith("-"):
        return {"settings": read_settings(Path(arguments[0])), "where": arguments[0]}
    if len(arguments) == 2 and arguments[0] == "--job":
        job: dict[str, Any] = json.loads(Path(arguments[1]).read_text(encoding="utf-8"))
        return job
    return None


def _under_dagster(main_rank: bool) -> int:
    from dagster_pipes import PipesDefaultContextLoader, PipesEnvVarParamsLoader, open_dagster_pipes

    if main_rank:
        from graphmill.worker.pipes import PipesOutlet

        with open_dagster_pipes() as context:
            return _run(dict(context.extras), [PipesOutlet(context)])
    # Only rank 0 talks to Dagster, but every rank needs the job.
    params = PipesEnvVarParamsLoader().load_context_params()
    with PipesDefaultContextLoader().load_context(params) as data:
        return _run(dict(data.get("extras") or {}), [])


def _run(job: Mapping[str, Any], outlets: list[Any]) -> int:
    """Do the job; errors with a sentence become an ``error`` message and an exit code, others a traceback."""
    from graphmill.training.signals import StopRequest

    try:
        with StopRequest() as stop:
            result = _dispatch(job, outlets, stop)
    except GraphmillError as error:
        for outlet in outlets:
            outlet.send({"kind": "error", "type": type(error).__name__, "message": str(error)})
        if os.environ.get("RANK", "0") == "0":
            print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    else:
        for outlet in outlets:
            outlet.send(result)
        return EXIT_OK
    finally:
        for outlet in outlets:
            outlet.close()


def _dispatch(job: Mapping[str, Any], outlets: list[Any], stop: Any) -> dict[str, Any]:
    mode = job.get("mode", "train")
    if mode == "train":
        from graphmill.worker.run import train

        where = job.get("where", "run config")
        return train(job["settings"], where, root=job.get("run_root", ""), outlets=outlets, stop=stop)
    from graphmill.worker.export import evaluate_run, export_run, restore

    restored = restore(job["run_dir"], job.get("checkpoint", ""))
    if mode == "export":
        return {"kind": "result", "epoch": restored.epoch, **export_run(restored)}
    if mode == "evaluate":
        return {"kind": "result", **evaluate_run(restored)}
    if mode == "rank":
        from graphmill.worker.ranking import rank_run

        ranked = rank_run(restored, job.get("split", "test"), outlets=outlets)
        return {"kind": "result", "epoch": ranked.epoch, "mrr": ranked.mrr_beside_baselines()}
    raise ValueError(f"unknown worker mode {mode!r}")


if __name__ == "__main__":
    sys.exit(main())
