"""What each acceleration brings: rows, failures included; going on after a stop; the worker's mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import graphmill
from graphmill.diagnostics import acceleration_report as module
from graphmill.diagnostics.acceleration_report import (
    FILE,
    AccelerationReport,
    AccelerationReportSettings,
    Row,
    acceleration_report,
    read_report,
)
from graphmill.errors import SettingsError, StoppedError
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.mmrec import read_mmrec
from graphmill.runs.resolve import merge, parse_settings, read_settings
from graphmill.runs.train import train
from graphmill.training.signals import StopRequest
from graphmill.worker.__main__ import main

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
    assert "acceleration.batch_size does not apply" in refused.status
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
    with pytest.raises(StoppedError, match="continues after the finished measurements"):
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
        "peak_device_memory_bytes": 7,
        "planned_memory_bytes": 8,
        "memory": [[0.0, 5, 0], [1.0, 6, 7]],
        "skips": 0,
    }
    result |= {"metrics": {}, "precision": "fp32", "compile": {}}
    calls = []
    monkeypatch.setattr(module, "run_trial", lambda *a: (calls.append(a) or result, ""))
    asked = AccelerationReportSettings(epochs=2, singles=[])
    found = acceleration_report(values, "test", asked, out=tmp_path)
    assert [row.peak_memory_bytes for row in found.rows] == [7.0, 7.0], "the device's, where there is one"
    assert [row.planned_memory_bytes for row in found.rows] == [8.0, 8.0]
    acceleration_report(values, "test", asked, out=tmp_path)
    assert [values["training"]["epochs"] for values, *_ in calls] == [1, 2, 2] * 2, "with an epoch to warm up"
    acceleration_report(values, "test", quick("acceleration.clip_norm=1"), out=tmp_path)
    assert len(calls) == 10


def test_a_configuration_that_is_not_finite_says_so(values: dict[str, Any]) -> None:
    wild = merge(values, {"training": {"learning_rate": 1e38, "warmup_steps": 0}})
    wild = merge(wild, {"acceleration": {"clip_norm": 0.0}})
    row = acceleration_report(wild, "test", quick()).rows[0]
    assert not row.finite
    assert "is not finite" in row.status


@pytest.mark.parametrize(
    "asked",
    [{"singles": ["precision"]}, {"accelerated": ["acceleration.precision"]}, {"baseline": ["acceleration.precision"]}],
)
def test_a_single_setting_is_written_as_said(values: dict[str, Any], asked: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"write section\.name=value"):
        acceleration_report(values, "test", AccelerationReportSettings(epochs=1, **asked))


def test_the_worker_makes_it(values: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"mode": "acceleration_report", "settings": values, "report": {"epochs": 1, "singles": []}}
    (tmp_path / "job.json").write_text(json.dumps({**job, "out": str(tmp_path / "out")}))
    assert main(["--job", str(tmp_path / "job.json")]) == 0
    assert [row.status for row in read_report(tmp_path / "out" / FILE).rows] == ["ok", "ok"]
    assert "configuration 2 of 2: accelerated" in capsys.readouterr().err


EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "recommenders"
LARGE, COMPILED = "acceleration.batch_size=4096", "acceleration.compile=reduce-overhead"
LESS_OFTEN = "evaluation.eval_every=3"
ORIGINS = {"acceleration.clip_norm=5.0", "evaluation.top_k=[20]", LARGE, LESS_OFTEN}


def music_models() -> dict[str, dict[str, Any]]:
    place = Path(graphmill.__file__).parent / "defs" / "music" / "defs.yaml"
    models = [one["attributes"] for one in yaml.safe_load_all(place.read_text(encoding="utf-8"))]
    return {m["system"]: m for m in models if "acceleration_report" in m}


def test_the_music_chain_asks_for_the_origins_study() -> None:
    asked = music_models()
    assert set(asked) == {"mmgcn", "dragon", "kgat"}
    for system, model in asked.items():
        report = AccelerationReportSettings(**model["acceleration_report"])
        assert {f"model.embedding_dim={width}" for width in (32, 64)} <= set(report.singles)
        assert {f"evaluation.eval_every={epochs}" for epochs in (3, 5)} <= set(report.singles)
        assert {"evaluation.metrics=[recall]", "evaluation.metrics=[recall, ndcg, precision, map]"} <= set(
            report.singles
        )
        cumulative = {LARGE, f"{LARGE} + {COMPILED}", f"{LARGE} + {COMPILED} + {LESS_OFTEN}", COMPILED}
        if system == "kgat":
            cumulative = {LARGE, f"{LARGE} + {LESS_OFTEN}"}
            assert not [text for text in (*report.accelerated, *report.singles) if "compile" in text], "it refuses it"
        else:
            assert COMPILED in report.accelerated
        assert {"acceleration.micro_batches=2", *cumulative} <= set(report.singles)
        assert set(report.accelerated) >= ORIGINS
        assert report.epochs >= 10, "every third and every fifth are evaluated at different epochs"
        for text in (*report.baseline, *report.accelerated, *report.singles):
            parsed = module._parsed(text)
            settings = parse_settings(merge({"system": system, "data": "x", **model["settings"]}, parsed), text)
            for section, values in parsed.items():
                for name, value in values.items():
                    assert getattr(getattr(settings, section), name) == value


def test_the_study_of_mmgcn_is_of_the_two_files_that_have_the_origins_configurations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every setting that they resolve to, but for how long and where they train."""
    ran: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "run_trial", lambda values, *_: (ran.append(dict(values)) or {}, "not run"))
    model = music_models()["mmgcn"]
    report = AccelerationReportSettings(**{**model["acceleration_report"], "singles": []})
    acceleration_report({"system": "mmgcn", "data": "x", **model["settings"]}, "test", report)
    length = {"epochs": report.epochs, "patience_epochs": 0}
    for values, name in zip(ran[1:], ("music_baseline", "music_fast"), strict=True):  # the first is the warm-up
        file = read_settings(EXAMPLES / f"{name}.yaml")
        short = {"training": length, "acceleration": {"resume": "never"}, "data": "x"}
        assert parse_settings(values, name).model_dump() == parse_settings(merge(file, short), name).model_dump()


def test_the_two_files_are_the_origins_configurations() -> None:
    """2048, an evaluation every epoch, four metrics; and 4096, every third epoch, compiled, clipped, two metrics at 20."""
    baseline, fast = (
        parse_settings(read_settings(EXAMPLES / f"music_{name}.yaml"), name) for name in ("baseline", "fast")
    )
    shared = {"model": {"trainable_embeddings": False}, "training": {"learning_rate": 0.001, "epochs": 200}}
    plain = {"precision": "fp32"}
    expected = {
        "baseline": {
            "acceleration": {**plain, "batch_size": 2048},
            "evaluation": {
                "eval_every": 1, "metrics": ["recall", "ndcg", "precision", "map"], "top_k": [5, 10, 20, 50],
            },
            "training": {"patience_epochs": 20},
        },
        "fast": {
            "acceleration": {
                **plain, "batch_size": 4096, "lr_scaling": "sqrt", "compile": "reduce-overhead", "clip_norm": 5.0,
            },
            "evaluation": {"eval_every": 3, "metrics": ["recall", "ndcg"], "top_k": [20]},
            "training": {"patience_epochs": 60},
        },
    }  # fmt: skip
    for name, found in (("baseline", baseline), ("fast", fast)):
        values = merge({"system": "mmgcn", "data": found.data, **shared}, expected[name])  # type: ignore[attr-defined]
        assert found.model_dump() == parse_settings(values, name).model_dump()
        # MMRec's stopping_step of 20, which counts evaluations.
        assert found.training.patience_epochs == 20 * found.evaluation.eval_every  # type: ignore[attr-defined]
        assert found.evaluation.selection_metric == "recall@20"  # type: ignore[attr-defined]


def test_a_study_of_other_settings_than_the_models_is_under_every_row(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "run_trial", lambda values, *_: (ran.append(dict(values)) or {}, "not run"))
    asked = AccelerationReportSettings(
        epochs=1,
        baseline=[
            "training.weight_decay=0.7",
            "acceleration.precision=bf16",
            "evaluation.eval_every=2",
            "training.epochs=200",
        ],
        accelerated=["acceleration.clip_norm=2.5", "training.patience_epochs=20"],
        singles=["training.weight_decay=0.8"],
    )
    acceleration_report(values, "test", asked)
    *warm_up_and_two, single = [(v["training"]["weight_decay"], v["acceleration"]["precision"]) for v in ran]
    assert set(warm_up_and_two) == {(0.7, "bf16")}, "what it names wins over what a baseline turns off"
    assert single == (0.8, "bf16")
    assert {v["evaluation"]["eval_every"] for v in ran} == {2}
    assert [v["acceleration"].get("clip_norm") for v in ran] == [None, None, 2.5, None]
    assert {(v["training"]["epochs"], v["training"]["patience_epochs"]) for v in ran} == {(1, 0)}


def test_what_a_system_refuses_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_trial", lambda *_: ({}, "not run"))
    asked = AccelerationReportSettings(epochs=1, accelerated=["acceleration.compile=default"])
    rows = {row.name: row for row in acceleration_report({"system": "kgat", "data": "x"}, "test", asked).rows}
    assert "acceleration.compile=default" in module.SINGLES
    for name in ("accelerated", "acceleration.compile=default"):
        assert "compile: default is not for kgat, which has nothing to compile" in rows[name].status
        assert rows[name].finite
    assert {row.status for name, row in rows.items() if "compile" not in row.status} == {"not run"}


def test_the_table_has_the_metrics_that_most_configurations_have() -> None:
    many = {f"test_recall@{k}": 0.1 for k in (5, 10, 20, 50)} | {f"test_ndcg@{k}": 0.1 for k in (5, 10, 20, 50)}
    few = {f"test_{name}@20": 0.2 for name in ("recall", "ndcg")}
    columns, rows = AccelerationReport(
        1, [Row("baseline", {}, "ok", metrics=many), Row("accelerated", {}, "ok", metrics=few)]
    ).table()
    assert columns[5:9] == ["test_recall@20", "test_ndcg@20", "test_recall@5", "test_recall@10"]
    assert rows[1][5:9] == ["0.2", "0.2", "", ""]


def test_settings_joined_are_one_row(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_trial", lambda *a: ({}, "not run"))
    row = acceleration_report(values, "test", quick("training.weight_decay=0.8 + acceleration.compile=default")).rows[
        -1
    ]
    assert row.changes == {"training": {"weight_decay": 0.8}, "acceleration": {"compile": "default"}}


def test_the_study_has_all_its_rows_on_the_music_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MMGCN's, two epochs each, in this process and without a compiler, which takes half a minute for its layers."""
    model = music_models()["mmgcn"]
    report = AccelerationReportSettings(**{**model["acceleration_report"], "epochs": 2})
    compiled: list[str] = []

    def trained(values: dict[str, Any], where: str, *_: Any) -> tuple[dict[str, Any], str]:
        compiled.append(values["acceleration"]["compile"])
        here = merge(values, {"acceleration": {"compile": "none", "device": "cpu"}})
        return dict(train(here, where, root=str(tmp_path / f"runs{len(compiled)}"))), ""

    monkeypatch.setattr(module, "run_trial", trained)
    values = {
        "system": "mmgcn",
        "data": str(music_graph(tmp_path)),
        **model["settings"],
        "evaluation": {"baselines": []},
    }
    found = acceleration_report(values, "test", report, out=tmp_path / "out")
    rows = {row.name: row for row in found.rows}
    assert list(rows) == ["baseline", "accelerated", *report.singles]
    assert compiled.count("reduce-overhead") == 4, "accelerated, alone, and in two rows of several settings"
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
