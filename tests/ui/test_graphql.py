"""The code location as the webserver has it: what it loads, offers, refuses, runs, shows and cancels."""

import json
import time

import psutil
import yaml

from graphmill.components.embedding_model import launchpad_defaults
from tests.ui.conftest import SMALL, Server, failures

SELECTOR = {"repositoryLocationName": "graphmill", "repositoryName": "__repository__"}
CHAIN = ("raw_edges", "nodes", "edges", "graph", "hgt_model", "hgt_embeddings", "hgt_validation", "hgt_ranking")
CHAIN += ("hgt_links", "hgt_drift", "hgt_promoted")
METADATA = """metadataEntries { label
  ... on FloatMetadataEntry { floatValue } ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text }
  ... on MarkdownMetadataEntry { mdStr } ... on PathMetadataEntry { path } ... on BoolMetadataEntry { boolValue }
  ... on TableMetadataEntry { table { records } } }"""


def values(entries: list[dict]) -> dict:
    """Metadata entries as a dictionary; values of kinds that are not asked for are left out."""
    out = {}
    for entry in entries:
        value = [value for name, value in entry.items() if name != "label"]
        if value:
            out[entry["label"]] = value[0]
    return out


def figures(entries: dict) -> dict[str, str]:
    """The table ``figures`` of an asset's page: what each is now."""
    rows = [json.loads(record) for record in entries["figures"]["records"]]
    return {row["figure"]: row["now"].replace(",", "") for row in rows}


def asset(server: Server, name: str, fields: str) -> dict:
    text = "query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { " + fields + " } } }"
    return server.query(text, key={"path": ["biomed", name]})["assetNodeOrError"]


def materializations(server: Server, name: str) -> dict[str, dict]:
    """The metadata of an asset's materializations, by run: tests share the server, so there may be several."""
    fields = "assetMaterializations(limit: 20) { runId " + METADATA + " }"
    made = asset(server, name, fields)["assetMaterializations"]
    return {each["runId"]: values(each["metadataEntries"]) for each in made}


def test_the_location_loads_with_its_chain(server: Server) -> None:
    nodes = server.query("""{ assetNodes { assetKey { path } groupName kinds description
        owners { ... on TeamAssetOwner { team } } dependencyKeys { path } } }""")["assetNodes"]
    by_name = {name: node for node in nodes for dataset, name in [node["assetKey"]["path"]] if dataset == "biomed"}
    of_blend = {f"blend_{name.partition('_')[2]}" for name in CHAIN if name.startswith("hgt_")}
    assert set(by_name) == {*CHAIN, *of_blend}
    assert {node["groupName"] for node in by_name.values()} == {
        *("biomed_ingest", "biomed_graph", "biomed_training", "biomed_validation"),
        "biomed_release",
    }
    assert all(node["description"] and node["kinds"] for node in nodes)
    assert all(node["owners"] for node in by_name.values())
    assert [key["path"] for key in by_name["hgt_model"]["dependencyKeys"]] == [["biomed", "graph"]]


def test_little_is_printed_and_the_address_comes_last(server: Server, finished_run: str) -> None:
    output = (server.root / "ui.log").read_text().splitlines()
    assert output[-1] == f"graphmill is at {server.address.replace('127.0.0.1', 'localhost')}"
    assert len(output) <= 4


def test_schedules_and_sensors_are_stopped_but_the_one_that_ends_lost_runs(server: Server) -> None:
    result = server.query(
        """query ($selector: RepositorySelector!) { repositoryOrError(repositorySelector: $selector) {
          ... on Repository { schedules { name scheduleState { status } } sensors { name sensorState { status } } } } }""",
        selector=SELECTOR,
    )["repositoryOrError"]
    assert {each["name"]: each["scheduleState"]["status"] for each in result["schedules"]} == {
        "biomed_hgt_schedule": "STOPPED",
        "biomed_blend_schedule": "STOPPED",
    }
    sensors = {each["name"]: each["sensorState"]["status"] for each in result["sensors"]}
    assert sensors.pop("graphmill_lost_runs") == "RUNNING"
    assert sensors["biomed_files"] == "STOPPED"
    assert set(sensors.values()) == {"STOPPED"}


def test_the_launchpad_writes_out_every_setting(server: Server) -> None:
    result = server.query(
        """query ($selector: PipelineSelector!) { runConfigSchemaOrError(selector: $selector) {
          ... on RunConfigSchema { rootDefaultYaml } } }""",
        selector={**SELECTOR, "pipelineName": "biomed_hgt_retrain"},
    )["runConfigSchemaOrError"]
    config = yaml.safe_load(result["rootDefaultYaml"])
    output = config["ops"]["biomed__hgt_model"]["config"]
    expected = launchpad_defaults("hgt", SMALL).settings.model_dump()
    assert output["training"] == expected["training"]
    assert output["model"] == expected["model"]
    assert output["acceleration"] == {k: v for k, v in expected["acceleration"].items() if k != "device"}
    assert config["resources"]["accelerator"]["config"] == {"device": "auto", "index": 0}


def test_a_value_of_the_wrong_kind_is_refused_before_launch(server: Server) -> None:
    answer = server.launch("biomed_hgt_retrain", {"ops": {"biomed__hgt_model": {"config": {"model": {"inputs": "x"}}}}})
    assert answer["__typename"] == "RunConfigValidationInvalid"
    assert "inputs" in answer["errors"][0]["message"]


def test_the_accelerator_pool_takes_one_step_at_a_time(server: Server, finished_run: str) -> None:
    config = server.query("{ instance { poolConfig { defaultPoolLimit poolGranularity } } }")["instance"]["poolConfig"]
    assert config == {"defaultPoolLimit": 1, "poolGranularity": "op"}


def test_the_chain_runs_and_says_what_it_made(server: Server, finished_run: str) -> None:
    for name in CHAIN:
        assert finished_run in materializations(server, name), name
    output = materializations(server, "hgt_model")[finished_run]
    assert output["epochs_done"] == 4
    assert output["device"] == "cpu"
    assert output["loss"] > 0
    assert float(figures(output)["estimated_seconds_total"]) > 0
    assert "data:image/png;base64," in output["loss_curve"]
    csv = server.root / "data" / "06_models" / "embeddings" / "hgt_embeddings.csv"
    assert csv.is_file()


def test_training_is_observed(server: Server, finished_run: str) -> None:
    fields = "assetObservations(limit: 50) { runId " + METADATA + " }"
    seen = asset(server, "hgt_model", fields)["assetObservations"]
    output = [values(each["metadataEntries"]) for each in seen]
    assert {each["runId"] for each in seen} == {finished_run}
    assert all(next(iter(each)) == "progress" for each in output), "the line that a person reads comes first"
    assert any("epoch 4/4" in each["progress"] and each["loss"] > 0 for each in output), output
    assert any("training on cpu" in each["progress"] for each in output)


def test_checks_have_their_verdicts_and_pictures(server: Server, finished_run: str) -> None:
    fields = (
        "assetChecksOrError { ... on AssetChecks { checks { name blocking executionForLatestMaterialization { status"
    )
    fields += " evaluation { severity description " + METADATA + " } } } } }"
    blocked = asset(server, "hgt_embeddings", fields)["assetChecksOrError"]["checks"]
    assert {check["name"]: check["executionForLatestMaterialization"]["status"] for check in blocked} == dict.fromkeys(
        ("finite", "shape", "ids_aligned", "no_dead_rows", "not_collapsed", "of_best_epoch"), "SUCCEEDED"
    )
    assert [check["name"] for check in blocked if not check["blocking"]] == ["of_best_epoch"]
    health = {check["name"]: check for check in asset(server, "hgt_validation", fields)["assetChecksOrError"]["checks"]}
    evaluation = health["mean_cosine"]["executionForLatestMaterialization"]["evaluation"]
    assert "cosines" in values(evaluation["metadataEntries"])["picture"]
    model = {check["name"]: check for check in asset(server, "hgt_model", fields)["assetChecksOrError"]["checks"]}
    verdict = model["verdict"]["executionForLatestMaterialization"]["evaluation"]
    assert values(verdict["metadataEntries"])["word"] in ("better", "level", "worse", "broken")


def test_the_same_training_is_reused_and_shown_as_such(server: Server, finished_run: str) -> None:
    answer = server.launch("biomed_hgt_retrain", {}, assets=["biomed/hgt_model"])
    assert server.wait(answer["run"]["runId"]) == "SUCCESS"
    assert materializations(server, "hgt_model")[answer["run"]["runId"]]["reused"] is True


def test_cancelling_leaves_a_checkpoint_and_no_process(server: Server, model_again: None) -> None:
    """A training that would take hours is cancelled in the UI's way as soon as it shows its first figures."""
    config = {"ops": {"biomed__hgt_model": {"config": {"training": {"epochs": 100_000, "seed": 7}}}}}
    run = server.launch("biomed_hgt_retrain", config, assets=["biomed/hgt_model"])["run"]["runId"]

    def observed() -> bool:
        seen = asset(server, "hgt_model", "assetObservations(limit: 5) { runId label metadataEntries { label } }")
        labels = [
            entry["label"]
            for each in seen["assetObservations"]
            if each["runId"] == run
            for entry in each["metadataEntries"]
        ]
        return "loss" in labels

    assert server.wait(run, until=observed) == "STARTED"
    workers = server.workers()
    assert workers
    family = [each for worker in workers for each in (worker, *worker.children(recursive=True))]
    server.query(
        """mutation ($id: String!) { terminateRun(runId: $id, terminatePolicy: SAFE_TERMINATE) { __typename } }""",
        id=run,
    )
    assert server.wait(run) == "CANCELED"
    assert "Cancelled in epoch" in failures(server, run)
    assert "Interrupted" not in failures(server, run)
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive
    assert not server.workers()
    runs = server.root / "data" / "06_models" / "biomed" / "hgt"
    settings = {path.parent: json.loads(path.read_text()) for path in runs.glob("*/settings.json")}
    (cancelled,) = [path for path, result in settings.items() if result["training"]["seed"] == 7]
    assert list((cancelled / "checkpoints").glob("*.safetensors"))
    assert time.time() - max(path.stat().st_mtime for path in (cancelled / "checkpoints").iterdir()) < 120
