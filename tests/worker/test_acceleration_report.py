"""What each acceleration brings: rows, failures included; going on after a stop; the worker's mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import graphmill
from graphmill.errors import SettingsError, StoppedError
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.mmrec import read_mmrec
from graphmill.training.signals import StopRequest
from graphmill.worker import acceleration_report as module
from graphmill.worker.__main__ import main
from graphmill.worker.acceleration_report import FILE, AccelerationReportSettings, acceleration_report, read_report
from graphmill.worker.job import merge, parse_settings
from graphmill.worker.run import train

PNG = b"\x89PNG\r\n"


class Recorder:
    """An outlet that remembers; asks to stop after so many messages of a kind."""

    def __init__(self, stop: StopRequest | None = None, after: str = "") -> None:
        self.messages: list[dict[str, Any]] = []
        self.stop, self.after = stop, after

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        if self.stop is not None and message.get("text", "").startswith(self.after):
            self.stop.request("test")

    def close(self) -> None:
        pass


def quick(*singles: str) -> AccelerationReportSettings:
    return AccelerationReportSettings(epochs=1, singles=list(singles))


def test_it_has_a_row_a_configuration_failures_included(values: dict[str, Any], tmp_path: Path) -> None:
    outlet = Recorder()
    found = acceleration_report(
        merge(values, {"acceleration": {"precision": "bf16"}}),
        "test",
        quick("acceleration.batch_size=7"),
        out=tmp_path,
        outlets=[outlet],
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
    # Each epoch of each configuration was told, counted over all of them; and the file says the same as the report.
    told = [m for m in outlet.messages if m["kind"] == "progress"]
    assert [(m["epoch"], m["epochs"]) for m in told] == [(1, 3), (2, 3)]
    assert all(m["losses"]["total"] > 0 for m in told)
    assert read_report(tmp_path / FILE).table() == found.table()


def test_a_stopped_report_goes_on_after_its_rows(values: dict[str, Any], tmp_path: Path) -> None:
    stop = StopRequest()
    stopper = Recorder(stop, "configuration 2")
    with pytest.raises(StoppedError, match="goes on after what has been measured"):
        acceleration_report(values, "test", quick(), out=tmp_path, outlets=[stopper], stop=stop)
    before = json.loads((tmp_path / FILE).read_text())
    assert ([row["name"] for row in before["rows"]], before["complete"]) == (["baseline"], False)
    outlet = Recorder()
    found = acceleration_report(values, "test", quick(), out=tmp_path, outlets=[outlet])
    assert [m["text"] for m in outlet.messages if m["kind"] == "note"] == ["configuration 2 of 2: accelerated"]
    assert found.rows[0].seconds_per_epoch == before["rows"][0]["seconds_per_epoch"]


def test_other_settings_and_a_complete_report_start_anew(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {
        "seconds": 1.0,
        "epochs_done": 1,
        "peak_memory_bytes": 9,
        "memory": [[0.0, 5, 0], [1.0, 6, 7]],
        "skips": 0,
    }
    result |= {"metrics": {}, "precision": "fp32", "compile": {}}
    calls = []
    monkeypatch.setattr(module, "run_trial", lambda *a: (calls.append(a) or result, ""))
    asked = AccelerationReportSettings(epochs=2, singles=[])
    found = acceleration_report(values, "test", asked, out=tmp_path)
    assert [row.peak_memory_bytes for row in found.rows] == [7.0, 7.0], "the device's, where there is one"
    acceleration_report(values, "test", asked, out=tmp_path)
    assert [values["training"]["epochs"] for values, *_ in calls] == [1, 2, 2] * 2, "with an epoch to warm up"
    acceleration_report(values, "test", quick("acceleration.num_workers=1"), out=tmp_path)
    assert len(calls) == 10


def test_a_configuration_that_is_not_finite_says_so(values: dict[str, Any]) -> None:
    wild = merge(values, {"training": {"optimizer": "sgd", "learning_rate": 1e30, "warmup_steps": 0, "beta1": 0.0}})
    wild = merge(wild, {"acceleration": {"clip_norm": 0.0}})
    row = acceleration_report(wild, "test", quick()).rows[0]
    assert not row.finite
    assert "is not finite" in row.status


@pytest.mark.parametrize("asked", [{"singles": ["precision"]}, {"accelerated": ["acceleration.precision"]}])
def test_a_single_setting_is_written_as_said(values: dict[str, Any], asked: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"write section\.name=value"):
        acceleration_report(values, "test", AccelerationReportSettings(epochs=1, **asked))


def test_the_worker_makes_it(values: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"mode": "acceleration_report", "settings": values, "report": {"epochs": 1, "singles": []}}
    (tmp_path / "job.json").write_text(json.dumps({**job, "out": str(tmp_path / "out")}))
    assert main(["--job", str(tmp_path / "job.json")]) == 0
    assert [row.status for row in read_report(tmp_path / "out" / FILE).rows] == ["ok", "ok"]
    assert "configuration 2 of 2: accelerated" in capsys.readouterr().err


LARGE, COMPILED = "acceleration.batch_size=4096", "acceleration.compile=default"


def music_models() -> dict[str, dict[str, Any]]:
    place = Path(graphmill.__file__).parent / "defs" / "music" / "defs.yaml"
    models = [one["attributes"] for one in yaml.safe_load_all(place.read_text(encoding="utf-8"))]
    return {m["recipe"]: m for m in models if "acceleration_report" in m}


def test_the_music_chain_asks_for_the_origins_study() -> None:
    asked = music_models()
    assert set(asked) == {"mmgcn", "dragon", "kgat"}
    for recipe, model in asked.items():
        report = AccelerationReportSettings(**model["acceleration_report"])
        assert {f"model.embedding_dim={width}" for width in (32, 64)} <= set(report.singles)
        assert {f"evaluation.eval_every={epochs}" for epochs in (3, 5)} <= set(report.singles)
        assert {"evaluation.metrics=[recall]", "evaluation.metrics=[recall, ndcg, precision, map]"} <= set(
            report.singles
        )
        cumulative = {LARGE, f"{LARGE} + {COMPILED}", f"{LARGE} + {COMPILED} + evaluation.eval_every=3"}
        assert {"acceleration.accumulation_steps=2", *cumulative} <= set(report.singles)
        assert {"acceleration.batch_size=4096", "evaluation.eval_every=3"} <= set(report.accelerated)
        assert report.epochs >= 10, "every third and every fifth are evaluated at different epochs"
        for text in (*report.accelerated, *report.singles):
            parsed = module._parsed(text)
            settings = parse_settings(merge({"recipe": recipe, "data": "x", **model["settings"]}, parsed), text)
            for section, values in parsed.items():
                for name, value in values.items():
                    assert getattr(getattr(settings, section), name) == value


def test_settings_joined_are_one_row(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_trial", lambda *a: ({}, "not run"))
    row = acceleration_report(values, "test", quick("training.beta1=0.8 + acceleration.compile=default")).rows[-1]
    assert row.changes == {"training": {"beta1": 0.8}, "acceleration": {"compile": "default"}}


def test_the_study_has_all_its_rows_on_the_music_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MMGCN's, two epochs each, in this process and without a compiler, which takes half a minute for its layers."""
    model = music_models()["mmgcn"]
    report = AccelerationReportSettings(**{**model["acceleration_report"], "epochs": 2})
    compiled: list[str] = []

    def trained(values: dict[str, Any], where: str, *_: Any) -> tuple[dict[str, Any], str]:
        compiled.append(values["acceleration"]["compile"])
        here = merge(values, {"acceleration": {"compile": "off", "device": "cpu", "threads": 1}})
        return dict(train(here, where, root=str(tmp_path / f"runs{len(compiled)}"))), ""

    monkeypatch.setattr(module, "run_trial", trained)
    values = {
        "recipe": "mmgcn",
        "data": str(music_graph(tmp_path)),
        **model["settings"],
        "evaluation": {"floors": False},
    }
    found = acceleration_report(values, "test", report, out=tmp_path / "out")
    rows = {row.name: row for row in found.rows}
    assert list(rows) == ["baseline", "accelerated", *report.singles]
    assert compiled.count("default") == 4, "accelerated, alone, and in two rows of several settings"
    for row in rows.values():
        assert (row.status, row.finite) == ("ok", True), row.name
        assert row.seconds_per_epoch > 0
        assert 0 < row.metrics["test_recall@20"] <= 1
    base = rows["baseline"].metrics["test_recall@20"]
    same = ("evaluation.metrics=[recall]", "acceleration.gradient_checkpointing=true", "model.embedding_dim=64")
    assert [rows[name].metrics["test_recall@20"] for name in same] == [pytest.approx(base)] * len(same)
    assert len(found.table()[1]) == 2 + len(report.singles)
    assert read_report(tmp_path / "out" / FILE).table() == found.table()


def music_graph(folder: Path) -> Path:
    sample = Path(__file__).resolve().parents[2] / "data" / "01_raw" / "music"
    tables = read_mmrec(sample)
    return build_graph(
        tables.nodes, tables.edges, GraphSettings(add_reverse="never"), folder / "graph", tables.features
    ).path
