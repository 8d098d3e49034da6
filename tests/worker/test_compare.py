"""Two runs side by side, and what each acceleration brings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.errors import InputError, SettingsError
from graphmill.worker.acceleration_report import acceleration_report
from graphmill.worker.compare import compare_picture, compare_runs
from graphmill.worker.job import merge
from tests.training.runs import run

PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def pair(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two runs that differ in the learning rate and in the number of epochs."""
    root = tmp_path_factory.mktemp("pair")
    first = run(values, root)
    second = run(merge(values, {"training": {"learning_rate": 0.02, "epochs": 4}}), root)
    return first["run_dir"], second["run_dir"]


def test_settings_figures_and_picture(pair: tuple[str, str]) -> None:
    found = compare_runs(*pair)
    assert found.settings == {"training.epochs": (3, 4), "training.learning_rate": (0.01, 0.02)}
    figures = {figure.name: figure for figure in found.figures}
    assert (figures["epochs_done"].a, figures["epochs_done"].b) == (3, 4)
    assert figures["steps_done"].ratio == pytest.approx(16 / 12)
    for name in ("seconds", "peak_memory_bytes", "loss total", "test_mrr"):
        assert math.isfinite(figures[name].ratio), name
    assert compare_picture(*pair).startswith(PNG)


def test_the_command_prints_tables_or_json_and_writes_the_picture(pair: tuple[str, str], tmp_path: Path) -> None:
    runner = CliRunner()
    shown = runner.invoke(app, ["compare", *pair, "--picture", str(tmp_path / "loss.png")])
    assert shown.exit_code == 0
    assert "training.learning_rate" in shown.stdout
    assert "test_mrr" in shown.stdout
    assert (tmp_path / "loss.png").read_bytes().startswith(PNG)
    parsed = json.loads(runner.invoke(app, ["compare", *pair, "--json"]).stdout)
    assert parsed["settings"]["training.epochs"] == [3, 4]


def test_what_is_no_run_is_refused(pair: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it is not a run directory, or its run never began"):
        compare_runs(pair[0], tmp_path)


def test_the_acceleration_report_has_a_row_a_configuration_failures_included(values: dict[str, Any]) -> None:
    found = acceleration_report(
        merge(values, {"acceleration": {"precision": "bf16"}}),
        "test",
        singles=["acceleration.batch_size=7"],
        epochs=1,
    )
    baseline, accelerated, refused = found.rows
    assert [row.name for row in found.rows] == ["baseline", "accelerated", "acceleration.batch_size=7"]
    assert (baseline.status, baseline.precision, accelerated.precision) == ("ok", "fp32", "bf16")
    assert accelerated.changes["acceleration"]["precision"] == "bf16"
    for row in (baseline, accelerated):
        assert row.finite
        assert row.seconds_per_epoch > 0
        assert row.peak_memory_bytes > 2**27
        assert 0 < row.metrics["test_mrr"] <= 1
    assert "batch_size and batch_size_per_device do not apply" in refused.status
    columns, rows = found.table()
    assert columns[:2] == ["configuration", "seconds per epoch"]
    assert rows[0][2] == "1"
    assert found.markdown().count("\n") == 4
    assert found.picture().startswith(PNG)
    json.dumps(found.to_dict())


def test_a_configuration_that_is_not_finite_says_so(values: dict[str, Any]) -> None:
    wild = merge(values, {"training": {"optimizer": "sgd", "learning_rate": 1e30, "warmup_steps": 0, "beta1": 0.0}})
    wild = merge(wild, {"acceleration": {"clip_norm": 0.0}})
    (row,) = acceleration_report(wild, "test", singles=[], epochs=1).rows[:1]
    assert not row.finite
    assert "is not finite" in row.status


def test_a_single_setting_is_written_as_said(values: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"write section\.name=value"):
        acceleration_report(values, "test", singles=["precision"], epochs=1)
