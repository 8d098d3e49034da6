"""``python -m graphmill.orchestration.launchers.ray_group PROCESSES CPUS GPUS MEMORY_GIB ARGUMENTS…``, as a Ray job.

It starts one actor per process in a placement group, spread over the nodes if possible, and gives each worker
torchrun's variables. If one fails or its actor is lost, all are ended, and the next attempt resumes from the
checkpoint. The job ends after its last worker: after a stop request, the first worker may still be writing the
checkpoint when the others have ended.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from graphmill.orchestration.launchers.ray import STOP_WAIT_SECONDS, WAITS, WAITS_SECONDS

KILLED = 128 + signal.SIGKILL
_LOOK_SECONDS = 0.3
_SAVE_SECONDS = STOP_WAIT_SECONDS - 20.0
"""Seconds for workers that were asked to stop. Then they are killed, before Ray kills this process."""
_LOSS_SECONDS = 30.0
"""The same after a worker was lost, which the others usually notice."""


class Rank:
    """One worker process, in an actor."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def meeting_place(self) -> tuple[str, int]:
        """This node's address and a free port on it."""
        import ray

        with socket.socket() as probe:
            probe.bind(("", 0))
            return str(ray.util.get_node_ip_address()), int(probe.getsockname()[1])

    def start(self, arguments: list[str], cwd: str, environment: dict[str, str]) -> None:
        """Start the worker; its output goes to the job's log."""
        from graphmill.runs.launch import end_with_parent

        command = [sys.executable, *arguments]
        self._process = subprocess.Popen(
            command, cwd=cwd, env={**os.environ, **environment}, preexec_fn=end_with_parent
        )

    def poll(self) -> int | None:
        """The worker's exit code; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def stop(self) -> None:
        """Ask the worker to save and exit."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """Kill the worker at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def main(arguments: list[str]) -> int:
    """Run all ranks; returns the exit code of the first that failed, else 0."""
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    processes, (cpus, gpus, gib) = int(arguments[0]), map(float, arguments[1:4])
    memory = {"memory": int(gib * 2**30)} if gib else {}
    ray.init(address="auto", log_to_driver=True)
    bundle = {"CPU": cpus, **({"GPU": gpus} if gpus else {}), **memory}
    group = placement_group([bundle] * processes, strategy="SPREAD")
    try:
        ray.get(group.ready(), timeout=WAITS_SECONDS)
    except ray.exceptions.GetTimeoutError:
        print(WAITS, flush=True)
        ray.get(group.ready())
    ranks: list[Any] = [
        ray.remote(Rank)
        .options(
            num_cpus=cpus,
            num_gpus=gpus,
            **memory,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
        )
        .remote()
        for rank in range(processes)
    ]
    host, port = ray.get(ranks[0].meeting_place.remote())
    common = {"WORLD_SIZE": str(processes), "MASTER_ADDR": host, "MASTER_PORT": str(port), "LOCAL_RANK": "0"}
    common |= {"LOCAL_WORLD_SIZE": "1", "OMP_NUM_THREADS": str(max(1, int(cpus)))}
    common |= {name: value for name, value in os.environ.items() if name.startswith(("DAGSTER_PIPES", "PYTORCH_"))}
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda came, _: asked.append(came))
    ray.get([each.start.remote(arguments[4:], os.getcwd(), {**common, "RANK": str(i)}) for i, each in enumerate(ranks)])
    return _wait(ranks, asked)


def _wait(ranks: list[Any], asked: list[int]) -> int:
    """Wait until all have ended; returns the code of the first that failed, else 0. A failed rank ends the others."""
    import ray

    bad: list[int] = []
    told = 0.0
    while True:
        codes = _each(ranks, "poll")
        bad = bad or [code for code in codes if code]
        if all(code is not None for code in codes):
            break
        now = time.monotonic()
        if (asked or bad) and not told:
            told = now
            _each(ranks, "stop")
        if told and now - told > (_SAVE_SECONDS if asked else _LOSS_SECONDS):
            _each(ranks, "kill")
        time.sleep(_LOOK_SECONDS)
    for rank in ranks:
        ray.kill(rank)
    return bad[0] if bad and bad[0] > 0 else KILLED if bad else 0


def _each(ranks: list[Any], method: str) -> list[int | None]:
    """Call a method of every rank and return the results; KILLED for a lost actor, whose worker is lost with it."""
    import ray

    found: list[int | None] = []
    for answer in [getattr(rank, method).remote() for rank in ranks]:
        try:
            found.append(ray.get(answer))
        except ray.exceptions.RayError:
            found.append(KILLED)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
