"""Workers as Kubernetes Jobs: one pod, no restarts of its own (Dagster repeats the step, which resumes)."""

import contextlib
import re
import time
import uuid
from typing import Any

from graphmill.errors import MissingExtraError, ResourceError
from graphmill.orchestration.launchers.contract import UNSEEN, WorkerCommand
from graphmill.orchestration.launchers.settings import LauncherSettings

_ASK_EVERY_SECONDS = 1.0
_LOST_SECONDS = 60.0
"""How long the API server may be away before the worker counts as lost."""
_STUCK = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError")


def _unscheduled(status: Any) -> str:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            why = " ".join(str(condition.message or condition.reason or "no reason given").split()).rstrip(".")
            return f"launcher: the pod waits for a node: {why}. It starts when there is one; cancel the run to give up"
    return ""


def manifest(settings: LauncherSettings, job: WorkerCommand, name: str, grace_seconds: int = 180) -> dict[str, Any]:
    """The Job: the image, the command, the environment, the data folder's volume, and what it asks for."""
    asked: dict[str, str] = {"cpu": f"{job.processes * settings.cpus:g}"}
    if settings.memory_gib:
        asked["memory"] = f"{job.processes * settings.memory_gib:g}Gi"
    gpus = {"nvidia.com/gpu": f"{job.processes * settings.gpus:g}"} if settings.gpus else {}
    container = {
        "name": "worker",
        "image": settings.image,
        "command": ["sh", "-c", job.shell(settings.python)],
        "env": [{"name": key, "value": value} for key, value in job.environment.items()],
        "envFrom": [{"secretRef": {"name": secret}} for secret in settings.secrets],
        "resources": {"requests": {**asked, **gpus}, "limits": gpus},
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


class KubernetesWorker:
    """A Job, and the pod that it made."""

    def __init__(self, settings: LauncherSettings, job: WorkerCommand) -> None:
        try:
            import kubernetes
        except ImportError:
            raise MissingExtraError('launcher: k8s needs its client here: pip install "graphmill[k8s]"') from None
        self._namespace, self._asked_at, self._away = settings.namespace, 0.0, 0.0
        self._code: int | None = None
        self._lost = False
        self._stuck = self._waits = ""
        label = re.sub(r"[^a-z0-9]+", "-", job.name.lower()).strip("-")[:40].strip("-") or "worker"
        self._name = f"{label}-{uuid.uuid4().hex[:8]}"
        try:
            _configure(kubernetes.config, settings.context)
            self._jobs: Any = kubernetes.client.BatchV1Api()
            self._pods: Any = kubernetes.client.CoreV1Api()
            body: Any = manifest(settings, job, self._name)
            self._jobs.create_namespaced_job(self._namespace, body, _request_timeout=30)
        except Exception as error:  # of urllib3, of the client, of a kubeconfig
            raise ResourceError(
                f"launcher: Kubernetes does not take the Job ({_first_line(error)}); look at launcher.context and "
                "launcher.namespace, and whether `kubectl auth can-i create jobs` says yes"
            ) from None

    def poll(self) -> int | None:
        """Asks the API server once a second."""
        if self._code is None and time.monotonic() - self._asked_at >= _ASK_EVERY_SECONDS:
            self._asked_at = time.monotonic()
            try:
                self._code = self._state()
                self._away = 0.0
            except Exception:  # the API server is away, perhaps for a moment
                self._away = self._away or time.monotonic()
                if time.monotonic() - self._away > _LOST_SECONDS:
                    self._code, self._lost = -9, True
        return self._code

    def _state(self) -> int | None:
        selector = f"job-name={self._name}"
        pods = self._pods.list_namespaced_pod(self._namespace, label_selector=selector, _request_timeout=30).items
        if not pods:
            job = self._jobs.read_namespaced_job(self._name, self._namespace, _request_timeout=30)
            return -9 if job.status.failed else None  # its pod went with its node
        status = pods[0].status
        self._waits = _unscheduled(status)
        for each in status.container_statuses or ():
            if each.state.terminated is not None:
                return int(each.state.terminated.exit_code)
            if each.state.waiting is not None and each.state.waiting.reason in _STUCK:
                self._stuck = (
                    f"launcher: the pod cannot start ({each.state.waiting.reason}): look at launcher.image and secrets"
                )
                self._delete(0)
                return UNSEEN
        return -9 if status.phase == "Failed" else None

    def stderr_tail(self) -> str:
        """The last lines of the pod's log, or why it has none."""
        if self._stuck:
            return self._stuck
        with contextlib.suppress(Exception):  # there may be no pod yet, or none any more
            selector = f"job-name={self._name}"
            pods = self._pods.list_namespaced_pod(self._namespace, label_selector=selector, _request_timeout=30).items
            name = pods[0].metadata.name
            return str(self._pods.read_namespaced_pod_log(name, self._namespace, tail_lines=40, _request_timeout=30))
        return ""

    def waits_for(self) -> str:
        """What the scheduler says of a pod that has no node: a volume claim that is not there, too little room."""
        return self._waits

    def note_descendants(self) -> None:
        """Kubernetes looks after its pods itself."""

    def stop(self, grace_seconds: float) -> None:
        """Delete the Job: its pod gets SIGTERM, and the grace to save."""
        self._delete(int(grace_seconds))
        until = time.monotonic() + grace_seconds
        while self.poll() is None and time.monotonic() < until:
            time.sleep(0.2)

    def kill(self) -> None:
        """Delete what still runs, or may run beyond our sight; a Job that has ended stays a day, for its log."""
        if self._code is None or self._lost:
            self._delete(0)

    def _delete(self, grace: int) -> None:
        with contextlib.suppress(Exception):  # it may be gone
            self._jobs.delete_namespaced_job(
                self._name,
                self._namespace,
                propagation_policy="Background",
                grace_period_seconds=grace,
                _request_timeout=30,
            )


def _configure(config: Any, context: str) -> None:
    """A context that is named, else the account of the pod that we are in, else the current context."""
    if not context:
        with contextlib.suppress(config.ConfigException):
            config.load_incluster_config()
            return
    config.load_kube_config(context=context or None)


def _first_line(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    text = str(reason if isinstance(reason, str) and reason else error).strip()
    return (text.splitlines()[0] if text else type(error).__name__)[:200]
