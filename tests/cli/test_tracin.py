"""``graphmill train`` and ``graphmill tracin`` on the committed triples: the second chain at the command line."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.triples import read_triples


def test_training_and_explaining(tmp_path: Path, repository: Path) -> None:
    tables = read_triples(repository / "data" / "01_raw" / "triples")
    graph = build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), tmp_path / "graph")
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        yaml.safe_dump(
            {
                "system": "conve",
                "data": str(graph.path),
                "model": {"embedding_dim": 16, "output_channels": 4, "embedding_height": 4},
                "training": {"epochs": 2, "steps_per_epoch": 3},
                "acceleration": {"keep_influence": 2},
            }
        )
    )
    runner = CliRunner()
    trained = runner.invoke(app, ["train", str(settings), "--json"], catch_exceptions=False)
    run = Path(json.loads(trained.stdout)["run_dir"])
    arguments = ["tracin", str(run), "--set", "max_test_triples=2", "--set", "top_k=3", "--json"]
    result = json.loads(runner.invoke(app, arguments, catch_exceptions=False).stdout)
    assert len(result["results"]) in (2, 4)
    assert result == json.loads((run / "influence" / "test.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("bad", ["mode=sideways", "batch=3"])
def test_a_wrong_influence_setting_is_named(tmp_path: Path, bad: str) -> None:
    result = CliRunner().invoke(app, ["tracin", str(tmp_path), "--set", bad])
    assert bad.split("=")[0] in str(result.exception)
