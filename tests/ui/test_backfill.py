"""A backfill of snapshots as the UI launches it, by the daemon: one fails, is mended and retried; live is the newest."""

import json
import time
from typing import Any

import pytest

from graphmill.promotion.versions import Versions
from tests.components.conftest import write_kg
from tests.ui.conftest import SAMPLE, Server
from tests.ui.test_graphql import METADATA, values

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(SAMPLE, reason="the sample alone has no snapshots"),
]

SELECTOR = {"repositoryLocationName": "graphmill", "repositoryName": "__repository__"}
SECONDS = 1200.0
LAUNCHED = "{ __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } }"


def backfill(server: Server, *snapshots: str) -> str:
    """The id of a backfill of all assets of the dataset, launched as the button *Materialize* does."""
    nodes = server.query("{ assetNodes { assetKey { path } } }")["assetNodes"]
    params = {
        "assetSelection": [node["assetKey"] for node in nodes if node["assetKey"]["path"][0] == "months"],
        "partitionNames": list(snapshots),
        "runConfigData": json.dumps({"execution": {"config": {"in_process": {}}}}),
    }
    text = (
        f"mutation ($params: LaunchBackfillParams!) {{ launchPartitionBackfill(backfillParams: $params) {LAUNCHED} }}"
    )
    answer = server.query(text, params=params)["launchPartitionBackfill"]
    return finished(server, answer)


def retry(server: Server, failed: str) -> str:
    """The id of the backfill that does the failed part of another one again."""
    text = f"mutation ($params: ReexecutionParams!) {{ reexecutePartitionBackfill(reexecutionParams: $params) {LAUNCHED} }}"
    params = {"parentRunId": failed, "strategy": "FROM_FAILURE"}
    return finished(server, server.query(text, params=params)["reexecutePartitionBackfill"])


def finished(server: Server, answer: dict[str, Any]) -> str:
    """The backfill's id, when the daemon has ended it and its runs."""
    assert answer["__typename"] == "LaunchBackfillSuccess", answer
    text = "query ($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = server.query(text, id=answer["backfillId"])["partitionBackfillOrError"]["status"]
        if found not in ("REQUESTED", "FAILING", "CANCELING"):
            return str(answer["backfillId"])
        time.sleep(0.5)
    raise AssertionError(f"the backfill is still {found} after {SECONDS:.0f} s")


def statuses(server: Server, backfill: str) -> dict[str, str]:
    """The status of the backfill's run of each snapshot."""
    text = """query ($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
        runs(limit: 10) { status tags { key value } } } } }"""
    runs = server.query(text, id=backfill)["partitionBackfillOrError"]["runs"]
    return {tag["value"]: run["status"] for run in runs for tag in run["tags"] if tag["key"] == "dagster/partition"}


def last(server: Server, asset: str, snapshot: str) -> dict[str, Any]:
    """The metadata and the data version of an asset's last materialization for a snapshot."""
    text = """query ($key: AssetKeyInput!, $of: [String!]) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
        assetMaterializations(limit: 1, partitions: $of) { tags { key value } METADATA } } } }"""
    node = server.query(text.replace("METADATA", METADATA), key={"path": ["months", asset]}, of=[snapshot])
    (made,) = node["assetNodeOrError"]["assetMaterializations"]
    version = {tag["key"]: tag["value"] for tag in made["tags"]}["dagster/data_version"]
    return {**values(made["metadataEntries"]), "data_version": version}


def live(server: Server) -> str:
    current = Versions(server.root / "data/07_promoted/months/distmult").current()
    return str(current.about["snapshot"]) if current else ""


def test_a_backfill_of_snapshots_fails_and_is_retried_by_partition(server: Server) -> None:
    files = {name: server.root / f"data/01_raw/{name}/kg.csv" for name in ("2026-9", "2026-10")}
    add = """mutation ($of: RepositorySelector!, $name: String!, $key: String!) {
        addDynamicPartition(repositorySelector: $of, partitionsDefName: $name, partitionKey: $key) { __typename } }"""
    for seed, (name, file) in enumerate(files.items()):
        write_kg(file, seed=seed)
        server.query(add, of=SELECTOR, name="months_snapshots", key=name)
    whole = files["2026-10"].read_text()
    files["2026-10"].write_text("no,such,columns\n1,2,3\n")

    first = backfill(server, *files)
    assert statuses(server, first) == {"2026-9": "SUCCESS", "2026-10": "FAILURE"}
    assert live(server) == "2026-9", last(server, "distmult_promoted", "2026-9")

    files["2026-10"].write_text(whole)
    again = retry(server, first)
    assert statuses(server, again) == {"2026-10": "SUCCESS"}, "the snapshot that succeeded is not run again"
    assert live(server) == "2026-10"
    made = {name: last(server, "distmult_model", name) for name in files}
    assert not any(each["reused"] for each in made.values())

    # All again, after a change of the older one: only that is trained, and it does not go live.
    write_kg(files["2026-9"], seed=7)
    assert set(statuses(server, backfill(server, *files)).values()) == {"SUCCESS"}
    after = {name: last(server, "distmult_model", name) for name in files}
    assert {name: each["reused"] for name, each in after.items()} == {"2026-9": False, "2026-10": True}
    assert after["2026-10"]["data_version"] == made["2026-10"]["data_version"]
    assert after["2026-9"]["data_version"] != made["2026-9"]["data_version"]
    assert live(server) == "2026-10"
    assert "is older than 2026-10" in last(server, "distmult_promoted", "2026-9")["reason"]
