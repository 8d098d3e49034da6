"""``python -m graphmill.orchestration.launchers.ray_group PROCESSES CPUS GPUS MEMORY_GIB ARGUMENTS…``, as a Ray job.

Starts one actor for each process in a placement group, spread over the nodes where it can be, and gives each worker
torchrun's variables. When one ends badly or its actor is lost, all end: the next attempt goes on from the checkpoint.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

KILLED = 128 + signal.SIGKILL
_LOOK_SECONDS = 0.3


class Rank:
    """One worker process, in an actor."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def meeting_place(self) -> tuple[str, int]:
        """This node's address, and a port that is free on it."""
        import ray

        with socket.socket() as probe:
            probe.bind(("", 0))
            return str(ray.util.get_node_ip_address()), int(probe.getsockname()[1])

    def start(self, arguments: list[str], cwd: str, environment: dict[str, str]) -> None:
        """Start the worker; what it prints goes to the job's log."""
        from graphmill.runs.launch import end_with_parent

        command = [sys.executable, *arguments]
        self._process = subprocess.Popen(
            command, cwd=cwd, env={**os.environ, **environment}, preexec_fn=end_with_parent
        )

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def stop(self) -> None:
        """Ask it to save and end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


def main(arguments: list[str]) -> int:
    """Run all ranks; the exit code of the first that did not end well, else 0."""
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    processes, (cpus, gpus, gib) = int(arguments[0]), map(float, arguments[1:4])
    memory = {"memory": int(gib * 2**30)} if gib else {}
    ray.init(address="auto", log_to_driver=True)
    bundle = {"CPU": cpus, **({"GPU": gpus} if gpus else {}), **memory}
    group = placement_group([bundle] * processes, strategy="SPREAD")
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
    ray.get([each.start.remote(arguments[4:], os.getcwd(), {**common, "RANK": str(i)}) for i, each in enumerate(ranks)])
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda came, _: asked.append(came))
    return _wait(ranks, asked)


def _wait(ranks: list[Any], asked: list[int]) -> int:
    """Until all have ended, or one has ended badly."""
    import ray

    told = False
    while True:
        try:
            codes = ray.get([rank.poll.remote() for rank in ranks])
        except ray.exceptions.RayError:
            codes = [KILLED]
        bad = [code for code in codes if code]
        if bad or all(code is not None for code in codes):
            for rank in ranks:
                ray.kill(rank)
            return int(bad[0]) if bad and bad[0] > 0 else KILLED if bad else 0
        if asked and not told:
            told = True
            ray.get([rank.stop.remote() for rank in ranks])
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
