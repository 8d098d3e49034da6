"""``python -m graphmill.worker [--processes N]``: the process that Dagster, torchrun and ``graphmill train`` start.

With ``--processes N`` it starts N workers under torchrun, forwards signals to them, and exits with the code of the
first. The job comes from a settings file (the only argument), from ``--job FILE`` (JSON: settings, run_root, mode), or,
under Dagster, from Pipes extras of the same names; :mod:`graphmill.worker.modes` has the modes. Exit codes:
docs/reference/exit_codes.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphmill.errors import EXIT_OK, EXIT_USER_ERROR, GraphmillError, InputError, ResourceError

Outcome = tuple[int, dict[str, Any]]


def main(arguments: list[str] | None = None) -> int:
    """Run the job, and return the exit code."""
    # Set this before torch is imported, because torch reads it when it loads.
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    from graphmill.runs.launch import leave_outcome
    from graphmill.runs.standard_streams import spare_streams

    spare_streams()
    code, result = 1, dict[str, Any]()
    try:
        code, result = _outcome(sys.argv[1:] if arguments is None else arguments)
    except GraphmillError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    finally:
        leave_outcome(code, result)
    return code


def _outcome(arguments: list[str]) -> Outcome:
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
        return _under_dagster(main_rank)
    job = _job(arguments)
    if job is None:
        print("usage: python -m graphmill.worker [--processes N] SETTINGS.yaml | --job JOB.json", file=sys.stderr)
        return EXIT_USER_ERROR, {}
    return _run(job, [Terminal()] if main_rank else [])


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


def _under_dagster(main_rank: bool) -> Outcome:
    from dagster_pipes import PipesDefaultContextLoader, PipesEnvVarParamsLoader, open_dagster_pipes

    if main_rank:
        with open_dagster_pipes() as context:
            return _run(dict(context.extras), [PipesOutlet(context)])
    # Only rank 0 talks to Dagster, but every rank needs the job.
    params = PipesEnvVarParamsLoader().load_context_params()
    with PipesDefaultContextLoader().load_context(params) as data:
        return _run(dict(data.get("extras") or {}), [])


class PipesOutlet:
    """Sends every message as a Pipes custom message, which the reader throttles, and writes notes for the user to
    Dagster's event log."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one custom message. If it cannot be written (a full /tmp), the work continues without it."""
        with contextlib.suppress(OSError):
            if message["kind"] == "note":
                self.context.log.info(message["text"])
            self.context.report_custom_message(message)

    def close(self) -> None:
        """Do nothing: the caller who opened the context closes it."""


def _run(job: Mapping[str, Any], outlets: list[Any]) -> Outcome:
    """Run the job. A :class:`GraphmillError` becomes an ``error`` message and an exit code; other errors give a
    traceback."""
    from graphmill.training.memory import memory_in_a_sentence
    from graphmill.training.signals import StopRequest
    from graphmill.worker.modes import run_mode

    try:
        with StopRequest(last="RANK" in os.environ) as stop, memory_in_a_sentence():
            result = run_mode(job, outlets, stop)
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


def end(code: int) -> None:
    """End the process. If it is one of several, skip the interpreter's clean-up, in which gloo's threads can abort it."""
    if "RANK" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    end(main())
