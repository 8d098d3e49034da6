"""A project that was renamed, or copied without its graphs: its assets are made where it is, or say what is missing."""

import shutil
from pathlib import Path

import dagster as dg
import pytest

from tests.components.conftest import Project, WorkerHere, failure

SMALL = {
    "model": {"embedding_dim": 16, "hidden_dim": 16, "num_heads": 2, "num_layers": 1},
    "training": {"epochs": 2, "steps_per_epoch": 2},
    "evaluation": {"baselines": []},
}
PARTS = ("embeddings", "validation", "ranking", "links", "drift", "promoted")


def chain(project: Project) -> tuple[dg.Definitions, dg.Definitions]:
    return project.dataset(), project.model(settings=SMALL, promote={"when": "checks_pass"})


def made(project: Project, *parts: str) -> dg.ExecuteInProcessResult:
    only = " or ".join(f'key:"toy/hgt_{part}"' for part in parts)
    return project.materialize(*chain(project), only=only, worker=WorkerHere())


@pytest.mark.slow
def test_every_asset_is_made_where_the_project_is(tmp_path: Path) -> None:
    before = Project(tmp_path / "before")
    assert before.materialize(*chain(before), only='+key:"toy/hgt_embeddings"', worker=WorkerHere()).success
    before.root.rename(tmp_path / "after")
    after = Project(tmp_path / "after")
    after.instance = before.instance
    assert made(after, "embeddings").success, "of the model as it was recorded before"
    assert made(after, "model", *PARTS).success
    assert after.metadata("toy/hgt_model")["epochs_done"] == 2
    written = [path for path in after.root.rglob("*.json") if str(tmp_path / "before") in path.read_text()]
    assert written == []
    shutil.rmtree(after.root / "data/06_models/toy/graph")
    assert "is not here: it was" in failure(made(after, "ranking"))
