"""One seed on two devices: when they are said to agree, and what a disagreement does to the exit code.

Here both "devices" are the CPU: ``available_devices`` says that there are two, and what the second reports is made to
differ where a test needs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.diagnostics import compare_devices
from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import merge, read_settings
from graphmill.training.run_directory import RunDirectory
from tests.training.runs import run

Sections = Mapping[str, Any]


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two devices; the metrics that a test puts in here are what the second reports instead of its own."""
    own: dict[str, Any] = {"metrics": {}, "asked": []}

    def train_on(values: Sections, where: str, device: str, seed_step: int, root: str) -> dict[str, Any]:
        own["asked"].append((device, seed_step))
        seed = int(values["training"].get("seed", 0)) + seed_step
        result = run(merge(values, {"acceleration": {"device": "cpu"}, "training": {"seed": seed}}), Path(root))
        export_run(restore(result["run_dir"]))
        return result | {"metrics": result["metrics"] | own["metrics"]} if device == "cuda" else result

    monkeypatch.setattr(compare_devices, "available_devices", lambda: {"cpu": "", "cuda": "", "mps": "no Apple GPU"})
    monkeypatch.setattr(compare_devices, "_run", train_on)
    return own


@pytest.fixture
def settings(values: dict[str, Any], tmp_path: Path) -> str:
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def command(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["compare-devices", *arguments])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout


def test_equal_trainings_agree(settings: str, second: dict[str, Any]) -> None:
    code, text = command(settings, "--json")
    found = json.loads(text)
    assert code == 0
    assert second["asked"] == [("cpu", 0), ("cuda", 0), ("cpu", 1)], "the next seed is the yardstick"
    assert found["devices"] == ["cpu", "cuda"]
    assert found["agree"]
    assert (found["overlap"], found["trace_difference"]) == (1.0, 0.0)
    assert found["seed_overlap"] < 1.0
    assert set(found["metric_differences"].values()) == {0.0}
    assert "test_mrr" in found["metric_differences"]
    assert "cpu and cuda agree: largest difference of a test metric 0.0000 (allowed 0.05)" in found["sentence"]


@pytest.mark.parametrize(("shared", "agree"), [(0.3, True), (0.29, False)])
def test_neighbours_must_agree_as_well_as_those_of_two_seeds(
    shared: float, agree: bool, settings: str, second: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_devices, "_overlap", lambda a, b: 0.3 if "seed" in b else shared)
    found = compare_devices.compare(read_settings(Path(settings)), settings)
    assert max(found.metric_differences.values()) == 0.0
    assert found.agree is agree
    assert f"nearest neighbours shared {shared:.3f} (two seeds share 0.300)" in found.sentence
    assert ("DISAGREE" in found.sentence) is not agree


def test_a_metric_that_is_off_disagrees_and_ends_with_one(settings: str, second: dict[str, Any]) -> None:
    second["metrics"] = {"test_mrr": 0.99}
    code, text = command(settings)
    assert code == 1
    assert "cpu and cuda DISAGREE: largest difference of a test metric" in " ".join(text.split())
    rows = {line.split()[1]: line for line in text.splitlines() if "test_" in line and len(line.split()) > 4}
    assert " no " in rows["test_mrr"]
    assert " yes " in rows["test_hits@10"]


def test_a_device_is_asked_for_without_a_way_out_and_its_run_is_exported(
    values: dict[str, Any], tmp_path: Path
) -> None:
    result = compare_devices._run(values, "test", "cpu", 1, str(tmp_path))
    settings = RunDirectory(result["run_dir"]).read_json("settings.json")
    assert settings["acceleration"]["device"] == "cpu"
    assert settings["training"]["seed"] == 1
    assert (Path(result["run_dir"]) / "embeddings" / "embeddings.parquet").is_file()


@pytest.mark.parametrize(
    ("other", "agree", "seconds", "advice"),
    [
        (
            "mps",
            True,
            [0.2, 0.1],
            "use the Mac's GPU, which is taken by itself: the same results, a step 2 times as fast",
        ),
        (
            "mps",
            True,
            [0.1, 0.3],
            "use the CPU (write acceleration: {device: cpu}): the same results, a step 3 times as",
        ),
        (
            "mps",
            False,
            [0.2, 0.1],
            "use the CPU (write acceleration: {device: cpu}): the Mac's GPU gives other results",
        ),
        ("cuda", True, [0.0, 0.0], "either device will do"),
    ],
)
def test_the_end_says_which_device_to_use(other: str, agree: bool, seconds: list[float], advice: str) -> None:
    assert compare_devices._advice(other, agree, seconds).startswith(advice)
