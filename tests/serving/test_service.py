"""What the service answers: by id and by name, page by page, with the version's name; and one sentence for a mistake."""

import shutil
import threading
import unicodedata
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from safetensors.numpy import save
from starlette.testclient import TestClient

from graphmill.export.alignment import ALIGNED
from graphmill.export.embeddings import SCORING
from graphmill.promotion.promote import roll_back
from graphmill.promotion.versions import Versions
from graphmill.reports.report_html import STYLE
from graphmill.serving import catalogue, guard
from graphmill.serving.application import application
from graphmill.serving.guard import STYLE_HASH
from graphmill.serving.open_version import OpenVersion
from graphmill.usage.exported import Run
from tests.conftest import page_writer
from tests.serving.conftest import MakeVersion, nodes, vectors

LIVE = "/v1/toy/hgt/current"


def get(client: TestClient, path: str, status: int = 200, **query: Any) -> dict[str, Any]:
    result = client.get(path, params=query or None)
    assert result.status_code == status, result.text
    assert result.headers["content-type"] == "application/json"
    return result.json()


def test_a_vector_comes_by_id_and_by_name_in_any_case(client: TestClient, make: MakeVersion) -> None:
    version = make()
    by_id = get(client, f"{LIVE}/vector", id="DR5")
    assert by_id == get(client, f"{LIVE}/vector", name="drug 5")
    assert by_id == get(client, f"/v1/toy/hgt/{version.name}/vector", id="DR5")
    assert by_id["version"] == version.name
    assert by_id["node"] == {"id": "DR5", "name": "Drug 5", "type": "drug"}
    assert np.float32(by_id["vector"]).tolist() == vectors(1)[5].tolist()


def test_neighbours_are_those_of_the_run_page_by_page(client: TestClient, make: MakeVersion) -> None:
    expected = Run(make().path).neighbors("DR5", 20)
    first = get(client, f"{LIVE}/neighbors", id="DR5", k=12)
    second = get(client, f"{LIVE}/neighbors", id="DR5", k=12, offset=first["next"])
    rows = [*first["neighbors"], *second["neighbors"]][:20]
    assert [row["id"] for row in rows] == expected["node_id"].tolist()
    assert [row["cosine"] for row in rows] == pytest.approx(expected["cosine"].tolist(), abs=1e-5)
    last = get(client, f"{LIVE}/neighbors", id="DR5", k=1000)
    assert (len(last["neighbors"]), last["next"]) == (89, None)
    among = get(client, f"{LIVE}/neighbors", id="DR5", k=100, among="gene")["neighbors"]
    assert {row["type"] for row in among} == {"gene"}
    assert len(among) == 30


def test_links_are_those_of_the_run_with_the_paths_that_support_them(client: TestClient, make: MakeVersion) -> None:
    run = Run(make().path)
    expected = run.links("DR5", "indication", 6)
    result = get(client, f"{LIVE}/links", id="DR5", relation="indication", k=6)
    assert [link["id"] for link in result["links"]] == expected["tail_id"].tolist()
    assert [link["score"] for link in result["links"]] == pytest.approx(expected["score"].tolist(), abs=1e-5)
    assert result["next"] == 6
    after = get(client, f"{LIVE}/links", id="DR5", relation="indication", k=3, offset=3)["links"]
    assert after == result["links"][3:]
    every = get(client, f"{LIVE}/links", id="DR5", k=2)["links"]
    assert [link["relation"] for link in every] == ["indication", "indication", "target", "target"]
    known = get(client, f"{LIVE}/links", id="DR5", relation="indication", k=100, known="true")["links"]
    assert sum(link["known"] for link in known) == len(known) - len(
        get(client, f"{LIVE}/links", id="DR5", relation="indication", k=100)["links"]
    )


def test_no_node_is_linked_to_itself(client: TestClient, make: MakeVersion) -> None:
    run = Run(make().path)
    assert "GE5" not in set(run.links("GE5", "interacts", 100)["tail_id"])
    for known in ("true", "false"):
        result = get(client, f"{LIVE}/links", id="GE5", relation="interacts", k=100, known=known)["links"]
        assert "GE5" not in {link["id"] for link in result}


def test_the_paths_of_a_link_walk_edges_that_there_are(client: TestClient, make: MakeVersion) -> None:
    scorer = Run(make().path).scorer
    links = get(client, f"{LIVE}/links", id="DR5", relation="indication", k=25)["links"]
    paths = [path["steps"] for link in links for path in link["paths"]]
    assert paths
    assert {len(steps) for steps in paths} <= {2, 3}
    names = {"indication": 0, "associated": 1, "target": 2, "interacts": 3}
    rows = {(node["type"], node["id"]): row for row, node in enumerate(nodes().to_pylist())}
    for link in links:
        for path in link["paths"]:
            here = ("drug", "DR5")
            for step in path["steps"]:
                matrix = scorer.links.outgoing[names[step["relation"]]]
                first, second = scorer.links.offsets[names[step["relation"]]]
                reached = (step["type"], step["id"])
                ends = (rows[here], rows[reached])
                source, target = ends if step["forward"] else ends[::-1]
                assert matrix[source - first, target - second] == 1
                here = reached
            assert here == ("disease", link["id"])


def test_recommendations_come_from_the_version(client: TestClient, make: MakeVersion) -> None:
    make(links=False, items=5)
    result = get(client, f"{LIVE}/recommendations", id="DR3", k=3)
    assert [(row["rank"], row["id"]) for row in result["recommendations"]] == [(1, "GE0"), (2, "GE1"), (3, "GE2")]
    assert result["next"] == 3
    assert "no recommendations for 'DR9'" in get(client, f"{LIVE}/recommendations", 404, id="DR9")["error"]
    assert "ask /recommendations" in get(client, f"{LIVE}/links", 404, id="DR3")["error"]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_name_is_the_same_in_any_form_of_unicode_with_any_blank(
    client: TestClient, make: MakeVersion, form: Literal["NFC", "NFD"]
) -> None:
    make(first_name=unicodedata.normalize(form, "Ménière disease"))
    for typed in ("Ménière disease", "me\u0301nie\u0300re DISEASE", "Ménière\u00a0disease", "meniere disease"):
        assert get(client, f"{LIVE}/vector", name=typed)["node"]["id"] == "DR0"


def test_a_search_finds_equal_names_first_then_beginnings(client: TestClient, make: MakeVersion) -> None:
    make()
    result = get(client, f"{LIVE}/search", q="drug 2", k=4)["nodes"]
    assert [node["name"] for node in result] == ["Drug 20", "Drug 21", "Drug 22", "Drug 23"]
    assert get(client, f"{LIVE}/search", q="DI7")["nodes"][0]["id"] == "DI7"
    assert {n["type"] for n in get(client, f"{LIVE}/search", q="1", type="gene")["nodes"]} == {"gene"}
    assert get(client, f"{LIVE}/search", q="")["nodes"] == []


def test_the_report_is_what_the_page_shows(client: TestClient, make: MakeVersion) -> None:
    make()
    report = get(client, f"{LIVE}/report")
    assert report["about"]["answers"] == ["vector", "neighbors", "edges", "links"]
    # The style sheet is the one that the page allows, whatever the version's file has.
    assert report["html"] == f"<!doctype html><style>{STYLE}</style><h1>The report of run1</h1>"
    assert STYLE_HASH in client.get("/").headers["content-security-policy"]


def test_neighbours_are_of_the_space_that_versions_share(client: TestClient, make: MakeVersion) -> None:
    other = make(2)
    version = make(1, files={ALIGNED: (other.path / "embeddings.parquet").read_bytes()})
    opened, aligned = OpenVersion(version), OpenVersion(other)
    np.testing.assert_array_equal(opened.vectors.unit(np.arange(9)), aligned.vectors.unit(np.arange(9)))
    assert not np.array_equal(opened.vector(0), aligned.vector(0)), "these are what it scores with"


def test_a_score_of_another_release_leaves_vectors_and_neighbours(client: TestClient, make: MakeVersion) -> None:
    make(files={SCORING: save({"of_another_release": np.zeros(3, np.float32)})})
    assert len(get(client, f"{LIVE}/neighbors", id="DR5", k=3)["neighbors"]) == 3
    assert SCORING in get(client, f"{LIVE}/links", 503, id="DR5", relation="indication")["error"]


def test_more_requests_than_can_be_answered_are_told_to_come_again(
    client: TestClient, make: MakeVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    make()
    monkeypatch.setattr(guard, "MOST_AT_ONCE", 0)
    assert "ask again in a moment" in get(client, "/v1", 503)["error"]


def test_models_and_versions_are_listed(client: TestClient, make: MakeVersion) -> None:
    first, second = make(1), make(2)
    (model,) = get(client, "/v1")["models"]
    wanted = {"dataset": "toy", "model": "hgt", "current": second.name, "versions": 2, "verdict": {}}
    assert model.items() >= wanted.items()
    rows = get(client, "/v1/toy/hgt")["versions"]
    assert [(row["version"], row["live"], row["why"]) for row in rows] == [
        (second.name, True, "seed 2"),
        (first.name, False, "seed 1"),
    ]


MISTAKES = [
    (f"{LIVE}/explain?id=DR5&target=DI1", 400, "give the relation"),
    (f"{LIVE}/explain?id=DR5&relation=indication", 400, "give the id of the link's target node"),
    (f"{LIVE}/explain?id=DR5&relation=indication&target=GE1", 400, "does not lead to nodes of type gene"),
    (
        f"{LIVE}/explain?id=DR5&relation=indication&target=DI9",
        404,
        "cannot explain links: its run run1 is not on this machine",
    ),
    ("/v1/nowhere/hgt/current/vector?id=DR5", 404, "there is no dataset 'nowhere' (there are: toy)"),
    ("/v1/toy/gnn/current/vector?id=DR5", 404, "toy has no model 'gnn' (it has: hgt)"),
    ("/v1/toy/hgt/0009-aaaaaaaa/vector?id=DR5", 404, "has no version '0009-aaaaaaaa' (it has: 0001-"),
    (f"{LIVE}/vector?id=DR99", 404, "has no node with id 'DR99'"),
    (f"{LIVE}/vector?id=DR5&type=gene", 404, "has no node with id 'DR5' of type gene"),
    (f"{LIVE}/vector?id=DR5&type=planet", 404, "has no node type 'planet' (it has drug, disease, gene)"),
    (f"{LIVE}/vector", 400, "choose a node: give either id=… or name=…"),
    (f"{LIVE}/vector?id=DR5&name=x", 400, "choose a node: give either id=… or name=…"),
    (f"{LIVE}/vector?id=DR0", 409, "2 nodes have id 'DR0': DR0 (drug), DR0 (disease); choose one with id= and type="),
    (f"{LIVE}/vector?name=Twin", 409, "2 nodes have name 'Twin': DR1 (drug), DR2 (drug)"),
    (f"{LIVE}/neighbors?id=DR5&k=1001", 400, "k=1001: it is a whole number from 1 to 1000"),
    (f"{LIVE}/neighbors?id=DR5&k=-1", 400, "k=-1: it is a whole number"),
    (f"{LIVE}/neighbors?id=DR5&k=ten", 400, "k=ten: it is a whole number"),
    (f"{LIVE}/neighbors?id=DR5&top=3", 400, "there is no parameter 'top' here (there are: id, name, type, k"),
    (f"{LIVE}/neighbors?id=DR5&id=DR6", 400, "id is given more than once"),
    (
        f"{LIVE}/links?id=DR5&relation=cures",
        404,
        "has no relation 'cures' (it has associated, indication, interacts, target)",
    ),
    (f"{LIVE}/links?id=DI5&relation=indication", 400, "begins at nodes of type drug; this node is of type disease"),
    (f"{LIVE}/links?id=DR5&offset=3", 400, "offset needs one relation"),
    (f"{LIVE}/links?id=DR5&known=yes", 400, "known=yes: it is true or false"),
    (f"{LIVE}/recommendations?id=DR5", 404, "holds no recommendations"),
    (f"{LIVE}/search?q={'x' * 600}", 400, "q has 600 characters; at most 512 are read"),
    (f"{LIVE}/vector?id={'x' * 5000}", 414, "at most 4096 are read"),
    ("/v2", 404, "there is nothing at this address"),
    (f"{LIVE}/everything", 404, "there is nothing at this address"),
]


@pytest.mark.parametrize(("path", "status", "sentence"), MISTAKES)
def test_a_mistake_gets_one_sentence(
    client: TestClient, make: MakeVersion, path: str, status: int, sentence: str
) -> None:
    make()
    assert sentence in get(client, path, status)["error"]


def test_a_model_without_a_live_version_says_so(client: TestClient, make: MakeVersion) -> None:
    (make().path.parent / "current").unlink()
    assert "no version of toy/hgt is live" in get(client, f"{LIVE}/vector", 404, id="DR5")["error"]


def test_vectors_alone_predict_no_links(client: TestClient, make: MakeVersion) -> None:
    make(links=False)
    assert "has vectors and no relations.safetensors" in get(client, f"{LIVE}/links", 404, id="DR5")["error"]
    assert get(client, f"{LIVE}/report")["about"]["answers"] == ["vector", "neighbors"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../../etc/passwd",
        "/v1/%2e%2e/%2e%2e/current/vector?id=DR5",
        "/v1/toy/hgt/..%2f..%2f/report",
        "/v1/toy/hgt/%2e%2e/report",
        "/v1/toy/.lock/current/report",
        "/reports/..%2f..%2freport.html",
        "/reports/%2e%2e/report.html",
        "/reports/data/06_models/../../report.html",
        "/reports//etc/passwd",
        "/reports/data/06_models/link/report.html",
        "/reports/data/06_models/%00/report.html",
        "/reports/data/06_models/notes.txt",
        "/reports/data/06_models/.hidden/report.html",
    ],
)
def test_no_path_from_outside_reaches_the_file_system(
    client: TestClient, make: MakeVersion, tmp_path: Path, path: str
) -> None:
    make()
    runs = tmp_path / "data" / "06_models"
    runs.mkdir()
    for secret in (tmp_path / "report.html", runs / "notes.txt", runs / ".hidden" / "report.html"):
        secret.parent.mkdir(exist_ok=True)
        secret.write_bytes(b"secret")
    (runs / "link").mkdir()
    (runs / "link" / "report.html").symlink_to(tmp_path / "report.html")
    result = client.get(path)
    assert result.status_code == 404
    assert b"secret" not in result.content


def test_reports_of_runs_are_served_and_run_no_scripts(client: TestClient, tmp_path: Path) -> None:
    run = tmp_path / "data" / "06_models" / "toy" / "hgt" / "run1"
    run.mkdir(parents=True)
    (run / "report.html").write_text("<p>well")
    result = client.get("/reports/data/06_models/toy/hgt/run1/report.html")
    assert (result.headers["content-type"], result.text) == ("text/html; charset=utf-8", "<p>well")
    assert "script" not in result.headers["content-security-policy"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_is_possible(client: TestClient, make: MakeVersion, method: str) -> None:
    make()
    result = client.request(method, f"{LIVE}/vector?id=DR5")
    assert result.status_code == 405
    assert "read-only" in result.json()["error"]


def test_with_a_token_every_request_for_data_has_to_bring_it(promoted: Path, make: MakeVersion) -> None:
    make()
    token = "a-secret-of-some-length"
    with TestClient(application(promoted, token, local=False), base_url="http://example.org") as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": token}):
            result = client.get("/v1", headers=headers)
            assert result.status_code == 401
            assert result.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer TOKEN" in result.json()["error"]
            assert client.get("/reports/data/06_models/x/report.html", headers=headers).status_code == 401
        assert client.get("/v1", headers={"authorization": f"Bearer {token}"}).status_code == 200
        for path in ("/", "/explorer.js", "/healthz"):
            assert client.get(path).status_code == 200


def test_another_hosts_name_for_this_machine_reads_nothing(promoted: Path, make: MakeVersion) -> None:
    make()
    with TestClient(application(promoted), base_url="http://evil.example") as client:
        assert client.get("/v1").status_code == 421
    with TestClient(application(promoted), base_url="http://[::1]:3030") as client:
        assert client.get("/v1").status_code == 200


def test_the_page_runs_nothing_from_elsewhere(client: TestClient) -> None:
    result = client.get("/")
    assert "default-src 'none'" in result.headers["content-security-policy"]
    assert "unsafe" not in result.headers["content-security-policy"]
    for path in ("/", "/explorer.js", "/lists.js", "/explorer.css"):
        text = client.get(path).text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
        assert "<script>" not in text
        assert " style=" not in text


def test_the_page_of_the_docs_describes_every_address(repository: Path) -> None:
    page = repository / "docs" / "reference" / "http_api.md"
    assert page.read_text(encoding="utf-8") == page_writer("http_api").markdown(), "make pages"


def test_a_switch_under_load_loses_no_request(client: TestClient, make: MakeVersion, promoted: Path) -> None:
    names = [make(seed).name for seed in (1, 2, 3)]
    expected = {name: vectors(seed)[5].tolist() for name, seed in zip(names, (1, 2, 3), strict=True)}
    stopped, wrong, seen = threading.Event(), [], set()

    def ask() -> None:
        while not stopped.is_set():
            result = client.get(f"{LIVE}/vector", params={"id": "DR5"})
            body = result.json()
            if result.status_code != 200 or np.float32(body["vector"]).tolist() != expected[body["version"]]:
                wrong.append(body)
            seen.add(body["version"])

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    store = Versions(promoted / "toy/hgt")
    for number in range(12):
        target = names[number % 3]
        if target != store.current_name():
            roll_back(store, target, by="a test")
        wait_for(client, target)
    stopped.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert seen == set(names)


def wait_for(client: TestClient, version: str) -> None:
    for _ in range(2000):
        if get(client, f"{LIVE}/vector", id="DR5")["version"] == version:
            return
    raise AssertionError(f"{version} never answered")


def test_a_damaged_version_goes_live_for_nobody(
    client: TestClient, make: MakeVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "RETRY_SECONDS", 0.01)
    good = make(1)
    assert get(client, f"{LIVE}/vector", id="DR5")["version"] == good.name
    bad = make(2)
    (bad.path / "embeddings.parquet").write_bytes(b"torn")
    for _ in range(2000):
        assert get(client, f"{LIVE}/vector", id="DR5")["version"] == good.name
        if get(client, "/healthz")["status"] == "degraded":
            break
    assert get(client, "/healthz") == {"status": "degraded", "problems": [f"toy/hgt/{bad.name}"]}
    assert "cannot be read" in get(client, f"/v1/toy/hgt/{bad.name}/vector", 503, id="DR5")["error"]
    make(3)
    wait_for(client, make(3).name)
    assert get(client, "/healthz")["problems"] == [f"toy/hgt/{bad.name}"], "it cannot be rolled back to"
    shutil.rmtree(bad.path)
    assert get(client, "/healthz") == {"status": "ok", "problems": []}


def test_few_versions_stay_in_memory(client: TestClient, make: MakeVersion) -> None:
    names = [make(seed).name for seed in range(1, catalogue.MOST_OPEN + 4)]
    for name in names:
        assert get(client, f"/v1/toy/hgt/{name}/vector", id="DR5")["version"] == name
    assert get(client, f"{LIVE}/vector", id="DR5")["version"] == names[-1]
