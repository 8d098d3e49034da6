"""Runs workers on this machine, and under Slurm by ``srun``, which stays in the foreground and represents its job here."""

import os
import shlex
import shutil
import signal

from graphmill.errors import ResourceError
from graphmill.launchers.child_tree import ChildTree
from graphmill.launchers.contract import WorkerCommand
from graphmill.launchers.settings import LauncherSettings
from graphmill.training.allocator import allocator_environment, waiting_environment


def local(job: WorkerCommand) -> ChildTree:
    """Start a child process with this process's environment and the best settings of allocator and threads for this
    machine."""
    environment = {**allocator_environment(), **waiting_environment(), **os.environ, **job.environment}
    return ChildTree(job.command, env=environment, cwd=job.cwd)


def slurm(settings: LauncherSettings, job: WorkerCommand) -> ChildTree:
    """Start ``srun`` with the worker. It passes on this environment and SIGTERM, and exits with the worker's code.

    Raises:
        ResourceError: the command does not exist on this machine.
    """
    command = shlex.split(settings.srun)
    if not command or shutil.which(command[0]) is None:
        raise ResourceError(
            f"launcher: slurm needs the command '{command[0] if command else ''}' on this machine: install Slurm's client "
            "tools here, or give their path in launcher.srun"
        )
    name = [f"--job-name={job.name}"]
    # srun answers the first SIGINT with its state, so use SIGTERM.
    environment = {**os.environ, **job.environment}
    shell = ["sh", "-c", job.shell(settings.python)]
    return ChildTree([*command, *name, *shell], env=environment, cwd=None, ask_by=signal.SIGTERM)
