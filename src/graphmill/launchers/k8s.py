"""Runs workers as Kubernetes Jobs: one pod without restarts (Dagster repeats the step, which resumes)."""

import contextlib
import re
import uuid
from typing import Any

from graphmill.errors import ResourceError, one_line, require
from graphmill.launchers.contract import LOST, UNSEEN, RemoteWorker, WorkerCommand
from graphmill.launchers.settings import LauncherSettings

_STUCK = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError")


def manifest(settings: LauncherSettings, job: WorkerCommand, name: str, grace_seconds: int = 180) -> dict[str, Any]:
    """The manifest of the Job: image, command, environment, the data folder's volume, and resource requests."""
    requests: dict[str, str] = {"cpu": f"{job.processes * settings.cpus:g}"}
    if settings.memory_gib:
        requests["memory"] = f"{job.processes * settings.memory_gib:g}Gi"
    gpus = {"nvidia.com/gpu": f"{job.processes * settings.gpus:g}"} if settings.gpus else {}
    container = {
        "name": "worker",
        "image": settings.image,
        "command": ["sh", "-c", job.shell(settings.python)],
        "env": [{"name": key, "value": value} for key, value in job.environment.items()],
        "envFrom": [{"secretRef": {"name": secret}} for secret in settings.secrets],
        "resources": {"requests": {**requests, **gpus}, "limits": gpus},
        "volumeMounts": [
            {"name": "data", "mountPath": f"{job.cwd.rstrip('/')}/data"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds,
        "containers": [container],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": settings.claim}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    labels = {"app.kubernetes.io/name": "graphmill", "graphmill/job": name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 86400,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


class KubernetesWorker(RemoteWorker):
    """A Job and its pod."""

    def __init__(self, settings: LauncherSettings, job: WorkerCommand) -> None:
        require("launcher: k8s", "kubernetes", "k8s")
        super().__init__()
        self._namespace = settings.namespace
        self._stuck = self._waits = ""
        label = re.sub(r"[^a-z0-9]+", "-", job.name.lower()).strip("-")[:40].strip("-") or "worker"
        self._name = f"{label}-{uuid.uuid4().hex[:8]}"
        try:
            import kubernetes

            _configure(kubernetes.config, settings.context)
            self._jobs: Any = kubernetes.client.BatchV1Api()
            self._pods: Any = kubernetes.client.CoreV1Api()
            body: Any = manifest(settings, job, self._name)
            self._jobs.create_namespaced_job(self._namespace, body, _request_timeout=30)
        except Exception as error:  # errors of urllib3, of the client, or of a kubeconfig
            reason = getattr(error, "reason", None)
            why = reason if isinstance(reason, str) and reason else one_line(error)
            raise ResourceError(
                f"launcher: Kubernetes does not take the Job ({why}); look at launcher.context and "
                "launcher.namespace, and whether `kubectl auth can-i create jobs` says yes"
            ) from None

    def _state(self) -> int | None:
        if not (pods := self._our_pods()):
            job = self._jobs.read_namespaced_job(self._name, self._namespace, _request_timeout=30)
            return LOST if job.status.failed else None  # its pod was lost with its node
        status = pods[0].status
        self._waits = ""
        for condition in status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                why = " ".join(str(condition.message or condition.reason or "no reason given").split()).rstrip(".")
                self._waits = f"launcher: the pod waits for a node: {why}. It starts when there is one"
        for each in status.container_statuses or ():
            if each.state.terminated is not None:
                return int(each.state.terminated.exit_code)
            if each.state.waiting is not None and each.state.waiting.reason in _STUCK:
                self._stuck = (
                    f"launcher: the pod cannot start ({each.state.waiting.reason}): look at launcher.image and secrets"
                )
                with contextlib.suppress(Exception):
                    self._end(0)
                return UNSEEN
        return LOST if status.phase == "Failed" else None

    def stderr_tail(self) -> str:
        """The last lines of the pod's log, or why it has none."""
        if self._stuck:
            return self._stuck
        with contextlib.suppress(Exception):  # the pod may not exist yet, or no longer exist
            name = self._our_pods()[0].metadata.name
            return str(self._pods.read_namespaced_pod_log(name, self._namespace, tail_lines=40, _request_timeout=30))
        return ""

    def waits_for(self) -> str:
        """The scheduler's message for a pod without a node, such as a missing volume claim or too few resources."""
        return self._waits

    def _end(self, grace_seconds: float) -> None:
        """Delete the Job: its pod gets SIGTERM and the grace period to save."""
        grace: Any = {"grace_period_seconds": int(grace_seconds), "propagation_policy": "Background"}
        self._jobs.delete_namespaced_job(self._name, self._namespace, **grace, _request_timeout=30)

    def _our_pods(self) -> Any:
        selector = f"job-name={self._name}"
        return self._pods.list_namespaced_pod(self._namespace, label_selector=selector, _request_timeout=30).items


def _configure(config: Any, context: str) -> None:
    """Use the named context, else the account of the pod in which this process runs, else the current context."""
    if not context:
        with contextlib.suppress(config.ConfigException):
            config.load_incluster_config()
            return
    config.load_kube_config(context=context or None)
