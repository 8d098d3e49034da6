"""A backfill of snapshots as the UI launches it and Dagster's daemon runs it: one fails, is mended and is retried."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster_graphql.test.utils import execute_dagster_graphql

from graphmill.promotion.versions import Versions
from tests.components.test_snapshots import PATH, SOURCES, write_snapshot

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
RANDOM = [
    *("beats_baselines", "data_not_lost", "ids_fit_links", "mean_cosine", "no_named_failure"),
    *("no_rogue_dimension", "pca_variance", "rows_are_sound"),
    *("same_ids", "types_vary"),
]
"""Checks that a short training on random graphs need not pass."""
DEFS = [
    {
        "type": "graphmill.components.GraphDataset",
        "attributes": {"name": "toy", "sources": SOURCES, "partitions": {"mode": "replace"}},
    },
    {
        "type": "graphmill.components.EmbeddingModel",
        "attributes": {
            "dataset": "toy",
            "system": "distmult",
            "settings": {"model": {"embedding_dim": 8}, "training": {"epochs": 2}, "evaluation": {"baselines": []}},
            "promote": {"when": "checks_pass", "except_checks": RANDOM},
        },
    },
]
LOCATION = """
from pathlib import Path

import dagster as dg

from graphmill.orchestration.loading import load_project
from tests.components.conftest import WorkerHere

whole = load_project(Path(__file__).parent)
resources = {**(whole.resources or {}), "worker": WorkerHere()}
defs = dg.Definitions(assets=whole.assets, jobs=whole.jobs, resources=resources, executor=dg.in_process_executor)
"""
LAUNCHED = "{ __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } }"
LAUNCH = "mutation ($of: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $of) " + LAUNCHED + " }"
RETRY = "mutation ($of: ReexecutionParams!) { reexecutePartitionBackfill(reexecutionParams: $of) " + LAUNCHED + " }"
ADD = """mutation ($of: RepositorySelector!, $name: String!, $key: String!) {
    addDynamicPartition(repositorySelector: $of, partitionsDefName: $name, partitionKey: $key) { __typename } }"""


class Backfills:
    """An instance on disk with the project's code location; runs are computed in this process, as they are launched."""

    def __init__(self, root: Path, process: WorkspaceProcessContext) -> None:
        self.root, self.process, self.instance = root, process, process.instance

    def query(self, text: str, **variables: Any) -> Any:
        answer = execute_dagster_graphql(self.process.create_request_context(), text, variables)  # type: ignore[arg-type]
        return next(iter(answer.data.values()))

    def add(self, snapshot: str) -> None:
        location = self.process.create_request_context().code_locations[0]
        selector = {"repositoryLocationName": location.name, "repositoryName": "__repository__"}
        added = self.query(ADD, of=selector, name="toy_snapshots", key=snapshot)
        assert added["__typename"] == "AddDynamicPartitionSuccess"

    def launch(self, *snapshots: str) -> str:
        """The id of a finished backfill of all assets, as the button *Materialize* launches it."""
        nodes = self.query("{ assetNodes { assetKey { path } } }")
        assets = [{"path": node["assetKey"]["path"]} for node in nodes]
        return self.finished(self.query(LAUNCH, of={"assetSelection": assets, "partitionNames": list(snapshots)}))

    def retry(self, backfill: str) -> str:
        """The id of the finished backfill that does the failed part of another one again."""
        return self.finished(self.query(RETRY, of={"parentRunId": backfill, "strategy": "FROM_FAILURE"}))

    def finished(self, launched: dict[str, str]) -> str:
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        for _ in range(20):  # of the daemon's rounds
            errors = [each for each in execute_backfill_iteration(self.process, logging.getLogger("backfill")) if each]
            assert not errors, errors
            backfill = self.instance.get_backfill(launched["backfillId"])
            assert backfill is not None
            if backfill.status.value.startswith("COMPLETED"):
                return str(launched["backfillId"])
        raise AssertionError(f"the backfill is still {backfill.status}")

    def statuses(self, backfill: str) -> dict[str, str]:
        runs = self.instance.get_runs(dg.RunsFilter.for_backfill(backfill))
        return {run.tags["dagster/partition"]: run.status.value for run in runs}

    def failure(self, backfill: str) -> str:
        """What the failed step of a backfill's only run says."""
        (run,) = self.instance.get_runs(dg.RunsFilter.for_backfill(backfill))
        (failed,) = self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        return str(failed.get_dagster_event().step_failure_data.error)

    def made(self, asset: str, snapshot: str) -> tuple[dict[str, Any], str]:
        """Metadata and data version of an asset's last materialization for a snapshot."""
        of = dg.AssetRecordsFilter(dg.AssetKey(["toy", asset]), asset_partitions=[snapshot])
        made = self.instance.fetch_materializations(of, limit=1).records[0].asset_materialization
        assert made is not None
        assert made.tags is not None
        return {name: each.value for name, each in made.metadata.items()}, made.tags["dagster/data_version"]

    def live(self) -> str:
        current = Versions(self.root / "data/07_promoted/toy/distmult").current()
        return str(current.about["snapshot"]) if current else ""


@pytest.fixture
def backfills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backfills]:
    package = tmp_path / "src" / "grown"
    (package / "defs" / "toy").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "location.py").write_text(LOCATION)
    (package / "defs" / "toy" / "defs.yaml").write_text(yaml.safe_dump_all(DEFS))
    settings = '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "grown"\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    target = LoadableTargetOrigin(
        executable_path=sys.executable,
        python_file=str(package / "location.py"),
        attribute="defs",
        working_directory=str(tmp_path / "src"),
    )
    with (
        dg.instance_for_test(
            temp_dir=str(tmp_path / "home"), synchronous_run_coordinator=True, synchronous_run_launcher=True
        ) as instance,
        create_test_daemon_workspace_context(
            InProcessWorkspaceLoadTarget(InProcessCodeLocationOrigin(target)), instance
        ) as process,
    ):
        yield Backfills(tmp_path, process)


def test_a_backfill_fails_and_is_retried_by_partition(backfills: Backfills) -> None:
    names = ("2026-9", "2026-10")
    for seed, name in enumerate(names):
        write_snapshot(backfills.root, name, seed)
        backfills.add(name)
    damaged = backfills.root / PATH.replace("{partition}", "2026-10")
    whole = damaged.read_text()
    damaged.write_text("no,such,columns\n1,2,3\n")

    first = backfills.launch(*names)
    assert backfills.statuses(first) == {"2026-9": "SUCCESS", "2026-10": "FAILURE"}
    assert backfills.live() == "2026-9", backfills.made("distmult_promoted", "2026-9")

    # A retry from failure leaves out what has succeeded: the other snapshot, and the asset of the file as it was.
    damaged.write_text(whole)
    again = backfills.retry(first)
    assert backfills.statuses(again) == {"2026-10": "FAILURE"}
    assert "materialize raw_edges together with the tables" in backfills.failure(again)
    assert backfills.statuses(backfills.launch("2026-10")) == {"2026-10": "SUCCESS"}
    assert backfills.live() == "2026-10"
    before = {name: backfills.made("distmult_model", name) for name in names}
    assert [about["reused"] for about, _ in before.values()] == [False, False]

    # All again, after a change of the older one: only that is trained, and it does not go live.
    write_snapshot(backfills.root, "2026-9", 7)
    assert backfills.statuses(backfills.launch(*names)) == dict.fromkeys(names, "SUCCESS")
    after = {name: backfills.made("distmult_model", name) for name in names}
    assert [about["reused"] for about, _ in after.values()] == [False, True]
    assert after["2026-10"][1] == before["2026-10"][1]
    assert after["2026-9"][1] != before["2026-9"][1]
    assert backfills.live() == "2026-10"
    assert "is older than 2026-10" in backfills.made("distmult_promoted", "2026-9")[0]["reason"]
