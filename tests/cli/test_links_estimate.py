"""``graphmill links RUN --estimate`` beside what the links take, and the refusal where memory does not suffice."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.errors import ResourceError
from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from graphmill.usage import links
from tests.training.cases import CASES

NODES = 300
TIME_FACTOR, MEMORY_FACTOR = 5.0, 1.8
TABLE_SECONDS = 0.5
"""What the tables take besides the scoring."""
MEASURED = """
import json, sys, time
from graphmill.predictions.settings import LinkSettings
from graphmill.training.memory import peak_memory
from graphmill.usage.links import link_model, write_links

model, settings = link_model(sys.argv[1]), LinkSettings(csv=False, path_links=0, explained_links=0)
write_links(model, settings)  # compiles what is not compiled yet
began = time.process_time()
write_links(model, settings)
print(json.dumps({"seconds": time.process_time() - began, "peak_bytes": peak_memory()}))
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    drugs, genes = rng.integers(0, NODES, (2, 8 * NODES))
    edges = {"head": [f"d{n}" for n in drugs], "head_type": "drug", "relation": "binds"}
    edges |= {"tail": [f"g{n}" for n in genes], "tail_type": "gene"}
    folder = tmp_path_factory.mktemp("estimate") / "graph"
    return Path(graphmill.build_graph(graphmill.read_edges(pd.DataFrame(edges)), folder).path)


def trained(name: str, graph: Path, root: Path) -> Path:
    case = CASES[name]
    values = {"system": case.system, "data": str(graph), "preset": "none", "evaluation": {"baselines": []}}
    changes = {"training": {"epochs": 1}} if case.steps else {}
    changes |= {"training": {"epochs": 1, "steps_per_epoch": 2}} if case.system == "hgt" else {}
    return Path(train(merge(merge(values, case.settings), changes), "a test", root=str(root))["run_dir"])


@pytest.mark.parametrize("name", ["blend", "hgt-full", "nbfnet"])
def test_time_and_memory_are_near_what_the_links_take(
    name: str, graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(name, graph, tmp_path)
    monkeypatch.setattr(links, "clock", time.process_time)  # other programs do not count
    answer = CliRunner().invoke(app, ["links", str(run), "--estimate", "--json"], catch_exceptions=False)
    estimate = json.loads(answer.stdout)
    assert not (run / "links").exists()
    process = subprocess.run([sys.executable, "-c", MEASURED, str(run)], capture_output=True, text=True, check=True)
    took = json.loads(process.stdout.splitlines()[-1])
    for low, high in (took["seconds"], estimate["seconds"]), (estimate["seconds"], took["seconds"]):
        assert low < TIME_FACTOR * high + TABLE_SECONDS, (estimate, took)
    assert took["peak_bytes"] / MEMORY_FACTOR < estimate["peak_bytes"] < took["peak_bytes"] * MEMORY_FACTOR, took
    text = CliRunner().invoke(app, ["links", str(run), "--estimate"], catch_exceptions=False).stdout
    assert "s of scoring, and" in text

    monkeypatch.setattr(links, "free_memory", lambda device: estimate["peak_bytes"] - 1)
    for more in ([], ["--estimate"]):
        refused = CliRunner().invoke(app, ["links", str(run), *more]).exception
        assert isinstance(refused, ResourceError)
        assert "scoring its links takes" in str(refused)


def test_an_export_is_estimated_by_its_files(graph: Path, tmp_path: Path) -> None:
    values = {"system": "spectral", "data": str(graph)}
    run = Path(train(values, "a test", root=str(tmp_path))["run_dir"])
    export_run(restore(run))
    export = run / "embeddings"
    estimate = json.loads(CliRunner().invoke(app, ["links", str(export), "--estimate", "--json"]).stdout)
    assert estimate["peak_bytes"] > sum(file.stat().st_size for file in export.iterdir())
