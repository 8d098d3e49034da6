"""Two runs side by side, and what each acceleration brings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.errors import InputError
from graphmill.runs.resolve import merge
from graphmill.usage.compare import compare_runs
from tests.training.runs import run


@pytest.fixture(scope="module")
def pair(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two runs that differ in the learning rate and in the number of epochs."""
    root = tmp_path_factory.mktemp("pair")
    first = run(values, root)
    second = run(merge(values, {"training": {"learning_rate": 0.02, "epochs": 4}}), root)
    return first["run_dir"], second["run_dir"]


def test_settings_and_figures(pair: tuple[str, str]) -> None:
    result = compare_runs(*pair)
    assert result["settings"] == {"training.epochs": (3, 4), "training.learning_rate": (0.01, 0.02)}
    figures = {figure["name"]: figure for figure in result["figures"]}
    assert (figures["epochs_done"]["a"], figures["epochs_done"]["b"]) == (3, 4)
    assert figures["steps_done"]["ratio"] == pytest.approx(16 / 12)
    for name in ("seconds", "peak_memory_bytes", "loss total", "test_mrr"):
        assert math.isfinite(figures[name]["ratio"]), name


def test_the_command_prints_tables_or_json(pair: tuple[str, str]) -> None:
    runner = CliRunner()
    output = runner.invoke(app, ["compare", *pair])
    assert output.exit_code == 0
    assert "training.learning_rate" in output.stdout
    assert "test_mrr" in output.stdout
    parsed = json.loads(runner.invoke(app, ["compare", *pair, "--json"]).stdout)
    assert parsed["settings"]["training.epochs"] == [3, 4]


def test_what_is_no_run_is_refused(pair: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run directory"):
        compare_runs(pair[0], tmp_path)
