"""The Launchpad in a real browser: it opens from every kind of asset, from a job and from several assets; what is typed
there is what the run has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster_shared.yaml_utils import load_run_config_yaml
from playwright.sync_api import Locator, Page, Response, expect

from tests.ui.conftest import SAMPLE, Server, failures

pytestmark = [pytest.mark.ui, pytest.mark.skipif(SAMPLE, reason="the sample alone has not every kind of asset")]

ALL_ASSETS = "__ASSET_JOB"
REPOSITORY = {"repositoryLocationName": "graphmill", "repositoryName": "__repository__"}
KINDS = {
    **{"raw": "biomed/raw_edges", "nodes": "biomed/nodes", "edges": "biomed/edges"},
    **{"interactions": "plays/interactions", "graph": "biomed/graph", "model": "plays/sasrec_model"},
    **{"embeddings": "biomed/hgt_embeddings", "validation": "biomed/hgt_validation", "ranking": "biomed/hgt_ranking"},
    **{"recommendations": "plays/sasrec_recommendations", "links": "facts/conve_links"},
    **{"influence": "facts/conve_influence", "drift": "biomed/hgt_drift", "promoted": "biomed/hgt_promoted"},
}
"""An asset of each kind that the components make."""
ODD = {
    "model": ("tracker", "experiment", '"1:30"'),
    "links": ("", "relations", ['"no"', "17", '"1e-3"', "on: off", "null", "2026-01-01"]),
}
"""What ``OTHER_KINDS`` says, with the quotes that it has in the Launchpad."""
PLACES = {
    "an asset": "/assets/biomed/hgt_model",
    "several assets": "/locations/graphmill/asset-groups/biomed_training/lineage",
    "a job": "/locations/graphmill/jobs/biomed_hgt_retrain/playground",
}


def kind_of(key: str) -> str:
    name = key.partition("/")[2]
    return "raw" if name.startswith("raw_") else re.sub(r"^(hgt|blend|conve|sasrec)_", "", name)


@pytest.fixture(scope="module")
def steps(server: Server) -> dict[str, list[str]]:
    """The assets of the location by the name of the step that makes them; one step makes nodes and edges."""
    result: dict[str, list[str]] = {}
    for node in server.query("{ assetNodes { assetKey { path } opNames } }")["assetNodes"]:
        result.setdefault(node["opNames"][0], []).append("/".join(node["assetKey"]["path"]))
    return result


def test_every_kind_of_asset_is_opened_below(steps: dict[str, list[str]]) -> None:
    keys = {key for made in steps.values() for key in made}
    assert {kind_of(key) for key in keys} == set(KINDS)
    assert set(KINDS.values()) <= keys


def only(*keys: str) -> dict[str, Any]:
    """What chooses assets in a query."""
    return {"pipelineName": ALL_ASSETS, "assetSelection": [{"path": key.split("/")} for key in keys]}


def prefilled(server: Server, **selector: Any) -> str:
    """The text that the server proposes."""
    text = """query ($selector: PipelineSelector!) { runConfigSchemaOrError(selector: $selector) {
        ... on RunConfigSchema { rootDefaultYaml } } }"""
    return server.query(text, selector={**REPOSITORY, **selector})["runConfigSchemaOrError"]["rootDefaultYaml"]


def problems(server: Server, text: str, **selector: Any) -> list[str]:
    """Why a run with this text could not be launched; empty if it could."""
    query = """query ($pipeline: PipelineSelector!, $config: RunConfigData!) {
        isPipelineConfigValid(pipeline: $pipeline, runConfigData: $config, mode: "default") { __typename
            ... on RunConfigValidationInvalid { errors { message } } ... on PythonError { message } } }"""
    answer = server.query(query, pipeline={**REPOSITORY, **selector}, config=text)["isPipelineConfigValid"]
    if answer["__typename"] == "PipelineConfigValidationValid":
        return []
    return [each["message"] for each in answer.get("errors", [answer])]


def test_every_asset_and_job_accepts_the_text_that_the_server_proposes(
    server: Server, steps: dict[str, list[str]]
) -> None:
    names = """query ($of: RepositorySelector!) { repositoryOrError(repositorySelector: $of) {
        ... on Repository { jobs { name } } } }"""
    jobs = [job["name"] for job in server.query(names, of=REPOSITORY)["repositoryOrError"]["jobs"]]
    assert "biomed_refresh" in jobs
    selectors = [
        *(only(*made) for made in steps.values()),
        *({"pipelineName": job} for job in jobs if job != ALL_ASSETS),
    ]
    refused = {
        str(each): result for each in selectors if (result := problems(server, prefilled(server, **each), **each))
    }
    assert not refused


SAID = "button => button.closest('[role=dialog]')?.textContent"


def open_launchpad(page: Page, address: str) -> tuple[Locator, Locator]:
    """The editor, and the button that starts the run. Confirms what the UI asks before."""
    page.goto(address)
    editor, confirm = page.locator(".cm-s-config-editor"), page.get_by_role("button", name="Confirm")
    if address.endswith("/playground"):
        return editor, page.get_by_role("button", name="Launch Run")
    page.get_by_role("button", name="Materialize").first.click(modifiers=["Shift"])
    for _ in range(4):  # the assets that are made with it, then those upstream
        expect(editor.or_(confirm).first).to_be_visible()
        if editor.is_visible():
            break
        request = confirm.element_handle()
        said = request.evaluate(SAID)
        confirm.click()
        page.wait_for_function(
            f"([button, said]) => !button.isConnected || ({SAID})(button) !== said", arg=[request, said]
        )
    return editor, page.get_by_role("dialog").get_by_role("button", name="Materialize")


def text_in(editor: Locator) -> str:
    return str(editor.evaluate("element => element.CodeMirror.getValue()"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_launchpad_can_start_as_it_opens(page: Page, server: Server, steps: dict[str, list[str]], kind: str) -> None:
    editor, start = open_launchpad(page, f"{server.address}/assets/{KINDS[kind]}")
    expect(start).to_be_enabled()
    config = load_run_config_yaml(text_in(editor))
    (made,) = [made for made in steps.values() if KINDS[kind] in made]
    assert set(config.get("ops") or {}) == set(yaml.safe_load(prefilled(server, **only(*made))).get("ops", {}))
    if kind in ODD:  # texts and numbers that the browser writes in a way of its own
        section, name, output = ODD[kind]
        (result,) = config["ops"].values()
        assert (result["config"][section] if section else result["config"])[name] == output


@pytest.fixture
def stop(server: Server) -> Iterator[list[str]]:
    """Runs to end after the test."""
    runs: list[str] = []
    yield runs
    for run in runs:
        end = "mutation ($id: String!) { terminateRun(runId: $id, terminatePolicy: SAFE_TERMINATE) { __typename } }"
        server.query(end, id=run)
        server.wait(run)


@pytest.mark.parametrize(("place", "value"), [*zip(PLACES, (5, 6, 7), strict=True)])
def test_a_changed_value_is_that_of_the_run(
    page: Page, server: Server, model_again: None, stop: list[str], place: str, value: int
) -> None:
    editor, start = open_launchpad(page, server.address + PLACES[place])
    expect(start).to_be_enabled()
    select = """(element, [from, length]) => {
        const editor = element.CodeMirror, at = editor.getValue().indexOf(from);
        editor.focus();
        editor.setSelection(editor.posFromIndex(at), editor.posFromIndex(at + length));
    }"""
    line, changed, quick = "steps_per_epoch: 3", f"steps_per_epoch: {value}", "execution: {config: {in_process: {}}}"

    def checked(answer: Response) -> bool:
        sent = answer.request.post_data or ""
        return changed in sent and quick in sent

    with page.expect_response(checked):  # the text is checked anew after a pause in the typing
        editor.evaluate(select, [line, len(line)])
        page.keyboard.insert_text(changed)
        editor.evaluate(select, ["ops:", 0])
        page.keyboard.insert_text(f"{quick}\n")  # saves a spawn a step
    expect(start).to_be_enabled()
    start.click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}"))
    run = page.url.partition("/runs/")[2][:36]
    stop.append(run)
    result = server.query("query ($id: ID!) { runOrError(runId: $id) { ... on Run { runConfigYaml } } }", id=run)
    given = yaml.safe_load(result["runOrError"]["runConfigYaml"])["ops"]["biomed__hgt_model"]["config"]
    assert given["training"]["steps_per_epoch"] == value

    def trained() -> list[Path]:
        root = server.root / "data" / "06_models" / "biomed" / "hgt"
        values = {path: json.loads(path.read_text()) for path in root.glob("*/settings.json")}
        return [path for path, each in values.items() if each["training"]["steps_per_epoch"] == value]

    status = server.wait(run, until=lambda: bool(trained()))
    assert len(trained()) == 1, f"{status}: {failures(server, run)}"
