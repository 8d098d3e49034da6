"""Every command on a run whose project was moved, or copied without its graph: it works or says what is missing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.errors import GraphmillError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import merge
from tests.training.cases import CASES, typed_graph

COMMANDS = {
    "evaluate": ["{run}"],
    "rank": ["{run}"],
    "links": ["{run}", "--relation", "{relation}", "-k", "2"],
    "explain": ["{run}", "--head", "{head}", "--relation", "{relation}", "--tail", "{tail}"],
    "validate": ["{run}"],
    "neighbors": ["{run}", "{head}"],
    "compare": ["{run}", "{run}"],
    "drift": ["{run}", "{run}"],
    "card": ["{run}"],
    "report": ["{run}", "--out", "{out}/page.html"],
    "export": ["{run}", "{out}/vectors.parquet"],
    "promote": ["{run}", "--to", "{out}/promoted"],
}


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A project with a graph and a run, in another place than it was trained in; the names of a link."""
    before = tmp_path_factory.mktemp("project") / "before"
    graph = typed_graph(before / "data/06_models/kg/graph")
    settings = merge(CASES["hgt-softmax"].settings, {"evaluation": {"baselines": ["knn"]}, "training": {"epochs": 1}})
    path = before / "settings.yaml"
    path.write_text(yaml.safe_dump({"system": "hgt", "data": str(graph.path), **settings}))
    out = before / "data/06_models/kg/model"
    process = CliRunner().invoke(app, ["train", str(path), "--output", str(out), "--json"], catch_exceptions=False)
    run = Path(json.loads(process.stdout)["run_dir"])
    relation = graph.relations[0]
    ids = [nodes_of(graph, kind)[0] for kind in (relation.source, relation.target)]
    names = {"relation": relation.name, "head": ids[0], "tail": ids[1]}
    after = before.rename(before.parent / "after")
    return after, names | {"run": str(after / run.relative_to(before))}


def nodes_of(graph: TypedGraph, kind: str) -> list[str]:
    table = graph.node_table()
    return [
        node for node, other in zip(table["id"].to_pylist(), table["type"].to_pylist(), strict=True) if other == kind
    ]


def outcome(command: str, names: dict[str, str], out: Path) -> Any:
    arguments = [part.format(**names, out=out) for part in COMMANDS[command]]
    return CliRunner().invoke(app, [command, *arguments])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_works_where_the_project_is(command: str, moved: Any, tmp_path: Path) -> None:
    result = outcome(command, moved[1], tmp_path)
    assert result.exit_code in (0, 1), (
        result.output,
        result.exception,
    )  # 1: a verdict, of a model trained for a moment
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception


@pytest.mark.parametrize("command", COMMANDS)
def test_without_its_graph_a_command_works_or_says_what_is_missing(command: str, moved: Any, tmp_path: Path) -> None:
    project, names = moved
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("graph"))
    run = str(copy / Path(names["run"]).relative_to(project))
    result = outcome(command, names | {"run": run}, tmp_path)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        assert isinstance(result.exception, GraphmillError), result.exception
        assert "graph" in str(result.exception)
        assert "\n" not in str(result.exception)
