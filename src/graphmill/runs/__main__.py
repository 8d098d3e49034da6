"""``python -m graphmill.worker [--processes N]``: the process that Dagster, torchrun and ``graphmill train`` start.

With ``--processes N`` it starts N workers under torchrun, forwards signals to them, and exits with the code of the
first. The job comes from a settings file (the only argument), from ``--job FILE`` (JSON: settings, run_root, mode), or,
under Dagster, from Pipes extras of the same names. Modes: "train" (default); "acceleration_report" (settings, report,
out); and with ``run_dir`` "export", "evaluate", "rank", "recommend" (k, exclude_seen), "links" (links) and "influence"
(influence). :mod:`graphmill.worker` adds the modes that follow a run ("promote", "drift"). Exit codes:
docs/reference/exit_codes.md.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from graphmill.errors import EXIT_OK, EXIT_USER_ERROR, GraphmillError, InputError, ResourceError, StoppedError

Outcome = tuple[int, dict[str, Any]]
Modes = Mapping[str, Callable[[Mapping[str, Any], list[Any], Any], dict[str, Any]]]
"""Further modes by name. Each takes the job, the outlets and the stop request, and returns the result."""


def main(arguments: list[str] | None = None, modes: Modes | None = None) -> int:
    """Run the job in a mode of this module or of ``modes``, and return the exit code."""
    # Set this before torch is imported, because torch reads it when it loads.
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    from graphmill.runs.launch import leave_outcome
    from graphmill.runs.standard_streams import spare_streams

    spare_streams()
    code, result = 1, dict[str, Any]()
    try:
        code, result = _outcome(sys.argv[1:] if arguments is None else arguments, modes or {})
    except GraphmillError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    finally:
        leave_outcome(code, result)
    return code


def _outcome(arguments: list[str], modes: Modes) -> Outcome:
    from dagster_pipes import PipesEnvVarParamsLoader

    from graphmill.runs.launch import end_with_parent, supervise
    from graphmill.runs.messages import Terminal
    from graphmill.training.machine import require_processes
    from graphmill.training.signals import StopRequest

    if arguments[:1] == ["--processes"] and arguments[1:2] and arguments[1].isdigit():
        require_processes(int(arguments[1]), "--processes")
        with StopRequest() as stop:
            return supervise(int(arguments[1]), arguments[2:], stop)
    main_rank = os.environ.get("RANK", "0") == "0"
    if "RANK" in os.environ:
        end_with_parent()
    if PipesEnvVarParamsLoader().is_dagster_pipes_process():
        return _under_dagster(main_rank, modes)
    job = _job(arguments)
    if job is None:
        print("usage: python -m graphmill.worker [--processes N] SETTINGS.yaml | --job JOB.json", file=sys.stderr)
        return EXIT_USER_ERROR, {}
    return _run(job, [Terminal()] if main_rank else [], modes)


def _job(arguments: list[str]) -> dict[str, Any] | None:
    from graphmill.runs.resolve import read_settings

    if len(arguments) == 1 and not arguments[0].startswith("-"):
        return {"settings": read_settings(Path(arguments[0])), "where": arguments[0]}
    if len(arguments) == 2 and arguments[0] == "--job":
        try:
            job: dict[str, Any] = json.loads(Path(arguments[1]).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"the job {arguments[1]} cannot be read: {error}") from None
        return job
    return None


def _under_dagster(main_rank: bool, modes: Modes) -> Outcome:
    from dagster_pipes import PipesDefaultContextLoader, PipesEnvVarParamsLoader, open_dagster_pipes

    if main_rank:
        from graphmill.runs.pipes import PipesOutlet

        with open_dagster_pipes() as context:
            return _run(dict(context.extras), [PipesOutlet(context)], modes)
    # Only rank 0 talks to Dagster, but every rank needs the job.
    params = PipesEnvVarParamsLoader().load_context_params()
    with PipesDefaultContextLoader().load_context(params) as data:
        return _run(dict(data.get("extras") or {}), [], modes)


def _run(job: Mapping[str, Any], outlets: list[Any], modes: Modes) -> Outcome:
    """Run the job. A :class:`GraphmillError` becomes an ``error`` message and an exit code; other errors give a
    traceback."""
    from graphmill.training.memory import memory_in_a_sentence
    from graphmill.training.signals import StopRequest

    try:
        with StopRequest() as stop, memory_in_a_sentence():
            result = _dispatch(job, outlets, stop, modes)
    except GraphmillError as error:
        for outlet in outlets:
            said = {"type": type(error).__name__, "message": str(error), "exit_code": error.exit_code}
            outlet.send({"kind": "error", **said})
        rank = os.environ.get("RANK", "0")
        # An error that all processes share is reported once. Running out of memory may concern only one process.
        if rank == "0" or isinstance(error, ResourceError):
            print(f"error{'' if rank == '0' else f' in process {rank}'}: {error}", file=sys.stderr, flush=True)
        return error.exit_code, {}
    else:
        for outlet in outlets:
            outlet.send(result)
        return EXIT_OK, result
    finally:
        for outlet in outlets:
            outlet.close()


def _dispatch(job: Mapping[str, Any], outlets: list[Any], stop: Any, modes: Modes) -> dict[str, Any]:
    mode = job.get("mode", "train")
    where = job.get("where", "run config")
    if mode == "train":
        from graphmill.runs.train import SPLITS, train

        splits = job.get("splits", SPLITS)
        return train(job["settings"], where, root=job.get("run_root", ""), outlets=outlets, stop=stop, splits=splits)
    if mode == "acceleration_report":
        from graphmill.runs.acceleration_report import AccelerationReportSettings, acceleration_report
        from graphmill.settings import parse

        asked = parse(AccelerationReportSettings, dict(job.get("report", {})), where)
        report = acceleration_report(job["settings"], where, asked, out=job["out"], outlets=outlets, stop=stop)
        return {"kind": "result", "rows": len(report.rows), "failed": sum(row.status != "ok" for row in report.rows)}
    from graphmill.runs.compiling import say_compiling
    from graphmill.runs.fallback import left_device, once_more_on_the_cpu

    note = partial(_note, outlets)

    def work() -> dict[str, Any]:
        if mode in modes:
            return modes[mode](job, outlets, stop)
        with say_compiling(note):
            found = _on_a_run(mode, job, outlets, stop)
        return {**found, "device_reason": left_device()} if left_device() else found

    return {"kind": "result", **once_more_on_the_cpu(work, note)}


def _note(outlets: list[Any], text: str) -> None:
    for outlet in outlets:
        outlet.send({"kind": "note", "text": text})


def _on_a_run(mode: str, job: Mapping[str, Any], outlets: list[Any], stop: Any) -> dict[str, Any]:
    """Run a mode that works on a finished run."""
    from graphmill.runs.export import evaluate_run, export_run, restore

    def poll() -> None:
        if stop.requested:
            raise StoppedError(f"stopped ({stop.reason}); the same command does it again")

    if mode == "influence":
        return _influence(job, outlets, poll)
    if mode == "links":
        return _links(job, outlets, poll)
    restored = restore(job["run_dir"], job.get("checkpoint", ""))
    for note in restored.notes:
        _note(outlets, note)
    if mode == "export":
        return {**restored.used, **export_run(restored)}
    if mode == "evaluate":
        return evaluate_run(restored, poll=poll)
    if mode == "recommend":
        from graphmill.runs.recommendations import recommend_run

        return {**restored.used, **recommend_run(restored, int(job.get("k", 20)), job.get("exclude_seen", "auto"))}
    if mode == "rank":
        from graphmill.runs.ranking import rank_any

        return rank_any(restored, job.get("split", "test"), outlets=outlets, poll=poll, stop=stop)
    raise ValueError(f"unknown worker mode {mode!r}")


def _influence(job: Mapping[str, Any], outlets: list[Any], poll: Any) -> dict[str, Any]:
    from graphmill.influence.settings import InfluenceSettings
    from graphmill.runs.influence import trace_influence
    from graphmill.settings import parse

    asked = parse(InfluenceSettings, dict(job.get("influence", {})), job.get("where", "run config"))
    found = trace_influence(job["run_dir"], asked, poll=poll, note=partial(_note, outlets))
    return {"mode": asked.mode, "explained": found["num_test_triples"], "checkpoints": len(found["checkpoints"])}


def _links(job: Mapping[str, Any], outlets: list[Any], poll: Any) -> dict[str, Any]:
    from graphmill.predictions.settings import LinkSettings
    from graphmill.runs.links import link_model, write_links
    from graphmill.settings import parse

    asked = parse(LinkSettings, dict(job.get("links", {})), job.get("where", "run config"))
    report = write_links(link_model(job["run_dir"]), asked, outlets=outlets, poll=poll)
    return {"rows": report["rows"], "relations": len(report["relations"])}


def end(code: int) -> None:
    """End the process. If it is one of several, skip the interpreter's clean-up, in which gloo's threads can abort it."""
    if "RANK" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    end(main())
