"""Launchers of the worker with one contract: on this machine, under Slurm, on Ray, or on Kubernetes.

With every launcher, the worker gets a job in its environment, appends messages to a file, saves a checkpoint when it is
asked to stop, and exits with a documented code.
"""

import os
import shlex
import shutil
import signal

from graphmill.errors import ResourceError
from graphmill.launchers.contract import Worker, WorkerCommand
from graphmill.launchers.settings import LauncherSettings


def start(settings: LauncherSettings, job: WorkerCommand) -> Worker:
    """Start the worker in the place that ``settings`` name.

    Raises:
        MissingExtraError: a package for this place is not installed here.
        ResourceError: the place cannot be reached, or refuses the job; the message says what to do.
    """
    from graphmill.launchers.child_tree import ChildTree
    from graphmill.training.allocator import allocator_environment, waiting_environment

    if settings.kind == "ray":
        from graphmill.launchers.ray import RayWorker

        return RayWorker(settings, job)
    if settings.kind == "k8s":
        from graphmill.launchers.k8s import KubernetesWorker

        return KubernetesWorker(settings, job)
    environment = {**os.environ, **job.environment}
    if settings.kind == "local":
        return ChildTree(
            job.command, env={**allocator_environment(), **waiting_environment(), **environment}, cwd=job.cwd
        )
    # srun stays in the foreground, passes on this environment and SIGTERM, and exits with the worker's code. It answers
    # the first SIGINT with its state, so use SIGTERM.
    command = shlex.split(settings.srun)
    if not command or shutil.which(command[0]) is None:
        raise ResourceError(
            f"launcher: slurm needs the command '{command[0] if command else ''}' on this machine: install Slurm's client "
            "tools here, or give their path in launcher.srun"
        )
    command += [f"--job-name={job.name}", "sh", "-c", job.shell(settings.python)]
    return ChildTree(command, env=environment, cwd=None, ask_by=signal.SIGTERM)
