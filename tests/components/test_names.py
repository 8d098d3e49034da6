"""Names that a folder of the dataset has already, or that become one when joined: said with file and line."""

import traceback
from textwrap import dedent
from typing import Any

import pytest
from dagster.components.testing import create_defs_folder_sandbox

from graphmill.components import EmbeddingModel
from graphmill.errors import GraphmillError, SettingsError
from tests.components.conftest import Project, failure

DATASET = """
type: graphmill.components.GraphDataset
attributes:
  name: {name}
  sources: [{{name: edges, format: kg_csv, path: data/kg.csv}}]
"""
MODEL = """
type: graphmill.components.EmbeddingModel
attributes:
  dataset: {dataset}
  system: hgt
  name: {name}
"""


def write(project: Project, **files: str) -> None:
    """``defs/<name>/defs.yaml`` for each."""
    for name, text in files.items():
        path = project.root / "defs" / name / "defs.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(dedent(text).lstrip())


@pytest.mark.parametrize("name", ["graph", "Graph", "features", "raw"])
def test_a_folder_of_the_datasets_own_is_no_models_name(project: Project, name: str) -> None:
    with pytest.raises(SettingsError, match=f"a model cannot be named '{name}': .*; write another 'name'"):
        project.model(name=name)


def test_names_that_are_one_when_joined_are_refused_with_both_places(project: Project) -> None:
    write(
        project,
        shop=DATASET.format(name="shop") + "---" + MODEL.format(dataset="shop", name="eu_bpr"),
        shop_eu=DATASET.format(name="shop_eu") + "---" + MODEL.format(dataset="shop_eu", name="bpr"),
    )
    with pytest.raises(SettingsError) as caught:
        EmbeddingModel(dataset="shop_eu", system="hgt", name="bpr").build_defs(project.context)
    for model, place in (("'eu_bpr'", "defs/shop/defs.yaml, line 10"), ("'bpr'", "defs/shop_eu/defs.yaml, line 10")):
        assert model in str(caught.value)
        assert place in str(caught.value)


def test_a_dataset_that_is_there_twice_is_refused_also_where_only_capitals_differ(project: Project) -> None:
    write(project, a=DATASET.format(name="shop"), b=DATASET.format(name="Shop"))
    with pytest.raises(SettingsError, match=r"'shop' \(defs/a/defs.yaml, line 3\) and dataset 'Shop' \(defs/b/"):
        project.dataset(name="shop")


def test_a_broken_file_of_another_dataset_is_that_ones_business(project: Project) -> None:
    write(project, a=DATASET.format(name="shop"), b="type: [", c="- 1", d="type: x.EmbeddingModel", e="\0")
    assert project.dataset(name="shop").jobs


def test_a_key_given_twice_in_a_defs_yaml_is_refused(project: Project) -> None:
    project.context.path = project.root / "defs" / "toy"
    write(project, toy=MODEL.format(dataset="toy", name="a") + "  name: b\n")
    with pytest.raises(GraphmillError, match=r"defs/toy/defs.yaml: 'name' is given twice, in lines 5 and 6"):
        project.model()


def test_dagster_shows_the_sentence() -> None:
    with create_defs_folder_sandbox() as sandbox:
        attributes = {"dataset": "shop", "system": "hgt", "name": "graph"}
        path = sandbox.scaffold_component(EmbeddingModel, defs_yaml_contents=_yaml(attributes))
        with pytest.raises(Exception, match="Error while building") as caught:  # noqa: SIM117
            with sandbox.load_component_and_build_defs(defs_path=path):
                pass
    assert "a model cannot be named 'graph'" in "".join(traceback.format_exception(caught.value))


def _yaml(attributes: dict[str, str]) -> dict[str, Any]:
    return {"type": "graphmill.components.EmbeddingModel", "attributes": attributes}


@pytest.mark.parametrize(
    ("export", "publish", "words"),
    [
        ({"csv": False}, "out.csv", "export.csv is off"),
        ({}, "data", "publish: data is a folder"),
    ],
)
def test_what_could_only_fail_after_the_training_is_refused_before_it(
    project: Project, export: dict[str, Any], publish: str, words: str
) -> None:
    assert project.materialize(project.dataset()).success
    model = project.model(settings={"export": export}, publish=publish)
    result = project.materialize(project.dataset(), model, only='key:"toy/hgt_model"')
    assert words in failure(result)
