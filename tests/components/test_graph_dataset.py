"""From a file and a few lines of YAML to a checked typed graph."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from graphmill.components import GraphDataset
from graphmill.errors import SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import EDGES, NODES
from tests.components.conftest import Project, checks, failure, ran

SOURCE = {"name": "edges", "format": "kg_csv", "path": "data/01_raw/kg.csv"}


def test_assets_carry_what_the_ui_shows(project: Project) -> None:
    graph = project.dataset(owners=["team:science"]).resolve_asset_graph()
    by_name = {key.path[-1]: graph.get(key) for key in graph.get_all_asset_keys()}
    assert {name: node.group_name for name, node in by_name.items()} == {
        "raw_edges": "toy_ingest",
        "nodes": "toy_graph",
        "edges": "toy_graph",
        "graph": "toy_graph",
    }
    for node in by_name.values():
        assert node.description
        assert node.kinds
        assert node.code_version
        assert list(node.owners) == ["team:science"]
    assert by_name["graph"].parent_keys == {dg.AssetKey(["toy", "nodes"]), dg.AssetKey(["toy", "edges"])}
    assert by_name["nodes"].parent_keys == {dg.AssetKey(["toy", "raw_edges"])}


def test_files_become_a_graph(project: Project) -> None:
    result = project.materialize(project.dataset())
    assert result.success
    assert all(evaluation.passed for evaluation in checks(result).values())
    assert set(checks(result)) == {
        *("nodes_are_unique", "few_rejects", "ids_match", "ends_exist"),
        *("relations_have_training_edges", "types_are_reached", "no_split_leakage"),
    }
    lines = project.source.read_text().count("\n")
    assert project.metadata("toy/raw_edges")["lines"] == lines
    edges = project.metadata("toy/edges")
    assert edges["dagster/row_count"] == lines - 1
    assert [column.name for column in edges["columns"].columns] == EDGES.names
    assert [column.name for column in project.metadata("toy/nodes")["columns"].columns] == NODES.names
    reference = project.value("toy/graph")
    assert set(reference) == {"path", "content_hash"}
    graph = TypedGraph.open(project.root / reference["path"])
    assert project.data_version("toy/graph") == graph.content_hash == reference["content_hash"]
    assert project.metadata("toy/graph")["edges"] == graph.num_edges


def test_versions_follow_the_content(project: Project) -> None:
    names = ("toy/raw_edges", "toy/nodes", "toy/edges", "toy/graph")
    definitions = project.dataset()
    project.materialize(definitions)
    first = [project.data_version(name) for name in names]
    project.materialize(definitions)
    assert [project.data_version(name) for name in names] == first
    project.source.write_text(project.source.read_text().replace("node 7,", "another name,"))
    project.materialize(definitions)
    assert all(now != before for now, before in zip([project.data_version(n) for n in names], first, strict=True))


def test_figures_stand_beside_those_of_the_previous_run(project: Project) -> None:
    definitions = project.dataset()
    project.materialize(definitions)
    before = project.metadata("toy/graph")["edges"]
    rows = project.source.read_text().splitlines()
    project.source.write_text("\n".join(rows[:-20]) + "\n")
    project.materialize(definitions)
    again = project.metadata("toy/graph")
    assert again["edges"] == before - 20
    assert again["summary"].startswith("The graph of toy: ")
    types = next(record.data for record in again["figures"].records if record.data["figure"] == "node_types")
    assert (types["now"], types["previous"], types["change"]) == ("3", "3", "same")


def test_tables_are_not_made_of_a_file_that_changed_behind_its_asset(project: Project) -> None:
    definitions = project.dataset()
    project.materialize(definitions)
    project.source.write_text(project.source.read_text() + "\n")
    result = project.materialize(definitions, only='key:"toy/nodes" or key:"toy/edges"')
    assert "data/01_raw/kg.csv has changed since raw_edges was materialized" in failure(result)


def test_a_touched_file_is_no_change(project: Project) -> None:
    definitions = project.dataset()
    project.materialize(definitions)
    project.source.touch()
    assert project.materialize(definitions, only='key:"toy/nodes" or key:"toy/edges"').success


def test_too_many_rejects_stop_the_chain_and_are_shown(project: Project) -> None:
    text = project.source.read_text().splitlines()
    broken = [text[0], *(line.replace("TEST", "TEST", 1) for line in text[1:]), *[",,,,,,,,,,,"] * 30]
    project.source.write_text("\n".join(broken) + "\n")
    result = project.materialize(project.dataset())
    few = checks(result)["few_rejects"]
    assert not few.passed
    assert few.severity is dg.AssetCheckSeverity.ERROR
    assert "toy__graph" not in ran(result)
    rejects = project.metadata("toy/edges")["rejects"]
    assert len(rejects.records if hasattr(rejects, "records") else rejects) == 30
    assert project.materialize(project.dataset(rejected_share_max=0.5)).success


def test_ids_that_do_not_match_stop_the_chain_and_aliases_mend_them(project: Project) -> None:
    features = project.root / "data" / "01_raw" / "features.csv"
    rows = [f"{'D:' if number >= 10 else ''}{number:03d},{number},1" for number in range(40)]
    features.write_text("\n".join(["id,size,age", *rows]))
    source = {"name": "features", "format": "node_features", "path": "data/01_raw/features.csv", "node_type": "drug"}
    both = [{"name": "edges", "format": "kg_csv", "path": "data/01_raw/kg.csv"}, source]
    result = project.materialize(project.dataset(sources=both, rejected_share_max=0.9))
    match = checks(result)["ids_match"]
    assert not match.passed
    assert match.severity is dg.AssetCheckSeverity.ERROR
    assert "10 of 40 ids of features of drug" in match.description
    assert "prefix 'D:' removed: 10 → 40 of 40" in match.description
    assert "toy__graph" not in ran(result)
    aliases = project.root / "data" / "01_raw" / "aliases.csv"
    aliases.write_text("\n".join(["old_id,id", *(f"D:{number:03d},{number:03d}" for number in range(10, 40))]))
    mended = project.dataset(sources=both, aliases="data/01_raw/aliases.csv")
    before = project.data_version("toy/edges")
    assert project.materialize(mended).success
    assert project.data_version("toy/edges") != before
    assert project.metadata("toy/edges")["ids"].records[0].data["matched"] == 40
    mended = project.dataset(sources=both, repair_ids=["prefix D:"])
    assert project.materialize(mended).success
    assert project.metadata("toy/edges")["ids"].records[0].data["matched"] == 40
    mended = project.dataset(sources=both, aliases="data/01_raw/aliases.csv")
    aliases.write_text("old_id,id\na,b\nb,a\n")
    assert "a → b → a" in failure(project.materialize(mended))


def test_a_users_mistake_is_one_sentence_and_not_retried(project: Project) -> None:
    result = project.materialize(project.dataset(graph={"include_node_types": ["drug", "disaese"]}))
    assert "disaese" in failure(result)
    (event,) = result.filter_events(lambda event: event.is_step_failure)
    assert event.step_failure_data.user_failure_data is not None
    project.source.unlink()
    result = project.materialize(project.dataset())
    assert "kg.csv does not exist" in failure(result)


def test_jobs_and_sensor_come_with_it_and_are_stopped(project: Project) -> None:
    definitions = project.dataset(watch={"enabled": True, "interval_seconds": 30})
    assert {job.name for job in definitions.jobs} == {"toy_build_graph", "toy_refresh"}
    sensor = definitions.sensors[0]
    assert (sensor.name, sensor.minimum_interval_seconds) == ("toy_files", 30)
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    assert [sensor.name for sensor in project.dataset().sensors] == ["graphmill_lost_runs"]


def test_the_refresh_job_takes_the_models_along(project: Project) -> None:
    merged = dg.Definitions.merge(project.dataset(), project.model())
    resources = {"accelerator": None, "worker": None}
    job = dg.Definitions.merge(merged, dg.Definitions(resources=resources)).resolve_job_def("toy_refresh")
    assert dg.AssetKey(["toy", "hgt_ranking"]) in job.asset_layer.executable_asset_keys
    build = dg.Definitions.merge(merged, dg.Definitions(resources=resources)).resolve_job_def("toy_build_graph")
    assert dg.AssetKey(["toy", "hgt_model"]) not in build.asset_layer.executable_asset_keys


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"name": "my graph"}, "dataset name 'my graph' must be letters, digits and underscores"),
        ({"sources": []}, "sources must be a list with at least one"),
        ({"sources": [{**SOURCE, "format": "kg_cvs"}]}, r"source 'edges': unknown format 'kg_cvs' \(known: kg_csv"),
        ({"sources": [{"name": "edges", "format": "kg_csv"}]}, "source 'edges' has no path"),
        ({"sources": [SOURCE, SOURCE]}, "two sources are named 'edges'"),
        (
            {"sources": [SOURCE, {**SOURCE, "name": "more"}]},
            "exactly one source of edges or interactions",
        ),
        ({"sources": [{**SOURCE, "delimeter": ";"}]}, "source 'edges': unknown setting 'delimeter'"),
        ({"graph": {"split": {"valid": 0.6, "test": 0.6}}}, "graph: .*leaves nothing to train on"),
        ({"repair_ids": ["upper"]}, "repair_ids: 'upper'"),
        ({"aliases": "{partition}/aliases.csv"}, "one table is for all snapshots"),
        ({"rejected_share_max": 2}, "rejected_share_max = 2: must be between 0 and 1"),
        ({"watch": {"enabled": True, "interval_seconds": 1}}, "watch.interval_seconds = 1: must be ≥ 5"),
    ],
)
def test_mistakes_in_the_yaml_are_one_sentence(project: Project, attributes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence) as error:
        project.dataset(**attributes)
    assert "\n" not in str(error.value)


def test_a_mistake_is_shown_with_file_and_line() -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(GraphDataset)
        source = {"name": "edges", "format": "kg_cvs", "path": "data/kg.csv"}
        written = {"type": "graphmill.components.GraphDataset", "attributes": {"name": "mine", "sources": [source]}}
        (Path(path) / "defs.yaml").write_text(yaml.safe_dump(written))
        with pytest.raises(Exception) as error, sandbox.build_all_defs() as definitions:  # noqa: PT011 - Dagster's own
            definitions.resolve_all_asset_keys()
    output = "".join(str(each) for each in (error.value, error.value.__cause__))
    assert "defs.yaml:" in output
    assert "unknown format 'kg_cvs'" in output


def test_node_features_come_along(project: Project) -> None:
    ids = [f"{index:03d}" for index in range(40)]  # the drugs
    rows = "\n".join(f"{node},{place},{place / 7}" for place, node in enumerate(ids))
    (project.root / "data" / "drugs.csv").write_text(f"id,a,b\n{rows}\n")
    feature_source = {"name": "drugs", "format": "node_features", "path": "data/drugs.csv", "node_type": "drug"}
    definitions = project.dataset(sources=[SOURCE, feature_source])
    result = project.materialize(definitions)
    assert result.success, failure(result)
    assert "toy__raw_drugs" in ran(result)
    assert project.metadata("toy/features")["dagster/row_count"] == 40
    graph = TypedGraph.open(project.root / project.value("toy/graph")["path"])
    features = graph.features("drug")
    assert features is not None
    assert features.shape == (40, 2)
    assert graph.features("disease") is None


def test_attributes_come_along(project: Project) -> None:
    rows = "\n".join(
        f"{index:03d},{'small' if index % 3 else 'large'} molecule {index // 2},{index}" for index in range(39)
    )
    (project.root / "data" / "about.csv").write_text(f"id,description,weight\n{rows}\n")
    about = {"drug": {"file": "data/about.csv", "id": "id", "description": "text", "weight": "number"}}
    result = project.materialize(project.dataset(attributes=about))
    assert result.success, failure(result)
    assert "toy__raw_attributes_drug" in ran(result)
    assert project.metadata("toy/attributes")["dagster/row_count"] == 39
    page = project.metadata("toy/graph")
    output = {row.data["attribute"]: row.data for row in page["attributes"].records}
    assert output["weight"]["missing"] == pytest.approx(1 / 40)
    assert "attributes of drug" in [row.data["first"] for row in project.metadata("toy/edges")["ids"].records]
    graph = TypedGraph.open(project.root / project.value("toy/graph")["path"])
    features = graph.features("drug", "attributes")
    assert features is not None
    assert features.shape == (40, sum(row["features"] for row in output.values()))
