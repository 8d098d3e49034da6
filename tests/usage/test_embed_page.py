"""The page on new nodes does what it shows, on the sample that its ids are of."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.ingest.samples import write_sample
from graphmill.usage.exported import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("page")
    tables = graphmill.read_edges(write_sample("biomed", folder / "kg"))
    graph = graphmill.build_graph(tables, folder / "graph")
    return graphmill.train(
        graph, "hgt", epochs=1, device="cpu", progress=False, output=folder / "runs",
        model={"embedding_dim": 16, "hidden_dim": 16, "num_heads": 4},
    )  # fmt: skip


@pytest.fixture
def blocks(repository: Path) -> dict[str, str]:
    """The first block of each language on the page: the file, the command, the Python."""
    page = (repository / "docs" / "how-to" / "new_nodes_and_users.md").read_text(encoding="utf-8")
    return dict(reversed(re.findall(r"^```(\w+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)))


def test_the_pages_snippets_run_as_they_are(
    run: Run, blocks: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("new.csv").write_text(blocks["text"])
    command = blocks["bash"].replace("\\\n", " ").replace("RUN", str(run.path)).split()
    assert command[0] == "graphmill"
    result = CliRunner().invoke(app, [*command[1:], "--output", "grown"])
    assert result.exit_code == 0, result.exception
    assert "column drug is the head and target the tail" in result.stderr
    assert graphmill.load("grown").manifest["joined"]["nodes"] == {"drug": 1}
    names = {"graphmill": graphmill}
    exec(blocks["python"].replace('load("RUN")', f"load({str(run.path)!r})"), names)
    grown = names["grown"]
    assert isinstance(grown, Run)
    assert grown.links("DBX1", "indication", k=10).tail_type.tolist() == ["disease"] * 10


def test_the_columns_that_the_page_names_do_the_same(run: Run, blocks: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text(blocks["text"])
    grown = run.embed(tmp_path / "new.csv", tmp_path / "out", columns={"head_id": "drug", "tail_id": "target"})
    assert grown.manifest["joined"]["nodes"] == {"drug": 1}
