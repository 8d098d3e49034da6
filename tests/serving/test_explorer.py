"""What a person sees and does in the explorer, in a real browser. Saves pictures on request."""

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.testclient import TestClient

from graphmill import build_graph, read_edges
from graphmill.promotion.promote import promote_run, versions_folder
from graphmill.reports.card_files import read_card_files
from graphmill.reports.report_html import report_html
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from graphmill.serving import application
from tests.chromium import chromium
from tests.serving.conftest import MakeVersion, served_here
from tests.training.cases import CASES
from tests.training.runs import settings_of

pytestmark = pytest.mark.ui

PATIENCE_MS = 60_000
NASTY = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose own errors, and whose refusals by the content policy, fail the test."""
    opened = browser.new_page(viewport={"width": 1300, "height": 900})
    opened.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None)
    yield opened
    opened.close()
    assert errors == []


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("GRAPHMILL_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.wait_for_timeout(300)
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def test_everything_that_a_version_has_is_on_one_page(page: Page, promoted: Path, make: MakeVersion) -> None:
    first = make(1, items=3)
    report = report_html(read_card_files(first.path))
    second = make(2, items=3, files={"report.html": report.encode()})
    with served_here(promoted) as address:
        page.goto(f"{address}/#/toy/hgt_embeddings")  # as an asset's page links to it
        expect(page.locator("#summary")).to_have_text(f"hgt, 90 vectors of 16, {second.name}")
        output = page.frame_locator("#report iframe")
        expect(output.locator("#health")).to_contain_text("Few directions are used. Train longer.")
        expect(output.locator("#figures table").first).to_be_visible()
        expect(output.locator("#drift")).to_contain_text("Compared with 0001-aaaaaaaa")
        # It is as high as its content, and has the report's own style.
        page.wait_for_function(
            "() => { const frame = document.querySelector('#report iframe');"
            " const root = frame.contentDocument?.documentElement; return root"
            " && root.scrollHeight > 500 && frame.clientHeight >= root.scrollHeight; }"
        )
        assert output.locator("nav").evaluate("nav => getComputedStyle(nav).display") == "flex"
        versions = page.locator("#versions")
        expect(versions).to_contain_text(f"→ {second.name} (live)")
        expect(versions.get_by_text(f"graphmill rollback toy/hgt {first.name}", exact=True)).to_be_visible()
        expect(versions.get_by_text("graphmill promote 'data/06 models/toy/hgt/run1'", exact=True)).to_be_visible()
        picture(page, "explorer")

        page.locator("#version").select_option(first.name)
        expect(page.locator("#summary")).to_contain_text(first.name)
        expect(output.locator("h1")).to_have_text("The report of run1")


def test_a_rollback_is_offered_only_where_there_is_an_older_version(
    page: Page, promoted: Path, make: MakeVersion
) -> None:
    only = make(items=3)
    with served_here(promoted) as address:
        page.goto(f"{address}/#/toy/hgt")
        expect(page.locator("#versions")).to_contain_text(f"→ {only.name} (live)")
        expect(page.locator("#versions").get_by_text("graphmill rollback")).to_have_count(0)


def test_a_node_is_found_and_walked_from_by_keyboard(page: Page, promoted: Path, make: MakeVersion) -> None:
    make(items=3)
    with served_here(promoted) as address:
        page.goto(address)
        expect(page.locator("#summary")).to_contain_text("90 vectors of 16")
        page.keyboard.press("/")
        page.keyboard.type("drug 1")
        result = page.locator("#found li")
        expect(result.first).to_contain_text("DR10")
        page.keyboard.press("ArrowDown")
        expect(result.nth(1)).to_have_attribute("aria-selected", "true")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        output = page.locator("#shown")
        expect(output).to_have_text("Drug 10 drug, DR10")
        assert "id=DR10" in page.url
        near = page.get_by_role("table", name="Neighbours")
        expect(near.locator("tbody tr")).to_have_count(10)
        links = page.get_by_role("table", name="Predicted links")
        expect(links.locator("tbody tr")).to_have_count(6)
        links.locator("summary").first.click()
        expect(links.locator("ul.paths").first).to_contain_text("Drug 10")
        links.get_by_role("button", name="What carries the score").first.click()
        expect(links).to_contain_text("its run run1 is not on this machine")
        picture(page, "explorer_node")

        first = near.locator("button.node").first
        first.focus()
        page.keyboard.press("ArrowDown")
        second = near.locator("button.node").nth(1)
        expect(second).to_be_focused()
        name = second.inner_text()
        page.keyboard.press("Enter")
        expect(output).to_contain_text(name)
        page.go_back()
        expect(output).to_have_text("Drug 10 drug, DR10")

        page.locator("#search").fill("nobody at all")
        expect(page.get_by_role("status")).to_have_text("No node has 'nobody at all' in its name or id.")


def test_on_a_phone_nothing_is_wider_than_the_screen(page: Page, promoted: Path, make: MakeVersion) -> None:
    make(items=3)
    page.set_viewport_size({"width": 390, "height": 844})
    with served_here(promoted) as address:
        page.goto(f"{address}/#/toy/hgt/current?id=DR5")
        expect(page.locator("#shown")).to_have_text("Drug 5 drug, DR5")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        picture(page, "explorer_phone")
        expect(page.locator("#graph canvas").first).to_be_visible()


def test_a_name_is_text_and_a_mistake_is_a_sentence(page: Page, promoted: Path, make: MakeVersion) -> None:
    make(links=False, first_name=NASTY)
    with served_here(promoted) as address:
        page.goto(f"{address}/#/toy/hgt/current?name=x&id=DI5")
        expect(page.locator("#shown")).to_contain_text("Disease 5")
        page.locator("#search").fill("<img")
        expect(page.locator("#found li")).to_contain_text([NASTY])
        page.keyboard.press("Enter")
        expect(page.locator("#shown")).to_contain_text(NASTY)
        assert page.title() == "toy/hgt · graphmill explorer"
        page.goto(f"{address}/#/toy/hgt/current?id=DR99")
        expect(page.locator("#node")).to_contain_text("has no node with id 'DR99'")
        page.goto(f"{address}/#/nowhere/hgt")
        expect(page.get_by_role("status")).to_contain_text(
            "Nothing of nowhere/hgt is promoted; there are versions of toy/hgt"
        )
        page.goto(
            f"{address}/#/toy/graph"
        )  # as the page of a graph, of files, or of a model that is not live links to it
        expect(page.get_by_role("status")).to_have_text("toy/graph is of no model that is promoted; this is toy/hgt.")
        expect(page.locator("#summary")).to_contain_text("90 vectors of 16")


def test_where_nothing_is_promoted_the_page_says_how(page: Page, promoted: Path) -> None:
    with served_here(promoted) as address:
        page.goto(address)
        expect(page.get_by_role("status")).to_contain_text("graphmill promote RUN makes a run the live version")


def test_with_a_token_the_page_asks_for_it(page: Page, promoted: Path, make: MakeVersion) -> None:
    make()
    token = "a-secret-of-some-length"
    with served_here(promoted, token) as address:
        page.goto(address)
        page.locator("#token-text").fill(token)
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#summary")).to_contain_text("90 vectors of 16")
        expect(page.locator("#token")).to_be_hidden()


def test_what_carries_a_score_is_told_where_the_run_is_here(page: Page, tmp_path: Path) -> None:
    runs = tmp_path / "data" / "06_models" / "toy"
    case = CASES["hgt-softmax"]
    lines = ["head,head_type,relation,tail,tail_type,weight,confidence,evidence,timestamp"]
    lines += [
        f"g{n},gene,meets,g{(n + step) % 12},gene,2,0.5,<b>paper</b> {n},2020-01-{n + 1:02}"
        for n in range(12)
        for step in (1, 2, 5)
    ]
    (tmp_path / "kg.csv").write_text("\n".join(lines) + "\n")
    graph = build_graph(read_edges(tmp_path / "kg.csv"), runs / "graph", split={"valid": 0.1, "test": 0.1})
    run = train(settings_of(case, graph), "test", root=str(runs / "hgt"))["run_dir"]
    export_run(restore(run))
    promote_run(run, versions_folder(run), by="a test", person=True, force=True)
    node = graph.node_table().slice(0, 1).to_pylist()[0]
    with served_here(tmp_path / "data" / "07_promoted") as address:
        page.goto(f"{address}/#/toy/hgt/current?id={node['id']}&type={node['type']}")
        links = page.get_by_role("table", name="Predicted links")
        expect(links.locator("tbody tr").first).to_be_visible()
        links.locator("summary").first.click()
        links.get_by_role("button", name="What carries the score").first.click()
        expect(links).to_contain_text("Score ")
        expect(links.locator("ul.paths").first).to_contain_text("—")
        expect(links).to_contain_text("The score is the sum of:")
        known = re.compile(r"\([+-][^;]+; weight 2; confidence 0.5000; time 2020-01-\d\d; evidence <b>paper</b> \d+\)")
        expect(links.locator("ul.paths li").filter(has_text=known).first).to_be_visible()
        picture(page, "explained")


def test_the_index_shows_every_model_with_its_verdict_and_the_runs(
    page: Page, promoted: Path, make: MakeVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    worse = {"word": "worse", "short": "worse than kNN", "sentence": "MRR 0.1 against 0.2 of kNN."}
    make(items=3, about={"verdict": worse})
    rows = [
        {"dataset": "toy", "model": "hgt", "run": f"data/06_models/toy/hgt/run{n}", "system": f"system{n}",
         "when": f"2026-11-0{n}T10:00:00Z", "verdict": {"word": word}, "metrics": {"test_mrr": mrr},
         "settings": {"training.epochs": 10 * n}}
        for n, word, mrr in ((1, "better", 0.3), (2, "worse", 0.1), (3, "level", 0.2))
    ]  # fmt: skip
    monkeypatch.setattr(application, "finished_runs", lambda root: rows)
    with served_here(promoted) as address:
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(f"{address}/?{width}")
            models = page.get_by_role("table", name="Models")
            expect(models.get_by_role("link", name="toy/hgt")).to_be_visible()
            expect(models.locator(".worse")).to_have_text("worse")
            expect(page.locator("#verdict")).to_contain_text("worse. MRR 0.1 against 0.2 of kNN.")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("#all-runs summary").click()
        runs = page.get_by_role("table", name="Runs").locator("tbody tr")
        expect(runs.locator("td:nth-child(2)")).to_have_text(["run3", "run2", "run1"])
        page.get_by_role("button", name="test_mrr").press("Enter")
        expect(runs.locator("td:nth-child(2)")).to_have_text(["run1", "run3", "run2"])
        page.get_by_role("searchbox", name="Filter runs").fill("test_mrr > 0.15 epochs = 30")
        expect(runs).to_have_count(1)
        expect(runs).to_contain_text("run3")
        expect(runs).to_contain_text("system3")
        models.get_by_role("link", name="toy/hgt").click()
        expect(models).to_be_hidden()


def test_known_edges_grow_by_a_click_and_a_list_of_heads_becomes_a_file(
    page: Page, promoted: Path, make: MakeVersion, tmp_path: Path
) -> None:
    make(items=3)
    with served_here(promoted) as address:
        page.goto(f"{address}/#/toy/hgt/current?id=DR5&type=drug")
        reached = page.locator("#reached button")
        expect(reached.first).to_be_visible()
        expect(page.locator("#graph canvas").first).to_be_visible()
        before = reached.count()
        reached.last.press("Enter")  # the first ones have few edges, perhaps none but this
        page.wait_for_function("count => document.querySelectorAll('#reached button').length > count", arg=before)
        picture(page, "known_edges")
        page.locator("#heads-text").fill("DR5\nDrug 6\nnobody")
        page.locator("#heads-k").fill("2")
        with page.expect_download() as saved:
            page.get_by_role("button", name="Make links.csv").click()
        saved.value.save_as(tmp_path / "links.csv")
        expect(page.locator("#heads-done")).to_contain_text("not found, or of several types: nobody")
    rows = list(csv.DictReader((tmp_path / "links.csv").open(encoding="utf-8")))
    assert {row["head"] for row in rows} == {"DR5", "Drug 6"}
    assert all(row["relation"] and row["id"] and float(row["score"]) for row in rows)


def test_an_edge_says_which_way_it_goes_and_who_has_few_comes_first(promoted: Path, make: MakeVersion) -> None:
    make(items=3)
    with TestClient(application.application(promoted), base_url="http://127.0.0.1") as client:
        result = client.get("/v1/toy/hgt/current/edges?id=DR5&k=100").json()

        def degree(node: dict[str, str]) -> int:
            request = {"id": node["id"], "type": node["type"], "k": "100"}
            return len(client.get("/v1/toy/hgt/current/edges", params=request).json()["edges"])

        degrees = [degree(edge) for edge in result["edges"]]
        assert result["edges"]
        assert degrees == sorted(degrees)
        assert {(e["relation"], e["forward"], e["type"]) for e in result["edges"]} <= {
            ("indication", True, "disease"),
            ("target", True, "gene"),
        }
