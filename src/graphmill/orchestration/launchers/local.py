"""Workers on this machine, and under Slurm, whose ``srun`` stays in the foreground and stands for its job here."""

import os
import shlex
import shutil
import signal

from graphmill.errors import ResourceError
from graphmill.orchestration.launchers.contract import WorkerCommand
from graphmill.orchestration.launchers.settings import LauncherSettings
from graphmill.orchestration.processes import ChildTree
from graphmill.training.allocator import allocator_environment
from graphmill.training.openmp_waiting import waiting_environment


def local(job: WorkerCommand) -> ChildTree:
    """A child process with this process's environment, and the settings of allocator and threads that pay here."""
    environment = {**allocator_environment(), **waiting_environment(), **os.environ, **job.environment}
    return ChildTree(job.command, env=environment, cwd=job.cwd)


def slurm(settings: LauncherSettings, job: WorkerCommand) -> ChildTree:
    """``srun`` with the worker; it takes our environment along, passes SIGTERM on, and ends with the worker's exit code.

    Raises:
        ResourceError: there is no such command here.
    """
    command = shlex.split(settings.srun)
    if not command or shutil.which(command[0]) is None:
        raise ResourceError(
            f"launcher: slurm needs the command '{command[0] if command else ''}' on this machine: install Slurm's client "
            "tools here, or give their path in launcher.srun"
        )
    name = [f"--job-name={job.name}"]
    # srun takes a first SIGINT for a question after its state.
    environment = {**os.environ, **job.environment}
    shell = ["sh", "-c", job.shell(settings.python)]
    return ChildTree([*command, *name, *shell], env=environment, cwd=None, ask_by=signal.SIGTERM)
