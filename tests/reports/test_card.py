"""A run's card and its one-page report: all from the run's files, and true to them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.errors import InputError
from graphmill.promotion.promote import promote_run, versions_folder
from graphmill.reports.card import card_text, write_card
from graphmill.reports.card_files import read_card_files
from graphmill.reports.report_html import write_report
from graphmill.reports.validation import validate_file, write_health
from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import read_settings
from graphmill.runs.train import train
from graphmill.training.run_directory import RunDirectory
from graphmill.usage.ranking import rank_any
from tests.training.cases import CASES, typed_graph
from tests.training.runs import settings_of


def trained(folder: Path) -> Path:
    """``toy/hgt``, exported."""
    graph = typed_graph(folder / "toy" / "graph")
    quick = {"evaluation": {"baselines": []}}
    values = settings_of(CASES["hgt-full"], graph, quick)
    path = Path(train(values, "test", root=str(folder / "toy" / "hgt"))["run_dir"])
    export_run(restore(path))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("project") / "data" / "06_models")


def card_of(path: Path) -> str:
    return card_text(read_card_files(path))


def test_a_run_has_a_card_from_its_export_on(run: Path) -> None:
    written = (run / "card.md").read_text(encoding="utf-8")
    manifest = json.loads((run / "manifest.json").read_text())
    exported = json.loads((run / "embeddings" / "manifest.json").read_text())
    report = json.loads((run / "report.json").read_text())
    assert written.startswith("# hgt on toy\n")
    assert f"{exported['rows']} vectors of {exported['dim']} numbers" in written
    assert f"{report['metrics']['test_mrr']:.4g}" in written
    for said in (manifest["fingerprint"], manifest["data"]["content_hash"], manifest["versions"]["torch"]):
        assert said in written
    assert all(entry["sha256"] in written for entry in exported["files"].values())
    graph = restore(run).graph
    for kind in graph.node_types:
        assert f"| {kind.name} | {kind.count} |" in written
    assert f"{int(graph.cold_nodes().sum())} of {graph.num_nodes} nodes" in written or not graph.cold_nodes().any()


def test_a_devices_memory_is_beside_what_was_planned_for_it(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the card and in the terminal's table; a run on the CPU has no such row."""
    import shutil

    from graphmill.cli.output import show_result

    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    report = RunDirectory(copy).read_json("report.json")
    assert "peak memory of" not in card_of(copy)
    show_result(report)
    assert "peak memory of" not in capsys.readouterr().out
    memory = {"device": "mps", "peak_device_memory_bytes": 3 << 29, "planned_memory_bytes": 1 << 30}
    RunDirectory(copy).write_json("report.json", report | memory)
    assert "| peak memory of mps | 1.50 GiB (planned: 1.00 GiB) |" in card_of(copy)
    show_result(report | memory)
    assert "peak memory of mps" in (output := capsys.readouterr().out)
    assert "1.50 GiB (planned: 1.00 GiB)" in output


def test_it_says_what_is_missing_until_it_is_there(run: Path) -> None:
    before = card_of(run)
    assert "Not compared with baselines yet" in before
    assert "Not validated yet" in before
    assert "Not compared with an earlier live version" in before
    write_health(run, validate_file(run))
    rank_any(restore(run))
    after = (run / "card.md").read_text(encoding="utf-8")
    assert "| metric | model | degree |" in after
    assert "figures are within their bounds" in after
    assert "mean_cosine" in after


def test_health_and_ranking_of_other_vectors_are_not_shown(run: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    write_health(copy, validate_file(copy))
    for name, change in (
        ("validation/health.json", lambda content: {**content, "of": ["0" * 64]}),
        ("ranking.json", lambda content: {**content, "epoch": 99}),
    ):
        content = json.loads((copy / name).read_text()) if (copy / name).is_file() else {"kind": "links"}
        (copy / name).write_text(json.dumps(change(content)))
    said = card_of(copy)
    assert "of an earlier export" in said
    assert "ranked at another epoch" in said


def test_its_settings_train_the_same_run_again(run: Path) -> None:
    files = read_card_files(run)
    assert files.differences["training.epochs"] == (3, 12)
    assert "model.num_layers" not in files.differences
    assert "`training.epochs` | `3` | `12`" in card_text(files)
    again = train(read_settings(run / "settings.json") | {"data": str(restore(run).graph.path)}, "card",
                  root=str(run.parent))  # fmt: skip
    assert again["reused"]
    assert Path(again["run_dir"]) == run


def test_an_export_alone_has_a_card_that_knows_less(run: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(run / "embeddings", tmp_path / "toy" / "hgt" / "vectors")
    said = card_of(tmp_path / "toy" / "hgt" / "vectors")
    assert "Held-out figures are not known" in said
    assert "no report of the training is here" in said


# -- the page ------------------------------------------------------------------------------------------------------------


def test_the_report_is_one_file_that_asks_for_no_other(run: Path, tmp_path: Path) -> None:
    text = write_report(run, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "@import" not in text
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert sources
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in sources)
    assert text.count("<img") >= 4
    for part in ("figures", "curves", "health", "drift", "data", "settings", "limits", "made", "files"):
        assert f'<section id="{part}">' in text
    assert len(text) < 600_000


def test_the_service_gives_reports_of_runs_and_no_other_page(run: Path) -> None:
    from graphmill.serving.runs import report_page

    root = run.parents[4]
    write_report(run)
    (run / "other.html").write_text("<script>1</script>")
    result = report_page(root, str((run / "report.html").relative_to(root)))
    assert (result.status_code, result.media_type) == (200, "text/html")
    assert "default-src 'none'" in result.headers["content-security-policy"]
    assert report_page(root, str((run / "other.html").relative_to(root))).status_code == 404


def test_names_from_the_data_are_text_and_not_markup(run: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    from graphmill.reports.report_html import report_html, with_health

    files = with_health(read_card_files(run))
    odd = replace(files, export={**files.export, "data": {"path": "<img src=x onerror=alert(1)>/graph"}})
    assert "<img src=x" not in report_html(odd)


def test_python_shows_card_and_report(run: Path, tmp_path: Path) -> None:
    result = graphmill.load(run)
    assert result.card() == card_of(run)
    assert result.report(tmp_path / "r.html").startswith("# hgt on toy")
    assert (tmp_path / "r.html").is_file()


# -- versions and commands -----------------------------------------------------------------------------------------------


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


def test_a_version_keeps_the_card_that_it_was_promoted_with(tmp_path: Path) -> None:
    run = trained(tmp_path / "data" / "06_models")
    store = versions_folder(run)
    promote_run(run, store, by="test", person=True, force=True)
    live = store.current()
    assert live is not None
    live.verify()
    output = command("card", "toy/hgt", "--folder", str(store.path.parents[1]))
    assert output.stdout == (live.path / "card.md").read_text(encoding="utf-8")
    kept = live.path / "report.html"
    assert '<section id="health">' in kept.read_text(encoding="utf-8")
    assert command("report", "toy/hgt", "--folder", str(store.path.parents[1])).stdout.strip() == str(kept)
    copied = write_report(live.path, tmp_path / "copy.html")
    assert copied.read_bytes() == kept.read_bytes()
    write_health(run, validate_file(run))
    write_card(run)
    promote_run(run, store, by="test", person=True, force=True)
    assert [version.name for version in store.all()] == [live.name]


def test_commands(run: Path, tmp_path: Path) -> None:
    assert command("card", str(run)).stdout == card_of(run)
    assert json.loads(command("card", str(run), "--json").stdout)[0]["name"] == "about"
    assert command("report", str(run)).stdout.strip() == str(run / "report.html")
    for arguments in (["card", "nothing/here"], ["report", str(tmp_path)], ["report", str(run / "card.md")]):
        result = command(*arguments)
        assert isinstance(result.exception, InputError), (arguments, result.exception)


def test_validating_a_run_keeps_the_report(tmp_path: Path) -> None:
    run = trained(tmp_path / "data" / "06_models")
    command("validate", str(run))
    assert "figures are within their bounds" in (run / "card.md").read_text(encoding="utf-8")
