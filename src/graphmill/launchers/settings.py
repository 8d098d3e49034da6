"""The section ``launcher`` of a model's YAML, or of the resource ``worker`` for all models: where trainings run."""

from typing import Literal, Self

from pydantic import model_validator

from graphmill.settings import Settings, setting

_CLUSTER = ("gpus", "cpus", "memory_gib", "python", "root")
_FIELDS = {
    "ray": ("address", *_CLUSTER),
    "k8s": ("image", "namespace", "context", "claim", "secrets", *_CLUSTER),
}
"""The settings of each kind."""


class LauncherSettings(Settings):
    """Where a training runs, and which resources it requests."""

    kind: Literal["local", "ray", "k8s"] = setting(
        "local",
        "local: this machine; ray: a Ray cluster; k8s: a Kubernetes Job; each in acceleration.processes",
    )
    address: str = setting(
        "", "Ray: address of the cluster's dashboard, such as http://head:8265; empty: RAY_API_SERVER_ADDRESS"
    )
    cpus: float = setting(1.0, "CPUs of each process", gt=0)
    gpus: float = setting(0.0, "GPUs of each process", ge=0)
    memory_gib: float = setting(0.0, "Memory of each process in GiB; 0: no request", ge=0)
    python: str = setting("python", "The Python interpreter on the other machine, with graphmill installed")
    root: str = setting("", "Path of the project's folder on the other machine; empty: the same path as here")
    image: str = setting("", "Kubernetes: the image, with graphmill and the project installed")
    namespace: str = setting("default", "Kubernetes: the namespace")
    context: str = setting(
        "", "Kubernetes: context of the kubeconfig; empty: this pod's own account, or else the current context"
    )
    claim: str = setting("data", "Kubernetes: the PersistentVolumeClaim that holds the project's data folder")
    secrets: list[str] = setting([], "Kubernetes: Secrets whose keys become environment variables of the worker")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        for name in sorted(self.model_fields_set - {"kind"}):
            kinds = [kind for kind, names in _FIELDS.items() if name in names]
            if self.kind not in kinds:
                raise ValueError(f"launcher.{name} is of {' and '.join(kinds)}, but launcher.kind is {self.kind}")
        if self.kind == "k8s" and not self.image:
            raise ValueError(
                "launcher.image is missing: Kubernetes needs an image with graphmill and the project installed"
            )
        return self

    @property
    def elsewhere(self) -> bool:
        """Whether the worker may be on another machine, so that files that both use must be on shared storage."""
        return self.kind != "local"
