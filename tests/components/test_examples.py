"""The example of a whole chain loads as it is, and trains with the settings that were measured."""

from pathlib import Path

import dagster as dg
import pytest
from benchmarks.parts.hetionet import TYPES
from dagster.components.testing import create_defs_folder_sandbox

from graphmill.components import EmbeddingModel, GraphDataset
from graphmill.runs.resolve import parse_settings, read_settings


@pytest.fixture
def example(repository: Path) -> str:
    return (repository / "examples" / "hgt" / "hetionet_defs.yaml").read_text()


def test_the_hetionet_chain_loads(example: str) -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(GraphDataset)
        (Path(path) / "defs.yaml").write_text(example)
        with sandbox.build_all_defs() as definitions:
            jobs = {job.name for job in definitions.jobs}
            graph = definitions.resolve_asset_graph()
    assert {"hetionet_refresh", "hetionet_build_graph", "hetionet_hgt_retrain"} <= jobs
    # The command in its comment takes all that is made by default.
    (command,) = [line for line in example.splitlines() if "dg launch" in line]
    chosen = dg.AssetSelection.from_string(command.split("--assets '")[1].split("'")[0]).resolve(graph)
    assert chosen == graph.get_all_asset_keys()


def test_it_has_the_graph_and_the_settings_of_the_benchmark(example: str, repository: Path) -> None:
    parts = []
    for document in example.split("\n---\n"):
        with create_defs_folder_sandbox() as sandbox:
            path = sandbox.scaffold_component(GraphDataset)
            (Path(path) / "defs.yaml").write_text(document)
            with sandbox.load_component_and_build_defs(defs_path=path) as (component, _):
                parts.append(component)
    dataset, model = parts
    assert isinstance(dataset, GraphDataset)
    assert dataset.graph.include_node_types == TYPES
    assert isinstance(model, EmbeddingModel)
    ours = model.settings.settings.model_dump()
    measured = parse_settings(
        read_settings(repository / "examples" / "hgt" / "hetionet_kg_5k.yaml"), "test"
    ).model_dump()
    same = {"data": "", "evaluation": {}}  # when the epochs are evaluated
    assert ours | same == measured | same


@pytest.mark.parametrize("sample", ["biomed", "kg_bench", "music", "watch"])
def test_everything_of_a_sample_says_what_it_is_and_what_to_do(sample: str, repository: Path) -> None:
    """Short enough that summary and picture of an asset stand below it in the first screen."""
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(GraphDataset)
        (Path(path) / "defs.yaml").write_text((repository / f"src/graphmill/defs/{sample}/defs.yaml").read_text())
        with sandbox.build_all_defs() as definitions:
            graph = definitions.resolve_asset_graph()
            automations = [*(definitions.schedules or ()), *(definitions.sensors or ()), *(definitions.jobs or ())]
            said = {each.name: each.description or "" for each in automations}
    output = {key.to_user_string(): graph.get(key).description or "" for key in graph.get_all_asset_keys()}
    page = (repository / "docs/tutorials/dagster.md").read_text()  # Dagster has no place for the text of a group
    groups = {str(graph.get(key).group_name).removeprefix(sample) for key in graph.get_all_asset_keys()}
    assert [group for group in groups if f"| `D{group}` |" not in page] == []
    assert {name: len(text) for name, text in output.items() if not 90 <= len(text) <= 240} == {}
    checks = {key.name: graph.get_check_spec(key).description or "" for key in graph.asset_check_keys}
    assert [name for name, text in checks.items() if not text.endswith((".", ").")) or text.count(".") < 2] == []
    assert [name for name, text in said.items() if len(text) < 60] == []
