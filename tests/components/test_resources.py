"""The components work in any Dagster project: they bring their resources, and the project's own win."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox

from graphmill.components import EmbeddingModel, GraphDataset
from graphmill.orchestration.io_managers import ArtifactStore
from graphmill.orchestration.pipes import WorkerClient
from graphmill.orchestration.resources import AcceleratorResource

THEIRS = """
import dagster as dg

@dg.asset
def sales() -> int:
    return 7

@dg.definitions
def defs() -> dg.Definitions:
    return dg.Definitions(assets=[sales], resources={"io_manager": dg.mem_io_manager, "database": "theirs"})
"""
RESOURCES = """
import dagster as dg
from graphmill.orchestration.io_managers import ArtifactStore
from graphmill.orchestration.pipes import WorkerClient
from graphmill.orchestration.resources import AcceleratorResource

@dg.definitions
def resources() -> dg.Definitions:
    return dg.Definitions(resources=GIVEN)
"""

DATASET = {
    "type": "graphmill.components.GraphDataset",
    "attributes": {"name": "mine", "sources": [{"name": "edges", "format": "kg_csv", "path": "data/01_raw/kg.csv"}]},
}
MODEL = {"type": "graphmill.components.EmbeddingModel", "attributes": {"dataset": "mine", "system": "hgt"}}


def built(files: dict[str, str]) -> dict[str, Any]:
    """The resources of a project with a dataset, a model, and these Python files; validated as a whole."""
    with create_defs_folder_sandbox() as sandbox:
        sandbox.scaffold_component(GraphDataset, "dataset", defs_yaml_contents=DATASET)
        sandbox.scaffold_component(EmbeddingModel, "model", defs_yaml_contents=MODEL)
        for name, text in files.items():
            path = Path(sandbox.defs_folder_path) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        with sandbox.build_all_defs() as definitions:
            dg.Definitions.validate_loadable(definitions)
            return dict(definitions.resources)


def test_components_alone_are_a_whole_project() -> None:
    resources = built({})
    assert {name: type(resource) for name, resource in resources.items()} == {
        "accelerator": AcceleratorResource,
        "worker": WorkerClient,
        "graphmill_store": ArtifactStore,
    }
    assert resources["graphmill_store"].base_path.endswith("data/06_models")


def test_the_projects_own_resources_and_assets_stay_as_they_are() -> None:
    resources = built({"theirs.py": THEIRS})
    assert resources["io_manager"] is dg.mem_io_manager
    assert resources["database"] == "theirs"
    assert isinstance(resources["worker"], WorkerClient)


@pytest.mark.parametrize("file", ["resources.py", "a/resources.py", "z/deep/definitions.py"])
def test_a_resource_of_the_project_wins(file: str) -> None:
    text = RESOURCES.replace("GIVEN", '{"accelerator": AcceleratorResource(device="cpu")}')
    resources = built({file: text, "theirs.py": THEIRS})
    assert resources["accelerator"].device == "cpu"
    assert isinstance(resources["worker"], WorkerClient)


def test_a_resource_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(ComponentTreeException) as caught:
        built({"resources.py": RESOURCES.replace("GIVEN", '{"worker": "a person"}')})
    error: BaseException | None = caught.value
    output = ""
    while error is not None:
        output, error = f"{output} {error}", error.__cause__
    assert "resource 'worker' that is no WorkerClient" in output


def test_a_file_that_only_speaks_of_a_key_is_left_alone() -> None:
    assert "worker" in built({"notes/definitions.py": THEIRS, "notes/words.py": 'WORDS = ["worker", "store"]\n'})
