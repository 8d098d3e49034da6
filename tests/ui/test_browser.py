"""What a person sees and does in the UI, in a real browser. Saves the asset graph's picture for the README on request."""

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.ui.conftest import Server

pytestmark = pytest.mark.ui

GROUPS = ("ingest", "graph", "training", "validation", "release")
GRAPH_SIZE: ViewportSize = {"width": 2800, "height": 1000}


def test_the_asset_graph_is_green(page: Page, server: Server, finished_run: str) -> None:
    page.set_viewport_size(GRAPH_SIZE)  # smaller, the graph is shown from so far that its nodes are names alone
    nodes = server.query("{ assetNodes { assetKey { path } groupName } }")["assetNodes"]
    for group in GROUPS:
        page.goto(f"{server.address}/locations/graphmill/asset-groups/biomed_{group}")
        for node in nodes:
            if node["groupName"] == f"biomed_{group}":
                expect(page.get_by_text(node["assetKey"]["path"][-1], exact=True).first).to_be_visible()
        expect(page.get_by_text("Materialized").first).to_be_visible()
    if folder := os.environ.get("GRAPHMILL_SCREENSHOTS"):
        page.set_viewport_size({"width": 2800, "height": 2400})
        expanded = ",".join(f"global@global:biomed_{group}" for group in GROUPS)
        page.goto(f"{server.address}/asset-groups?expanded={expanded}")
        expect(page.get_by_text("Materialized").first).to_be_visible()
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.wait_for_timeout(1000)  # the graph moves into place
        graph = page.get_by_text("Materialized").first.locator("xpath=ancestor::*[name()='svg']")
        graph.screenshot(path=str(Path(folder) / "asset_graph.png"))


def scroll_down_to(page: Page, editor: Locator, text: str) -> None:
    """An editor renders the lines that one sees, and few more."""
    editor.hover()
    for _ in range(100):
        if text in (editor.text_content() or ""):
            return
        page.mouse.wheel(0, 200)
        page.wait_for_timeout(100)
    expect(editor).to_contain_text(text, timeout=1)


def test_the_launchpad_shows_the_acceleration_settings_and_accepts_them(
    page: Page, server: Server, finished_run: str
) -> None:
    page.goto(f"{server.address}/locations/graphmill/jobs/biomed_hgt_retrain/playground")
    expect(page.get_by_text("No errors")).to_be_visible()
    expect(page.get_by_text("All defaults expanded")).to_be_visible()
    editor = page.locator(".CodeMirror-code").first
    for setting in ("micro_batches: 4", "edge_sample_size: 200"):
        scroll_down_to(page, editor, setting)
    expect(page.get_by_role("button", name="Launch Run")).to_be_enabled()


def test_a_click_materializes_an_asset(page: Page, server: Server, finished_run: str) -> None:
    count = "{ runsOrError { ... on Runs { results { runId } } } }"
    before = {run["runId"] for run in server.query(count)["runsOrError"]["results"]}
    page.goto(f"{server.address}/assets/biomed/raw_edges")
    page.get_by_text("Materialize", exact=True).click()
    expect(page.get_by_text("Launched run").first).to_be_visible()
    (run,) = {run["runId"] for run in server.query(count)["runsOrError"]["results"]} - before
    assert server.wait(run) == "SUCCESS"
    page.goto(f"{server.address}/assets/biomed/raw_edges?view=events")
    expect(page.get_by_text(run[:8]).first).to_be_visible()


def test_the_verdict_is_a_warning_among_the_models_checks(page: Page, server: Server, finished_run: str) -> None:
    page.goto(f"{server.address}/assets/biomed/hgt_model?view=checks&checkDetail=verdict")
    sentence = page.get_by_text(re.compile(r"^(Better|Level|Worse|Broken)\."))
    expect(sentence.first).to_be_visible()
    text = sentence.first.text_content() or ""
    word = next(each for each in ("Better", "Level", "Worse", "Broken") if text.startswith(f"{each}."))
    expect(page.get_by_text("Passed" if word == "Better" else "Failed").first).to_be_visible()
    page.goto(f"{server.address}/assets/biomed/hgt_ranking")
    expect(page.get_by_text(re.compile(r"^(Better|Level|Worse|Broken)\.")).first).to_be_in_viewport()


def test_a_checks_bound_is_no_plot(page: Page, server: Server, finished_run: str) -> None:
    page.goto(f"{server.address}/assets/biomed/hgt_model?view=checks&checkDetail=edges_carry_messages")
    expect(page.get_by_text("least share of edges that carry messages").last).to_be_visible()
    expect(page.get_by_text("bound", exact=True)).to_have_count(1)


def test_the_model_shows_its_loss_curve_and_code_to_paste(page: Page, server: Server, finished_run: str) -> None:
    page.goto(f"{server.address}/assets/biomed/hgt_model")
    page.get_by_role("row").filter(has_text="loss_curve").get_by_text("[Show Markdown]").click()
    drawn = page.locator("img[src^='data:image/png;base64,']").first
    expect(drawn).to_be_visible()
    width, natural = drawn.evaluate("image => [image.clientWidth, image.naturalWidth]")
    assert width >= 0.95 * natural > 500, "text of 10 pixels in the file has 10 on the screen"
    page.goto(f"{server.address}/assets/biomed/hgt_embeddings")
    expect(page.get_by_text("graphmill.load(").first).to_be_visible()


def test_an_asset_page_leads_to_the_explorer_and_to_the_runs_report(
    page: Page, server: Server, finished_run: str
) -> None:
    page.goto(f"{server.address}/assets/biomed/hgt_ranking")
    expect(page.get_by_text("or graphmill open").first).to_be_visible()
    links = [page.get_by_role("link", name=entry, exact=True).first for entry in ("explorer", "report")]
    addresses = [link.get_attribute("href") or "" for link in links]
    for address, seen in zip(addresses, ("graphmill", "biomed"), strict=True):
        page.goto(address)
        expect(page.get_by_text(seen).first).to_be_visible()


def test_a_jobs_page_lists_the_run(page: Page, server: Server, finished_run: str) -> None:
    page.goto(f"{server.address}/locations/graphmill/jobs/biomed_refresh/runs")
    expect(page.get_by_text(finished_run[:8]).first).to_be_visible()


CUT = """cell => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  const right = range.getBoundingClientRect().right;
  for (let at = cell.parentElement; at; at = at.parentElement) {
    const clips = ['auto', 'scroll', 'hidden'].includes(getComputedStyle(at).overflowX);
    const edge = at.getBoundingClientRect().right;
    if (clips && right > edge + 2) return `${right} beyond ${edge}`;
  }
  return '';
}"""
"""Where a text ends, and the edge that it is cut at; empty where it is not."""
WIDTHS = (1280, 1440)


@pytest.mark.parametrize(
    ("asset", "said", "pictures"),
    [
        ("hgt_validation", "components carry 90 % of the variance", 3),
        ("hgt_model", "Loss ", 1),
        ("hgt_ranking", "the best simple way", 1),
        ("hgt_links", "predicted links", 0),
        ("graph", "edges are held out for validation", 0),
        ("edges", "Every row could be used", 0),
    ],
)
def test_an_asset_page_begins_with_a_summary_and_its_pictures(
    page: Page, server: Server, finished_run: str, asset: str, said: str, pictures: int
) -> None:
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{server.address}/assets/biomed/{asset}")
        expect(page.get_by_text(said).first).to_be_in_viewport()
        assert page.get_by_text(said).first.evaluate(CUT) == ""
        rows = page.get_by_role("row").filter(has_text="[Show Markdown]")
        for number in range(pictures):
            rows.nth(number).get_by_text("[Show Markdown]").click()
            drawn = page.get_by_role("dialog").locator("img[src^='data:image/png;base64,']")
            expect(drawn).to_be_visible()
            page.wait_for_function("image => image.complete && image.naturalWidth > 100", arg=drawn.element_handle())
            page.get_by_role("button", name="Close").click()
            expect(page.get_by_role("dialog")).to_have_count(0)  # it fades out, and the next one opens meanwhile
    if folder := os.environ.get("GRAPHMILL_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{asset}.png"))


def test_links_fit_a_window_of_1440_pixels(page: Page, server: Server, finished_run: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{server.address}/assets/biomed/hgt_links")
    page.get_by_role("row").filter(has=page.get_by_text("links", exact=True)).get_by_text("[Show Markdown]").click()
    table = page.get_by_role("dialog").get_by_role("table").first
    expect(table.get_by_role("columnheader")).to_have_text(
        ["relation", "tail", "probability", "median rank", "because"]
    )
    assert table.evaluate(CUT) == ""
