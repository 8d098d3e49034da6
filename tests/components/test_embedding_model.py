"""One system on one dataset: what its assets promise, check and show. The worker is played by the test."""

import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest
import yaml
from dagster_graphql.schema.run_config import default_values_yaml_from_type_snap

from graphmill.components import embedding_model
from graphmill.components.embedding_model import launchpad_defaults
from graphmill.errors import SettingsError
from graphmill.export.writers import csv_embeddings, parquet_embeddings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.orchestration.metadata import PICTURE_BYTES
from graphmill.systems.conve.settings import PRESETS as CONVE_PRESETS
from graphmill.training.machine import Machine
from tests.components.conftest import FakeWorker, Project, checks, failure, ran

RUN = "data/06_models/toy/hgt/abc"
DIM = 16
RESOURCES = dg.Definitions(resources={"accelerator": None, "worker": None})


def trained(**more: Any) -> dict[str, Any]:
    """A worker's report on a training."""
    result = {"kind": "result", "run_dir": RUN, "fingerprint": "abc", "data_version": "abc-40", "epochs_done": 8}
    return {"started": {"device": "cpu", "device_reason": "auto took cpu"}, "result": {**result, **more}}


def write_losses(project: Project, losses: list[float]) -> None:
    folder = project.root / RUN
    folder.mkdir(parents=True, exist_ok=True)
    records = [
        {"kind": "epoch", "epoch": i, "step": 5 * i, "losses": {"link": loss, "total": loss}, "seconds": 1.0}
        for i, loss in enumerate(losses, 1)
    ]
    text = "".join(json.dumps(record).replace("NaN", '"nan"') + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(text)


def export(project: Project, vectors: np.ndarray, nodes: pa.Table) -> dict[str, Any]:
    """Write vectors as the worker would; its report on that."""
    folder = project.root / RUN / "embeddings"
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    parquet = parquet_embeddings(folder / "embeddings.parquet", vectors.shape[1], nodes.num_rows)
    for writer, name in (
        (parquet, "embeddings.parquet"),
        (csv_embeddings(folder / "embeddings.csv"), "embeddings.csv"),
    ):
        with writer as write:
            write(nodes, vectors)
        files[name] = {"bytes": (folder / name).stat().st_size}
    return {"result": {"kind": "result", "epoch": 8, "dim": DIM, "rows": len(vectors), "files": files}}


def healthy(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, DIM)).astype(np.float32)


@pytest.fixture
def built(project: Project) -> Project:
    """A project whose graph is there."""
    assert project.materialize(project.dataset()).success
    write_losses(project, [2.0, 1.5, 1.2, 1.1, 1.0, 0.95, 0.9, 0.88])
    return project


def graph_of(project: Project) -> TypedGraph:
    return TypedGraph.open(project.root / "data" / "06_models" / "toy" / "graph")


def run_model(
    project: Project, *names: str, attributes: dict[str, Any] | None = None, **replies: Any
) -> dg.ExecuteInProcessResult:
    """Materialize parts of the model, which has ``attributes``."""
    selection = " or ".join(f'key:"toy/hgt_{name}"' for name in names)
    definitions = project.model(publish="data/06_models/embeddings/out.csv", **(attributes or {}))
    return project.materialize(project.dataset(), definitions, only=selection, worker=FakeWorker(replies=replies))


# -- the definitions -------------------------------------------------------------------------------------------------


def test_assets_carry_what_the_ui_shows(project: Project) -> None:
    definitions = project.model(owners=["team:science"], freshness={"warn_hours": 1, "fail_hours": 2})
    graph = dg.Definitions.merge(definitions, project.dataset(), RESOURCES).resolve_asset_graph()
    keys = [key for key in graph.materializable_asset_keys if key.path[-1].startswith("hgt_")]
    nodes = {key.path[-1]: graph.get(key) for key in keys}
    assert {name: node.group_name for name, node in nodes.items()} == {
        "hgt_model": "toy_training",
        "hgt_embeddings": "toy_training",
        "hgt_validation": "toy_validation",
        "hgt_ranking": "toy_validation",
        "hgt_promoted": "toy_release",
        "hgt_links": "toy_release",
        "hgt_drift": "toy_validation",
    }
    for node in nodes.values():
        assert node.description
        assert node.kinds
        assert node.code_version
        assert list(node.owners) == ["team:science"]
    assert {name: set(node.pools) for name, node in nodes.items()} == {
        "hgt_model": {"accelerator"},
        "hgt_embeddings": {"accelerator"},
        "hgt_ranking": {"accelerator"},
        "hgt_promoted": {"accelerator"},
        "hgt_links": {"accelerator"},
        "hgt_drift": {"accelerator"},
        "hgt_validation": set(),
    }
    assert nodes["hgt_embeddings"].freshness_policy is not None
    embeddings = dg.AssetKey(["toy", "hgt_embeddings"])
    assert nodes["hgt_validation"].parent_keys == nodes["hgt_ranking"].parent_keys == {embeddings}


def test_blocking_checks_guard_the_embeddings_and_only_those(project: Project) -> None:
    graph = dg.Definitions.merge(project.model(), project.dataset(), RESOURCES).resolve_asset_graph()
    check_keys = [key for key in graph.asset_check_keys if key.asset_key.path[-1].startswith("hgt_")]
    blocking = {key.name for key in check_keys if graph.get_check_spec(key).blocking}
    of_vectors = {"finite", "shape", "ids_aligned", "no_dead_rows", "not_collapsed"}
    assert blocking == of_vectors | {"version_is_whole"}


def test_the_launchpad_shows_every_setting_with_the_yamls_values(project: Project) -> None:
    definitions = dg.Definitions.merge(
        project.model(settings={"training": {"epochs": 7}, "model": {"inputs": "tables"}}), project.dataset(), RESOURCES
    )
    snapshot = definitions.resolve_job_def("toy_hgt_retrain").get_job_index().job_snapshot
    schema = snapshot.config_schema_snapshot
    root = schema.get_config_snap(snapshot.mode_def_snaps[0].root_config_key)
    output = yaml.safe_load(default_values_yaml_from_type_snap(schema, root))["ops"]["toy__hgt_model"]["config"]
    expected = launchpad_defaults(
        "hgt", {"training": {"epochs": 7}, "model": {"inputs": "tables"}}
    ).settings.model_dump()
    for name in ("system", "data", "preset"):
        assert name not in output
        expected.pop(name)
    expected["acceleration"].pop("device")
    assert output == expected
    assert output["training"]["epochs"] == 7


def test_a_preset_fills_what_is_not_written() -> None:
    written = {"preset": "low_memory", "training": {"epochs": 7}}
    defaults = launchpad_defaults("conve", written)
    settings: Any = defaults.settings
    assert settings.training.epochs == 7
    for section, fields in CONVE_PRESETS["low_memory"].items():
        assert {name: getattr(getattr(settings, section), name) for name in fields} == fields
    assert (settings.preset, defaults.preset_reason) == ("low_memory", "as the defs.yaml says")


@pytest.mark.parametrize("written", [{}, {"preset": "auto"}], ids=["by default", "auto"])
@pytest.mark.parametrize(("gib", "preset"), [(1, "low_memory"), (64, "none")])
def test_auto_is_the_preset_of_the_machine_that_loads_the_definitions(
    project: Project, monkeypatch: pytest.MonkeyPatch, written: dict[str, Any], gib: int, preset: str
) -> None:
    monkeypatch.setattr(embedding_model, "this_machine", lambda: Machine("cpu", gib * 2**30))
    defaults = launchpad_defaults("conve", {**written, "training": {"epochs": 7}})
    settings: Any = defaults.settings
    assert (settings.preset, settings.training.epochs) == (preset, 7)
    assert defaults.preset_reason.startswith("auto: ")
    (model,) = [a for a in project.model(system="conve", settings=written).assets if a.key.path[-1] == "conve_model"]
    assert (f"the preset `{preset}` (" in model.descriptions_by_key[model.key]) == (preset != "none")


def test_what_auto_stood_for_is_recorded(built: Project) -> None:
    assert run_model(built, "model", train=trained()).success
    output = built.metadata("toy/hgt_model")
    assert output["preset"] == "none"
    assert output["preset_reason"].startswith("auto: ")


def test_the_schedule_is_the_yamls_and_stopped(project: Project) -> None:
    (schedule,) = project.model(schedule={"cron": "0 3 * * 1", "timezone": "Europe/Berlin"}).schedules
    assert (schedule.name, schedule.cron_schedule) == ("toy_hgt_schedule", "0 3 * * 1")
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    assert not project.model().schedules


def test_the_retraining_job_starts_at_the_files(project: Project) -> None:
    definitions = dg.Definitions.merge(project.model(), project.dataset(), RESOURCES)
    keys = definitions.resolve_job_def("toy_hgt_retrain").asset_layer.executable_asset_keys
    assert {dg.AssetKey(["toy", "raw_edges"]), dg.AssetKey(["toy", "hgt_validation"])} <= set(keys)


def test_two_models_live_beside_each_other(project: Project) -> None:
    other = project.model(name="hgt_tables", settings={"model": {"inputs": "tables"}})
    definitions = dg.Definitions.merge(project.model(), other, project.dataset(), RESOURCES)
    dg.Definitions.validate_loadable(definitions)


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"system": "gcn"}, r"system 'gcn' is unknown \(known: .*hgt"),
        (
            {"settings": {"training": {"epoch": 3}}},
            r"settings: unknown setting 'training\.epoch' .*'epochs'",
        ),
        ({"settings": {"training": {"epochs": -1}}}, r"settings: training\.epochs = -1"),
        ({"settings": {"preset": "m1_64gb"}}, r"settings: preset 'm1_64gb' is unknown"),
        ({"settings": {"data": "elsewhere"}}, r"settings\.data is set by the component"),
        (
            {"checks": {"mean_cosine": 0.5}},
            r"checks: unknown setting 'mean_cosine' .*'mean_cosine_max'",
        ),
        ({"checks": {"severity": "fatal"}}, "checks: severity = 'fatal'"),
        ({"name": "hgt-2"}, "name 'hgt-2' must be letters, digits and underscores"),
        ({"schedule": {"cron": "every monday"}}, "schedule: .*every monday"),
        ({"freshness": {"warn_hours": 3, "fail_hours": 2}}, r"freshness\.warn_hours = 3 must be less than"),
    ],
)
def test_mistakes_in_the_yaml_are_one_sentence(project: Project, attributes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence) as error:
        project.model(**attributes)
    assert "\n" not in str(error.value)


# -- training --------------------------------------------------------------------------------------------------------


def test_a_training_becomes_a_materialization(built: Project) -> None:
    report = trained(
        metrics={"test_mrr": 0.25}, seconds=12.5, reused=False,
        peak_memory_bytes=9, peak_device_memory_bytes=7, planned_memory_bytes=8,
    )  # fmt: skip
    report["progress"] = {"epoch": 8, "estimate": {"seconds_total": 14.0}}
    assert run_model(built, "model", train=report).success
    output = built.metadata("toy/hgt_model")
    assert (output["loss"], output["test_mrr"], output["seconds"]) == (0.88, 0.25, 12.5)
    assert (output["device"], output["device_reason"], output["reused"]) == ("cpu", "auto took cpu", False)
    assert output["estimated_seconds_total"] == 14.0
    memory = [output[f"{name}_memory_bytes"] for name in ("peak", "peak_device", "planned")]
    assert memory == [9, 7, 8], "the planner's figure beside the device's"
    assert output["run_dir"] == RUN
    assert built.data_version("toy/hgt_model") == "abc-40"
    assert "data:image/png;base64," in output["loss_curve"]
    assert len(output["loss_curve"]) <= PICTURE_BYTES
    assert built.value("toy/hgt_model")["run_dir"] == RUN


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({"best_epoch": 6}, "hgt, 8 epochs, the best is 6."),
        ({"epochs_done": 1, "best_epoch": 1}, "hgt, 1 epoch."),
        ({"epochs_done": 0}, "nothing is trained."),
    ],
)
def test_its_summary_counts_epochs(built: Project, about: dict[str, Any], text: str) -> None:
    assert run_model(built, "model", train=trained(**about)).success
    assert text in built.metadata("toy/hgt_model")["summary"]


@pytest.mark.parametrize(
    ("losses", "failing"),
    [
        ([2.0, 1.5, 1.2, 1.1, 1.0, 0.95, 0.9, 0.88], set()),
        ([1.0, 1.1, float("nan"), 1.0], {"loss_finite"}),
        ([1.0, 1.1, 1.2, 1.3, 1.4, 1.5], {"loss_falling"}),
        ([1.0], set()),
    ],
    ids=["sound", "not finite", "rising", "one epoch"],
)
def test_the_loss_is_judged(built: Project, losses: list[float], failing: set[str]) -> None:
    write_losses(built, losses)
    result = run_model(built, "model", train=trained())
    answer = {name for name, evaluation in checks(result).items() if not evaluation.passed}
    assert answer == failing


def test_too_few_messages_are_told(built: Project) -> None:
    result = run_model(built, "model", train=trained(health={"message_coverage": 0.5}))
    check = checks(result)["edges_carry_messages"]
    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.WARN
    assert "50%" in check.description


def test_a_bad_value_in_the_launchpad_fails_before_the_worker_starts(built: Project) -> None:
    result = built.materialize(
        built.dataset(),
        built.model(settings={}),
        only='key:"toy/hgt_model"',
        worker=FakeWorker(replies={}),
        toy__hgt_model={"training": {"epochs": -1}},
    )
    assert failure(result).startswith("the Launchpad: training.epochs = -1: ")
    assert not [event for event in result.all_events if event.event_type_value == "STEP_UP_FOR_RETRY"]


# -- embeddings ------------------------------------------------------------------------------------------------------


def embeddings(
    project: Project,
    vectors: np.ndarray,
    nodes: pa.Table | None = None,
    *,
    validated: bool = False,
    attributes: dict[str, Any] | None = None,
) -> dg.ExecuteInProcessResult:
    table = graph_of(project).node_table() if nodes is None else nodes
    reply = export(project, vectors, table)
    names = ["model", "embeddings", *(["validation"] if validated else [])]
    return run_model(project, *names, attributes=attributes, train=trained(), export=reply)


def test_sound_embeddings_pass_and_are_published(built: Project) -> None:
    count = graph_of(built).num_nodes
    result = embeddings(built, healthy(count))
    assert result.success
    output = built.metadata("toy/hgt_embeddings")
    assert output["dagster/row_count"] == count
    assert [column.name for column in output["columns"].columns][-1] == "embedding"
    assert f"graphmill.load('{RUN}')" in output["how_to_load"]
    assert built.data_version("toy/hgt_embeddings") == "abc-40-e8"
    published = built.root / "data" / "06_models" / "embeddings" / "out.csv"
    assert published.read_bytes() == (built.root / RUN / "embeddings" / "embeddings.csv").read_bytes()


def test_vectors_of_another_epoch_than_the_best_are_told_on_every_asset(built: Project) -> None:
    note = "the best epoch is 5, but its checkpoint is damaged: epoch 8 is used in its place, and so on"
    reply = export(built, healthy(graph_of(built).num_nodes), graph_of(built).node_table())
    reply["result"] |= {"best_epoch": 5, "notes": [note]}
    output = checks(run_model(built, "model", "embeddings", train=trained(), export=reply))["of_best_epoch"]
    assert not output.passed
    assert output.description == note
    assert built.metadata("toy/hgt_embeddings")["best_epoch"] == 5
    assert built.metadata("toy/hgt_embeddings")["epoch"] == 8
    report = {**ranking_report(0.3), "best_epoch": 5, "notes": [note]}
    (built.root / RUN / "ranking.json").write_text(json.dumps(report))
    assert run_model(built, "ranking", rank={"result": {"kind": "result"}}).success
    assert built.metadata("toy/hgt_ranking")["notes"] == note


def spoil(vectors: np.ndarray, nodes: pa.Table, how: str) -> tuple[np.ndarray, pa.Table]:
    if how == "finite":
        vectors[3, 2] = np.nan
    elif how == "no_dead_rows":
        vectors[5] = 0
    elif how == "not_collapsed":
        vectors = np.ones_like(vectors) + 0.001 * vectors
    elif how == "ids_aligned":
        order = np.arange(len(vectors))
        order[[0, 1]] = [1, 0]
        nodes = nodes.take(order)
    else:
        vectors, nodes = vectors[:-1], nodes.slice(0, len(vectors) - 1)
    return vectors, nodes


@pytest.mark.parametrize("how", ["finite", "no_dead_rows", "not_collapsed", "ids_aligned", "shape"])
def test_wrong_embeddings_go_no_further(built: Project, how: str) -> None:
    graph = graph_of(built)
    vectors, nodes = spoil(healthy(graph.num_nodes), graph.node_table(), how)
    result = embeddings(built, vectors, nodes, validated=True)
    assert how in {name for name, evaluation in checks(result).items() if not evaluation.passed}
    assert "toy__hgt_validation" not in ran(result)
    assert not (built.root / "data" / "06_models" / "embeddings" / "out.csv").exists()


# -- validation and ranking ------------------------------------------------------------------------------------------


def test_the_report_becomes_figures_checks_and_pictures(built: Project) -> None:
    result = embeddings(built, healthy(graph_of(built).num_nodes), validated=True)
    assert result.success
    output = built.metadata("toy/hgt_validation")
    assert output["rows"] == graph_of(built).num_nodes
    assert abs(output["mean_cosine"]) < 0.05
    answer = checks(result)
    assert answer["mean_cosine"].passed
    assert answer["rows_are_sound"].passed
    for check, name in (("mean_cosine", "cosines"), ("pca_variance", "spectrum"), ("types_vary", "pca")):
        assert name in answer[check].metadata["picture"].value
        assert "data:image/png;base64," in output[name]
        assert len(output[name]) <= PICTURE_BYTES
        assert (built.root / RUN / "validation" / f"{name}.png").stat().st_size > 1000
    health = json.loads((built.root / RUN / "validation" / "health.json").read_text())
    assert health["figures"]["rows"] == output["rows"]


def test_labels_in_the_yaml_are_probed_and_checked(built: Project) -> None:
    names = graph_of(built).node_table().slice(0, 40)["id"].to_pylist()
    (built.root / "labels.csv").write_text("\n".join(["id,area", *(f"{n},{'ab'[k % 2]}" for k, n in enumerate(names))]))
    labels = {"file": "labels.csv", "node_type": "drug", "column": "area"}
    attributes = {"validation": {"labels": labels}}
    result = embeddings(built, healthy(graph_of(built).num_nodes), validated=True, attributes=attributes)
    check = checks(result)["labels_known"]
    assert not check.passed  # the vectors are noise
    assert "2 classes of 40 nodes has accuracy" in check.description
    assert "spectral" in str(built.metadata("toy/hgt_validation")["labels"])


def test_what_is_wrong_is_named_but_blocks_nothing(built: Project) -> None:
    rng = np.random.default_rng(1)
    narrow = (rng.normal(size=(graph_of(built).num_nodes, 2)) @ rng.normal(size=(2, DIM))).astype(np.float32)
    result = embeddings(built, narrow, validated=True)
    assert result.success
    named = checks(result)["pca_variance"]
    assert not named.passed
    assert named.severity is dg.AssetCheckSeverity.WARN


def ranking_report(mrr: float) -> dict[str, Any]:
    scorers = {"model": mrr, "degree": 0.1, "knn": 0.2}
    relation = {
        "relation": 0,
        "name": "a · b · c",
        "queries": 40,
        "mrr": scorers,
    }
    macro = {name: {"mrr": value} for name, value in scorers.items()}
    against = {
        "mrr": {"model": mrr, "degree": 0.1, "knn": 0.2},
        "best": "knn",
        "average": "macro",
        "queries": 40,
        "ratios": {"knn": {"value": mrr / 0.2, "low": mrr / 0.25, "high": mrr / 0.15}},
    }
    parts = [{"by": "training links of the target", "part": "100+", "queries": 40, "mrr": scorers}]
    return {
        "epoch": 8,
        "comparison": {
            "relations": [relation],
            "macro": macro,
            "micro": macro,
            "against": against,
        },
        "parts": parts,
        "rankings": {"model": {"queries": 40}},
    }


@pytest.mark.parametrize(("mrr", "failing"), [(0.3, set()), (0.12, {"beats_baselines"})])
def test_the_ranking_stands_beside_its_baselines(built: Project, mrr: float, failing: set[str]) -> None:
    embeddings(built, healthy(graph_of(built).num_nodes))
    (built.root / RUN / "ranking.json").write_text(json.dumps(ranking_report(mrr)))
    result = run_model(built, "ranking", rank={"result": {"kind": "result"}})
    assert {name for name, evaluation in checks(result).items() if not evaluation.passed} == failing
    output = built.metadata("toy/hgt_ranking")
    assert output["mrr"] == mrr
    word = "Worse" if failing else "Better"
    assert re.match(rf"\*\*{word}\.\*\* .*MRR is {mrr:g}.* 0\.2 of kNN", output["summary"])
    instance, key = built.instance, dg.AssetCheckKey(dg.AssetKey(["toy", "hgt_model"]), "verdict")
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert record.event is not None
    said = record.event.dagster_event.asset_check_evaluation_data  # type: ignore[union-attr]
    assert (said.passed, said.severity) == (not failing, dg.AssetCheckSeverity.WARN)
    assert said.description is not None
    assert f"**{word}.**" in said.description
    assert output["mrr_over_best_baseline_low"] == pytest.approx(mrr / 0.25)
    assert re.search(
        rf"\| kNN \| 0.2 \| {mrr / 0.2:g} \| {mrr / 0.25:.3f} to {mrr / 0.15:.3f} \|", output["mrr_by_scorer"]
    )
    assert "100+" in output["by_part"]
    assert "data:image/png;base64," in output["mrr_by_relation"]
    if failing:
        assert "of kNN, the best simple way" in checks(result)["beats_baselines"].description
        assert checks(result)["beats_baselines"].severity is dg.AssetCheckSeverity.WARN


@pytest.mark.parametrize("mrr", [0.25, 0.12])  # that of the best baseline, and less
def test_a_loss_to_a_baseline_is_an_error_where_it_is_set_so(built: Project, mrr: float) -> None:
    embeddings(built, healthy(graph_of(built).num_nodes))
    (built.root / RUN / "ranking.json").write_text(json.dumps(ranking_report(mrr)))
    result = run_model(
        built, "ranking", attributes={"checks": {"baseline_severity": "error"}}, rank={"result": {"kind": "result"}}
    )
    check = checks(result)["beats_baselines"]
    assert check.severity is dg.AssetCheckSeverity.ERROR
    assert check.passed is (mrr == 0.25)


def test_a_graph_that_holds_out_nothing_is_validated_without_links(project: Project) -> None:
    assert project.materialize(project.dataset(graph={"split": {"valid": 0.0, "test": 0.0}})).success
    write_losses(project, [2.0, 1.0])
    result = embeddings(project, healthy(graph_of(project).num_nodes), validated=True)
    assert "no links" in checks(result)["ids_fit_links"].description


def test_paths_in_the_metadata_are_relative_to_the_project(built: Project, tmp_path: Path) -> None:
    embeddings(built, healthy(graph_of(built).num_nodes))
    for key in ("toy/raw_edges", "toy/edges", "toy/graph", "toy/hgt_model", "toy/hgt_embeddings"):
        output = built.metadata(key)
        output.pop("path")  # the IO manager's
        assert str(tmp_path) not in json.dumps(
            {name: str(value) for name, value in output.items() if name != "figures"}
        )
