"""A damaged checkpoint of the best epoch: every later station says which epoch it used in its place."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.runs.export import evaluate_run, export_run, restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from graphmill.runs.warm_start import read_warm_start
from graphmill.training.checkpoint import CheckpointStore
from tests.training.runs import Kept


@pytest.fixture
def still(values: dict[str, Any]) -> dict[str, Any]:
    """A training that learns nothing: the first of equal epochs is the best."""
    changes = {"training": {"epochs": 3, "learning_rate": 1e-12}, "evaluation": {"eval_every": 1}}
    return merge(values, changes)


def damage(run_dir: Path, epoch: int) -> Path:
    (info,) = [info for info in CheckpointStore(run_dir / "checkpoints").list() if info.epoch == epoch]
    content = bytearray(info.path.read_bytes())
    content[-7] ^= 1
    info.path.write_bytes(content)
    return info.path


def test_every_later_station_says_which_epoch_it_used(still: dict[str, Any], tmp_path: Path) -> None:
    result = train(still, "test", root=str(tmp_path))
    run_dir = Path(result["run_dir"])
    assert result["best_epoch"] == result["exported_epoch"] == 1
    assert restore(run_dir).notes == []
    path = damage(run_dir, 1)
    first = restore(run_dir)
    assert f"the checkpoint {path} is damaged" in first.notes[0]
    expected = (
        f"the best epoch is 1, but its checkpoint is damaged: epoch {first.epoch} is used in its place, and metrics and "
        "vectors come from that epoch"
    )
    assert first.epoch in (2, 3)
    assert first.notes[-1] == expected
    # From now on the file is set aside, and nothing but the report knows which epoch was the best.
    again = restore(run_dir)
    assert (again.epoch, again.notes) == (first.epoch, [expected])
    assert expected in (run_dir / "train.log").read_text()
    answer = evaluate_run(again)
    assert (answer["epoch"], answer["best_epoch"], answer["notes"]) == (first.epoch, 1, [expected])
    export_run(again)
    manifest = json.loads((run_dir / "embeddings" / "manifest.json").read_text())
    assert (manifest["epoch"], manifest["best_epoch"], manifest["notes"]) == (first.epoch, 1, [expected])
    report = json.loads((run_dir / "report.json").read_text())
    assert (report["best_epoch"], report["exported_epoch"]) == (1, first.epoch)
    assert expected in report["notes"]
    assert expected in read_warm_start(str(run_dir)).notes
    output = CliRunner().invoke(app, ["evaluate", str(run_dir)])
    assert output.exit_code == 0
    assert f"note: {expected}" in output.stderr
    # Who asks for an epoch gets that one, and no word on any other.
    assert restore(run_dir, 3).notes == []
    assert restore(run_dir, "last").notes == []


def test_a_training_that_ends_says_it_in_log_and_report(still: dict[str, Any], tmp_path: Path) -> None:
    result = train(still, "test", root=str(tmp_path))
    damage(Path(result["run_dir"]), 1)
    said = Kept()
    longer = train(merge(still, {"training": {"epochs": 4}}), "test", root=str(tmp_path), outlets=[said])
    assert longer["run_dir"] == result["run_dir"]
    assert longer["best_epoch"] == 1
    assert longer["exported_epoch"] in (2, 3, 4)
    (note,) = [text for text in said.notes if text.startswith("the best epoch is 1")]
    assert f"epoch {longer['exported_epoch']} is used in its place" in note
    assert note in longer["notes"]
    assert note in (Path(longer["run_dir"]) / "train.log").read_text()


def test_a_best_epoch_that_is_gone_is_not_called_damaged(still: dict[str, Any], tmp_path: Path) -> None:
    run_dir = Path(train(still, "test", root=str(tmp_path))["run_dir"])
    for info in CheckpointStore(run_dir / "checkpoints").list():
        if info.epoch == 1:
            info.path.unlink()
    (note,) = restore(run_dir).notes
    assert note.startswith("the best epoch is 1, but its checkpoint is not there")
