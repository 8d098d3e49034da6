"""Where a model's training runs: as its YAML says, else as the resource says, else here. No cluster is asked."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import pytest
from dagster.components.resolved.errors import ResolutionException

from graphmill.components import EmbeddingModel
from graphmill.launchers.settings import LauncherSettings
from graphmill.orchestration.pipes import WorkerReport
from tests.components.conftest import FakeWorker, Project, failure
from tests.components.test_embedding_model import RUN, trained, write_losses

YAML = """
dataset: toy
system: hgt
"""
RAY = "launcher: {kind: ray, address: 'http://head:8265', gpus: 2}"
KUBERNETES = {"kind": "k8s", "image": "shop:1"}


STARTED: list[dict[str, Any]] = []
"""What each training was to be started with; a resource is copied, so that it cannot keep this itself."""


class RecordingWorker(FakeWorker):
    """Writes down how it is asked to start."""

    def run(self, context: dg.AssetExecutionContext, *, extras: Mapping[str, Any], **how: Any) -> WorkerReport:
        STARTED.append(how)
        return super().run(context, extras=extras, **how)


@pytest.fixture
def built(project: Project) -> Project:
    assert project.materialize(project.dataset()).success
    write_losses(project, [2.0, 1.5, 1.2, 1.0])
    return project


def train(
    project: Project, written: str, resource: dict[str, Any] | None = None
) -> tuple[list[dict[str, Any]], dg.ExecuteInProcessResult]:
    """Materialize the model of a component with this line more; what the worker was given, and the result."""
    STARTED.clear()
    worker = RecordingWorker(replies={"train": trained()}, launcher=resource or {})
    model = EmbeddingModel.resolve_from_yaml(YAML + written).build_defs(project.context)
    result = project.materialize(project.dataset(), model, only='key:"toy/hgt_model"', worker=worker)
    return STARTED, result


@pytest.mark.parametrize(
    ("written", "resource", "place"),
    [
        ("", {}, LauncherSettings()),
        ("launcher: ray", {}, LauncherSettings(kind="ray")),
        (RAY, {}, LauncherSettings(kind="ray", address="http://head:8265", gpus=2)),
        ("", KUBERNETES, LauncherSettings(**KUBERNETES)),
        (RAY, KUBERNETES, LauncherSettings(kind="ray", address="http://head:8265", gpus=2)),
        ("launcher: local", KUBERNETES, LauncherSettings()),
    ],
    ids=["neither", "shorthand", "mapping", "resource", "the model's wins", "the model's wins, even local"],
)
def test_a_training_is_started_where_the_model_says_else_where_the_resource_says(
    built: Project, written: str, resource: dict[str, Any], place: LauncherSettings
) -> None:
    (started,), result = train(built, written, resource)
    assert result.success, failure(result)
    assert started["launcher"] == place
    assert built.metadata("toy/hgt_model")["launcher"] == place.kind
    assert RUN in built.metadata("toy/hgt_model")["run_dir"]


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("launcher: rey", "launcher: kind = 'rey': .*'k8s'"),
        ("launcher: k8s", r"launcher\.image is missing: Kubernetes needs an image"),
        ("launcher: {kind: ray, image: a}", r"launcher\.image is of k8s, but launcher\.kind is ray"),
        ("launcher: {kind: ray, gpu: 1}", r"launcher: unknown setting 'gpu'"),
    ],
)
def test_a_mistake_in_the_yaml_is_one_sentence_when_the_project_loads(
    project: Project, written: str, sentence: str
) -> None:
    with pytest.raises(ResolutionException, match=sentence):
        EmbeddingModel.resolve_from_yaml(YAML + written).build_defs(project.context)


def test_a_mistake_in_the_resource_is_one_sentence_and_starts_nothing(built: Project) -> None:
    started, result = train(built, "", {"kind": "rey"})
    assert "the resource worker, launcher: kind = 'rey'" in failure(result)
    assert "\n" not in failure(result)
    assert not started
