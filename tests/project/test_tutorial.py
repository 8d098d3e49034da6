"""The tutorial is run as it is written: its Python as doctests, its commands in the order of the page."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.components import EmbeddingModel

BLOCK = re.compile(r"^```(python|console|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Page:
    """A page's blocks, run in their order in the working directory; ``written`` is what the commands printed."""

    def __init__(self, path: Path) -> None:
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        self.names: dict[str, object] = {}
        self.written = ""
        self.yaml: list[dict] = []
        for kind, text in BLOCK.findall(path.read_text(encoding="utf-8")):
            if kind == "python":
                example = doctest.DocTestParser().get_doctest(text, self.names, path.name, None, None)
                runner.run(example, clear_globs=False)
                self.names |= example.globs
            elif kind == "console":
                for line in text.splitlines():
                    program, *arguments = shlex.split(line.removeprefix("$ "))
                    assert program == "graphmill"
                    process = CliRunner().invoke(app, arguments, catch_exceptions=False)
                    assert process.exit_code == 0, process.output
                    self.written += process.output
            else:
                self.yaml = list(yaml.safe_load_all(text))
        assert runner.summarize().failed == 0

    @property
    def goes_on(self) -> bool:
        """Whether the command line took up the notebook's run."""
        return "(reused)" in self.written


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page(repository / "docs/tutorials/first_graph.md")
    assert page.goes_on
    made = list(yaml.safe_load_all((tmp_path / "my-project/my_project/defs/mine/defs.yaml").read_text()))
    for of_page, of_init in zip(page.yaml, made, strict=True):
        assert of_page["type"] == of_init["type"]
        assert of_page["attributes"].items() <= of_init["attributes"].items()


@pytest.mark.slow
def test_a_drug_list_comes_from_a_graph_as_the_page_says(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page(repository / "docs/tutorials/from_graph_to_drug_list.md")
    assert page.goes_on
    run, disease = page.names["run"], page.names["disease"]
    output = CliRunner().invoke(app, ["links", str(run.path), "--relation", "indication", "--head", disease, "-k", "3"])
    assert f"{disease}, indication: drug" in output.output.replace("\n", " ")
    process = CliRunner().invoke(app, ["links", str(run.path), "--relation", "indication", "--type", "disease"])
    assert process.exit_code == 0
    assert (run.path / "links" / "links.csv").is_file()


@pytest.mark.slow
def test_a_recommender_is_trained_as_the_page_says(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Page(repository / "docs/tutorials/first_recommender.md")
    made = list(yaml.safe_load_all((tmp_path / "my-shop/my_shop/defs/views/defs.yaml").read_text()))
    assert made[1]["attributes"]["dataset"] == "views"


def test_the_first_schedule_names_what_there_is(repository: Path) -> None:
    page = (repository / "docs/tutorials/first_schedule.md").read_text(encoding="utf-8")
    written = {name for _, text in BLOCK.findall(page) for name in yaml.safe_load(text)}
    assert written == {"schedule", "freshness", "promote"}
    assert written <= set(EmbeddingModel.model_fields)
