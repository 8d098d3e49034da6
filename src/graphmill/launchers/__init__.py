"""Launchers of the worker with one contract: on this machine, on Ray, or on Kubernetes.

With every launcher, the worker gets a job in its environment, appends messages to a file, saves a checkpoint when it is
asked to stop, and exits with a documented code.
"""

import os

from graphmill.launchers.contract import Worker, WorkerCommand
from graphmill.launchers.settings import LauncherSettings


def start(settings: LauncherSettings, job: WorkerCommand) -> Worker:
    """Start the worker in the place that ``settings`` name.

    Raises:
        SettingsError: a package for this place is not installed here.
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
    environment = {**allocator_environment(), **waiting_environment(), **os.environ, **job.environment}
    return ChildTree(job.command, env=environment, cwd=job.cwd)
