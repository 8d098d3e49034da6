"""The tutorial is run as it is written: its Python as doctests, its commands in the order of the page."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from graphmill.cli import app

BLOCK = re.compile(r"^```(python|console|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (repository / "docs/tutorials/first_graph.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    names: dict[str, object] = {}
    written: list[str] = []
    for kind, text in BLOCK.findall(page):
        if kind == "python":
            example = doctest.DocTestParser().get_doctest(text, names, "first_graph.md", None, None)
            runner.run(example, clear_globs=False)
            names |= example.globs
        elif kind == "console":
            for line in text.splitlines():
                program, *arguments = shlex.split(line.removeprefix("$ "))
                assert program == "graphmill"
                done = CliRunner().invoke(app, arguments, catch_exceptions=False)
                assert done.exit_code == 0, done.output
                written.append(done.output)
        else:
            shown = list(yaml.safe_load_all(text))
    assert runner.summarize().failed == 0
    assert "(reused)" in "".join(written), "the command line goes on with the notebook's run"
    made = list(yaml.safe_load_all((tmp_path / "my-project/my_project/defs/mine/defs.yaml").read_text()))
    for of_page, of_init in zip(shown, made, strict=True):
        assert of_page["type"] == of_init["type"]
        assert of_page["attributes"].items() <= of_init["attributes"].items()
