"""A system in closed form as Dagster assets, with the real worker."""

import dagster as dg

from graphmill.orchestration.io_managers import ArtifactStore
from graphmill.orchestration.resources import AcceleratorResource
from tests.components.conftest import Project, failure
from tests.components.test_search_assets import SOURCE, WorkerHere, write_interactions


def test_ease_is_trained_ranked_and_recommends(project: Project) -> None:
    write_interactions(project.root / "data" / "views.tsv")
    evaluation = {"top_k": [5], "selection_metric": "recall@5", "baselines": ["popularity"]}
    model = project.model(system="ease", settings={"evaluation": evaluation})
    found = dg.materialize(
        [asset for each in (project.dataset(sources=[SOURCE]), model) for asset in each.assets],
        instance=project.instance,
        raise_on_error=False,
        resources={
            "graphmill_store": ArtifactStore(base_path=str(project.root / "data" / "06_models")),
            "accelerator": AcceleratorResource(device="auto"),
            "worker": WorkerHere(),
        },
    )
    assert found.success, failure(found)
    assert "loss" not in project.metadata("toy/ease_model")
    assert "popularity" in project.metadata("toy/ease_ranking")["beside_the_baselines"]
    assert project.metadata("toy/ease_recommendations")["dagster/row_count"] > 0
