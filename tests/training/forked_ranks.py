"""Ranks of a training as forks of one process that has imported everything; torchrun would import it once for each."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable

from graphmill.runs.launch import end_with_parent


def fork_ranks(world: int, work: Callable[[], None]) -> list[int]:
    """Call ``work`` in ``world`` processes, which :func:`graphmill.training.processes.join` joins; their exit codes.

    As under torchrun, a rank that fails ends the others. A negative code is the signal that a rank died of.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(world)}
    ranks = [_fork({**address, "RANK": str(rank), "LOCAL_RANK": str(rank)}, work) for rank in range(world)]
    codes: dict[int, int] = {}
    while len(codes) < world:
        process, status = os.wait()
        codes[process] = os.waitstatus_to_exitcode(status)
        if codes[process]:
            for other in set(ranks) - set(codes):
                os.kill(other, signal.SIGTERM)
    return [codes[process] for process in ranks]


def _fork(variables: dict[str, str], work: Callable[[], None]) -> int:
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        end_with_parent()
        os.environ.update(variables)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # as the worker does: gloo's threads can abort the interpreter's clean-up
