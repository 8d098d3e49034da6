"""Snapshots of a graph as Dagster's partitions: sensor, backfill, a failure that is retried, live, retention."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.components import EmbeddingModel, GraphDataset
from graphmill.components.following import FollowSettings, decide
from graphmill.components.promoted_asset import failed_checks, gating_checks
from graphmill.errors import SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.summary import summarise
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.public_readers import read_edges
from graphmill.ingest.snapshots import snapshot_names
from graphmill.ingest.sources import parse_sources
from graphmill.promotion.versions import Version, Versions, version_rows
from graphmill.serving.runs import finished_runs
from tests.components.conftest import INTERACTIONS, Project, WorkerHere, write_interactions, write_kg

PATH = "data/01_raw/{partition}/kg.csv"
SOURCES = [{"name": "edges", "format": "kg_csv", "path": PATH}]
GONE = "005"
"""The node that the later snapshots do not have."""


NEW = "900"
"""A disease that the snapshot ``joined`` has, with four genes."""


def write_snapshot(root: Path, name: str, seed: int = 0, without: str = "", *, joined: bool = False) -> Path:
    """The files of one snapshot, written long ago, so that the sensor need not wait for them."""
    path = root / PATH.replace("{partition}", name)
    write_kg(path, seed=seed)
    lines = path.read_text().splitlines()
    for gene in range(80, 84) if joined else ():
        ends = [f"{NEW},{NEW},disease,node {NEW},TEST", f"{gene},{gene:03d},gene/protein,node {gene},TEST"]
        lines += [f"dise_gene,dise_gene,{a},{b}" for a, b in (ends, ends[::-1])]
    path.write_text("\n".join(line for line in lines if not without or f",{without}," not in line) + "\n")
    os.utime(path, (1000 + seed, 1000 + seed))
    return path


class Growing:
    """A project with a dataset of snapshots and one model, an instance, and the runs that are launched in it."""

    def __init__(self, root: Path, definitions: dg.Definitions, system: str) -> None:
        self.root, self.instance = root, dg.DagsterInstance.ephemeral()
        self.worker = WorkerHere()
        resources = {**(definitions.resources or {}), "worker": self.worker}
        self.definitions = dg.Definitions(
            assets=definitions.assets, jobs=definitions.jobs, sensors=definitions.sensors, resources=resources,
            schedules=definitions.schedules,
        )  # fmt: skip
        self.versions = Versions(root / "data/07_promoted/toy" / system)
        self.cursor: str | None = None

    @property
    def known(self) -> list[str]:
        return sorted(self.instance.get_dynamic_partitions("toy_snapshots"))

    def run(self, snapshot: str) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_job_def("toy_refresh")
        return job.execute_in_process(partition_key=snapshot, instance=self.instance, raise_on_error=False)

    def backfill(self) -> dict[str, bool]:
        """A run of every snapshot, the newest first, as a backfill's runs may end in any order."""
        return {name: self.run(name).success for name in reversed(self.known)}

    def tick(self) -> Any:
        """Two ticks of the sensor: the first finds the files, the second finds them unchanged."""
        (sensor,) = [each for each in self.definitions.sensors or () if each.name == "toy_files"]
        for _ in range(2):
            with dg.build_sensor_context(self.instance, self.cursor, definitions=self.definitions) as context:
                result = sensor(context)
            self.cursor = result.cursor
        for request in result.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
        return result

    def live(self) -> str:
        current = self.versions.current()
        assert current is not None
        return str(current.about["snapshot"])

    def made(self, asset: str, snapshot: str) -> dg.AssetMaterialization:
        filters = dg.AssetRecordsFilter(dg.AssetKey(["toy", asset]), asset_partitions=[snapshot])
        result = self.instance.fetch_materializations(filters, limit=1).records[0].asset_materialization
        assert result is not None
        return result

    def trained(self, snapshot: str) -> tuple[str, int]:
        """The start and the epochs of the snapshot's training."""
        (file,) = self.root.glob(f"data/06_models/toy/snapshots/{snapshot}/distmult/*/settings.json")
        training = json.loads(file.read_text())["training"]
        return training["init_from"], training["epochs"]

    def reason(self, snapshot: str) -> str:
        return str(self.made("distmult_promoted", snapshot).metadata["reason"].value)

    def data_version(self, snapshot: str) -> str:
        return self.made("graph", snapshot).tags["dagster/data_version"]


Make = Callable[..., Growing]
WARM = {"way": "warm_start", "epochs": 1}


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A project of real YAML files; ``partitions``: the section of the dataset."""
    with contextlib.ExitStack() as stack:
        sandbox = stack.enter_context(create_defs_folder_sandbox())

        def growing(
            partitions: Mapping[str, Any],
            follow: Any = WARM,
            sources: Any = SOURCES,
            system: str = "distmult",
            **promote: Any,
        ) -> Growing:
            dataset = {"name": "toy", "sources": sources, "partitions": dict(partitions), "watch": {"enabled": True}}
            model = {
                "dataset": "toy",
                "system": system,
                "settings": {
                    "preset": "none",
                    "model": {"embedding_dim": 8},
                    "training": {"epochs": 2},
                    **({} if system == "mf" else {"evaluation": {"baselines": []}}),
                },
                "promote": {"when": "checks_pass", **promote},
                "follow": follow,
                "publish": "data/live.csv",
            }
            kinds = (GraphDataset, dataset), (EmbeddingModel, model)
            documents = [{"type": f"graphmill.components.{kind.__name__}", "attributes": of} for kind, of in kinds]
            path = Path(sandbox.scaffold_component(GraphDataset))
            (path / "defs.yaml").write_text(yaml.safe_dump_all(documents))
            monkeypatch.chdir(sandbox.project_root)
            definitions = stack.enter_context(sandbox.build_all_defs())
            return Growing(sandbox.project_root, definitions, system)

        yield growing


def any_check(project: Project, system: str = "distmult") -> list[str]:
    plan = EmbeddingModel(dataset="toy", system=system).plan(project.context)
    return sorted({check.name for check in gating_checks(plan)})


def test_snapshots_are_found_backfilled_retried_promoted_and_removed(make: Make, project: Project) -> None:
    growing = make({"keep": 3}, except_checks=any_check(project))
    for seed, name in enumerate(("2024-09", "2024-10", "2024-11")):
        write_snapshot(growing.root, name, seed)
    broken = growing.root / PATH.replace("{partition}", "2024-10")
    whole = broken.read_text()
    broken.write_text("no,such,columns\n1,2,3\n")
    assert [request.partition_key for request in growing.tick().run_requests] == ["2024-09", "2024-10", "2024-11"]
    assert growing.known == ["2024-09", "2024-10", "2024-11"]

    # The runs of a backfill: one fails, and the others are not stopped by it.
    assert growing.backfill() == {"2024-11": True, "2024-10": False, "2024-09": True}
    assert growing.live() == "2024-11"
    assert growing.reason("2024-09").startswith("snapshot 2024-09 is older than 2024-11")
    live = growing.versions.current_name()
    published = (growing.root / "data/live.csv").read_bytes()
    broken.write_text(whole)
    assert growing.run("2024-10").success
    assert growing.versions.current_name() == live, "an older snapshot does not replace a newer one"
    assert (growing.root / "data/live.csv").read_bytes() == published
    assert [request.partition_key for request in growing.tick().run_requests] == ["2024-10"], "its file was mended"
    assert "of another run" not in growing.reason("2024-10")
    plan = EmbeddingModel(dataset="toy", system="distmult").plan(project.context)
    judged = failed_checks(growing.instance, gating_checks(plan), "2024-10")
    assert not [name for name in judged if "not evaluated" in name], "checks are judged by snapshot"
    assert all("not evaluated" in name for name in failed_checks(growing.instance, gating_checks(plan), "2024-08"))
    assert len({growing.data_version(name) for name in growing.known}) == 3
    folders = [growing.root / f"data/06_models/toy/snapshots/{name}/graph" for name in growing.known]
    assert len({TypedGraph.open(folder).content_hash for folder in folders}) == 3

    # The sensor adds a fourth; the oldest leaves.
    write_snapshot(growing.root, "2024-12", 3, GONE)
    result = growing.tick()
    assert [request.partition_key for request in result.run_requests] == ["2024-12"]
    before = TypedGraph.open(growing.root / "data/06_models/toy/snapshots/2024-11/graph")
    assert growing.run("2024-12").success
    assert growing.live() == "2024-12"
    require_departure(growing, before)
    epochs = {name: growing.trained(name) for name in ("2024-11", "2024-12")}
    assert epochs == {"2024-11": ("", 2), "2024-12": ("champion", 1)}, "the later one starts from the live version"
    assert growing.known == ["2024-10", "2024-11", "2024-12"]
    outputs = growing.root / "data/06_models/toy"
    assert not list(outputs.rglob("2024-09*"))
    assert len(list(outputs.glob("snapshots/*/distmult/*/manifest.json"))) == 3
    assert {row["dataset"] for row in finished_runs(growing.root)} == {"toy"}, "the service lists them"
    assert not growing.tick().run_requests, "a removed snapshot is not made again, though its file is still there"


def require_departure(growing: Growing, before: TypedGraph) -> None:
    """What left the graph is in none of the live version's files, and the list of versions says so."""
    older, live = growing.versions.all()
    ids = [set(pq.read_table(each.path / "embeddings.parquet")["node_id"].to_pylist()) for each in (older, live)]
    assert ids[0] - ids[1] == {GONE}
    links = pq.read_table(live.path / "links.parquet")
    assert GONE not in {*links["head_id"].to_pylist(), *links["tail_id"].to_pylist()}
    assert f'"{GONE}"' not in (live.path / "parameter_rows.json").read_text()
    row = version_rows(growing.versions)[0]
    left = row["left"]
    assert (row["snapshot"], left["nodes"], left["node_sample"]) == ("2024-12", 1, [f"drug {GONE}"])
    after = TypedGraph.open(growing.root / "data/06_models/toy/snapshots/2024-12/graph")
    summaries = summarise(before), summarise(after)
    assert left["edges"] == len(set(summaries[0].pairs.tolist()) - set(summaries[1].pairs.tolist()))
    assert len(left["edge_sample"]) == 5
    output = CliRunner().invoke(app, ["versions", "toy/distmult", "--folder", str(growing.versions.path.parents[1])])
    assert f"{live.name}: 1 node (drug {GONE}) and {left['edges']} edges (" in output.stdout


def test_appended_snapshots_hold_all_before_them(make: Make) -> None:
    growing = make({"mode": "append"})
    for seed, name in enumerate(("9", "10")):
        write_snapshot(growing.root, name, seed)
    assert [request.partition_key for request in growing.tick().run_requests] == ["9", "10"]
    graphs = []
    for name in ("9", "10"):
        selection = ['key:"toy/graph"', 'key:"toy/raw_edges"', 'key:"toy/nodes"', 'key:"toy/edges"']
        result = dg.materialize(
            growing.definitions.assets, selection=" or ".join(selection), partition_key=name,
            instance=growing.instance, resources=growing.definitions.resources,
        )  # fmt: skip
        assert result.success
        graphs.append(TypedGraph.open(growing.root / f"data/06_models/toy/snapshots/{name}/graph"))
    assert graphs[0].num_pairs < graphs[1].num_pairs < 2 * graphs[0].num_pairs
    write_snapshot(growing.root, "9", 5)
    assert [request.partition_key for request in growing.tick().run_requests] == ["9", "10"], "both hold its rows"


def test_a_snapshot_with_a_failed_check_does_not_go_live(make: Make, project: Project) -> None:
    """Half of the second one's edges are gone."""
    gate = "data_not_lost"
    growing = make({}, {"way": "fresh"}, except_checks=[name for name in any_check(project) if name != gate])
    for name in ("2024-09", "2024-10"):
        write_snapshot(growing.root, name)
    file = growing.root / PATH.replace("{partition}", "2024-10")
    header, *rows = file.read_text().splitlines()
    file.write_text("\n".join([header, *rows[: len(rows) // 2]]) + "\n")
    growing.tick()
    for name in ("2024-09", "2024-10"):
        assert growing.run(name).success
        assert growing.live() == "2024-09"
    assert gate in growing.reason("2024-10")


def test_snapshots_of_interactions_are_trained_compared_and_promoted(make: Make, project: Project) -> None:
    sources = [INTERACTIONS | {"path": "data/01_raw/{partition}/views.tsv"}]
    growing = make({}, sources=sources, system="mf", except_checks=any_check(project, "mf"))
    for name, users in (("2024-9", 40), ("2024-10", 44)):
        write_interactions(growing.root / f"data/01_raw/{name}/views.tsv", users=users)
    growing.instance.add_dynamic_partitions("toy_snapshots", ["2024-9", "2024-10"])
    assert growing.run("2024-9").success
    first = growing.versions.current_name()
    assert growing.run("2024-10").success
    assert growing.live() == "2024-10"
    (file,) = growing.root.glob("data/06_models/toy/snapshots/2024-10/mf/*/drift/drift.json")
    report = json.loads(file.read_text())
    assert report["against"] == first
    assert (report["overall"]["new"], report["overall"]["vanished"]) == (4, 0)
    assert growing.made("mf_drift", "2024-10").metadata["against"].value == first


@pytest.mark.parametrize(
    ("path", "partitions", "words"),
    [
        ("data/kg.csv", {}, "partitions: the path of source 'edges' has no {partition}"),
        (PATH, None, r"source 'edges' has {partition} in its path: add `partitions: {mode: replace}`"),
        (PATH, {"mode": "both"}, "mode"),
    ],
)
def test_a_section_that_does_not_fit_the_paths_is_refused(
    project: Project, path: str, partitions: Any, words: str
) -> None:
    sources = [{"name": "edges", "format": "kg_csv", "path": path}]
    with pytest.raises(SettingsError, match=words.replace("{", r"\{").replace("}", r"\}")):
        project.dataset(sources=sources, partitions=partitions)


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_a_snapshot_without_a_file_and_two_of_one_name_are_said(make: Make, mode: str) -> None:
    growing = make({"mode": mode})
    write_snapshot(growing.root, "2023-12")  # in mode append, its rows alone are not the later snapshot
    growing.instance.add_dynamic_partitions("toy_snapshots", ["2024-01"])
    result = growing.run("2024-01")
    failures = [e for e in result.all_events if e.is_step_failure]
    assert "2024-01/kg.csv does not exist" in str(failures[0].step_failure_data.error)
    growing.instance.add_dynamic_partitions("toy_snapshots", ["../../other"])
    result = growing.run("../../other")
    failures = [e for e in result.all_events if e.is_step_failure]
    assert "a name has letters, digits" in str(failures[0].step_failure_data.error)
    assert not list(growing.root.rglob("other*"))
    for name in ("spring", "Spring"):
        write_snapshot(growing.root, name)
    assert "two snapshots are named" in growing.tick().skip_reason.skip_message


def test_auto_follows_a_change_by_what_changed(make: Make, project: Project, tmp_path: Path) -> None:
    """A first snapshot is trained; a small change is embedded only, in a version that is complete by itself."""
    growing = make({}, {"way": "auto", "epochs": 3}, except_checks=any_check(project))
    write_snapshot(growing.root, "2024-09")
    write_snapshot(growing.root, "2024-10", without=GONE, joined=True)
    growing.tick()
    assert growing.run("2024-09").success
    first = growing.versions.current()
    assert first is not None
    assert growing.trained("2024-09") == ("", 2)
    assert growing.run("2024-10").success
    live = growing.versions.current()
    assert live is not None
    assert growing.trained("2024-10") == ("champion", 0)
    assert live.about["snapshot"] == "2024-10", "it goes through the same gate"
    page = growing.made("distmult_model", "2024-10").metadata
    assert str(page["follow"].value).startswith("embed_only: ")
    assert page["follow"].value in json.loads((live.path / "report.json").read_text())["notes"]
    before, after = vectors_of(first), vectors_of(live)
    assert set(before) - set(after) == {GONE}
    assert set(after) - set(before) == {NEW}
    assert all(np.allclose(after[node], before[node], atol=1e-5) for node in before if node != GONE)
    assert np.linalg.norm(after[NEW]) > 0.1 * np.mean([np.linalg.norm(vector) for vector in before.values()])

    def decided(name: str, **change: Any) -> tuple[str, str]:
        tables = read_edges(changed(tmp_path / f"{name}.csv", **change))
        graph = build_graph(tables.nodes, tables.edges, GraphSettings(), tmp_path / name).path
        return decide(FollowSettings(way="auto"), "distmult", growing.versions, graph)

    way, why = decided("edges", seed=1)
    assert way == "warm_start"
    assert f"since {first.name} was trained" in why, "not since the version that was only embedded"
    assert decided("relations", words=("dise_dise", "resembles")) == (
        "warm_start", f"disease | dise_dise | disease has come or gone since {first.name} was trained"
    )  # fmt: skip
    assert decided("others", words=("node ", "name "), ids="x")[0] == "fresh"
    assert decide(FollowSettings(way="auto"), "conve", growing.versions, tmp_path)[0] == "fresh"


def vectors_of(version: Version) -> dict[str, Any]:
    return {row["node_id"]: row["embedding"] for row in pq.read_table(version.path / "embeddings.parquet").to_pylist()}


def changed(path: Path, seed: int = 0, words: tuple[str, str] = ("", ""), ids: str = "") -> Path:
    """The first snapshot's file with another word, or with ``ids`` before each id."""
    write_kg(path, seed=seed)
    header, *lines = path.read_text().replace(*words).splitlines()
    lines = [re.sub(r",(\d{3}),", rf",{ids}\1,", line) for line in lines]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("system", "way", "words"),
    [
        ("knn", "warm_start", "follow: knn is computed in closed form"),
        ("conve", "embed_only", "conve cannot fold in .*complex"),
    ],
)
def test_a_way_that_a_system_cannot_follow_is_refused(project: Project, system: str, way: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        project.model(system=system, follow={"way": way})


def test_names_are_ordered_by_their_numbers(tmp_path: Path) -> None:
    for name in ("2024-10", "2024-9", "v2.1", ".hidden"):
        write_snapshot(tmp_path, name)
    assert snapshot_names(parse_sources(SOURCES, tmp_path)) == ["2024-9", "2024-10", "v2.1"]
