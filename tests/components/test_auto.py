"""``system: auto``: a model whose system is chosen by validation, from its data to a promoted version of another system."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from graphmill.components import EmbeddingModel
from graphmill.components.promoted_asset import gating_checks
from graphmill.errors import SettingsError
from graphmill.promotion.versions import Versions
from graphmill.serving.runs import finished_runs
from graphmill.systems import registry
from tests.components.conftest import INTERACTIONS, Project, WorkerHere, checks, failure, write_interactions

SPLIT = {"split": {"method": "random", "valid": 0.2, "test": 0.2}}


def run(
    project: Project, dataset: dg.Definitions, *systems: str, without: Sequence[str] = (), **attributes: Any
) -> dg.ExecuteInProcessResult:
    model = project.model(system="auto", settings={"budget": "1h", "systems": list(systems)}, **attributes)
    chosen = dg.AssetSelection.all() - dg.AssetSelection.assets(*without)
    return project.materialize(dataset, model, only=chosen, worker=WorkerHere())


def passing(project: Project, predicts: str) -> dict[str, Any]:
    """The policy that promotes whatever the checks of a tiny graph say."""
    gates = gating_checks(EmbeddingModel(dataset="toy", system="auto", **{predicts: {}}).plan(project.context))
    return {"when": "checks_pass", "except_checks": sorted({check.name for check in gates})}


def test_the_choice_goes_through_all_assets_and_is_made_anew_for_new_data(project: Project) -> None:
    file, choice = project.root / "data/views.tsv", project.root / "data/06_models/toy/auto/which_model.json"
    write_interactions(file)
    dataset = project.dataset(sources=[INTERACTIONS], graph=SPLIT)
    policy, versions = passing(project, "recommendations"), Versions(project.root / "data/07_promoted/toy/auto")
    result = run(project, dataset, "popularity", recommendations={}, promote=policy)
    assert result.success, failure(result)
    assert {"verdict", "queries_decide", "weights_finite", "ids_aligned", "lists_stayed"} <= set(checks(result))
    page = project.metadata("toy/which_model")
    assert page["system"] == "popularity"
    assert "Use popularity" in page["summary"]
    assert {row.data["system"] for row in page["systems"].records} == {"popularity"}
    model = project.metadata("toy/auto_model")
    assert (model["system"], model["reused"], model["run_dir"]) == ("popularity", True, page["run_dir"])
    assert "test_recall@20" in model
    one = versions.current()
    assert one is not None
    assert one.about["system"] == "popularity"
    before = choice.stat().st_mtime_ns
    result = run(project, dataset, "popularity", recommendations={}, promote=policy)
    assert result.success, failure(result)
    assert choice.stat().st_mtime_ns == before, "the same data: the choice stays"

    # New data and more systems: the one with vectors is compared with the live one without.
    write_interactions(file, users=60)
    result = run(project, dataset, "popularity", "mf", recommendations={}, promote=policy)
    assert result.success, failure(result)
    chosen = project.metadata("toy/which_model")
    assert chosen["system"] == project.metadata("toy/auto_model")["system"] == "mf"
    assert {row.data["system"] for row in chosen["systems"].records} == {"mf", "popularity"}
    assert "vectors of mf" in project.metadata("toy/auto_scorer")["summary"]
    assert project.metadata("toy/auto_drift")["against"] == one.name
    two = versions.current()
    assert two is not None
    assert two.about["system"] == "mf"
    assert json.loads(choice.read_text())["system"] == "mf"
    rows = [row for row in finished_runs(project.root) if row["model"] == "auto"]
    trials = [row for row in rows if "test_recall@20" not in row["metrics"]]
    assert {row["system"] for row in rows} == {"mf", "popularity"}, "the service lists the trials, too"
    assert trials
    assert all("valid_recall@20" in row["metrics"] for row in trials)


def test_the_chosen_system_is_trained_on_newer_data_without_a_new_choice(project: Project) -> None:
    file, choice = project.root / "data/views.tsv", project.root / "data/06_models/toy/auto/which_model.json"
    write_interactions(file)
    dataset = project.dataset(sources=[INTERACTIONS], graph=SPLIT)
    assert run(project, dataset, "popularity", "ease", recommendations={}).success
    first, made = project.metadata("toy/auto_model"), choice.read_bytes()
    write_interactions(file, users=60)
    result = run(project, dataset, "popularity", "ease", recommendations={}, without=["toy/which_model"])
    assert result.success, failure(result)
    second = project.metadata("toy/auto_model")
    assert (second["system"], second["reused"]) == (first["system"], False)
    assert second["fingerprint"] != first["fingerprint"]
    assert choice.read_bytes() == made


def test_two_choices_on_a_dataset_have_two_assets(project: Project) -> None:
    keys = {
        key.to_user_string()
        for name in ("", "quick")
        for asset in project.model(system="auto", name=name, recommendations={}).assets or ()
        for key in asset.keys
    }
    assert {"toy/which_model", "toy/auto_model", "toy/quick_which_model", "toy/quick_model"} <= keys
    with pytest.raises(SettingsError, match="which"):
        project.model(system="ease", name="which", recommendations={})


def test_two_systems_are_compared_by_the_same_queries(project: Project) -> None:
    write_interactions(project.root / "data" / "views.tsv", users=80)
    dataset = project.dataset(sources=[INTERACTIONS], graph=SPLIT)
    policy = passing(project, "recommendations")
    assert run(project, dataset, "popularity", recommendations={}, promote=policy).success
    result = run(project, dataset, "popularity", "ease", recommendations={}, promote={**policy, "when": "better"})
    assert result.success, failure(result)
    assert project.metadata("toy/auto_promoted")["metric"] == "recall@20"
    live = Versions(project.root / "data/07_promoted/toy/auto").current()
    assert live is not None
    assert live.about["system"] == "ease"


@pytest.mark.parametrize("system", ["complex", "conve", "knn"])
def test_links(project: Project, monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    """Whatever is chosen has the declared checks."""
    short = {system: {"training": {"epochs": 2}}} if system != "knn" else {}
    monkeypatch.setattr(registry, "presets", lambda name, values=None: {"none": short.get(name, {})})
    monkeypatch.setattr(registry, "choose_preset", lambda *machine: ("none", ""))
    result = run(project, project.dataset(), system, links={"k": 3, "csv": False})
    assert result.success, failure(result)
    assert project.metadata("toy/auto_model")["system"] == system
    assert {"beats_baselines", "queries_decide"} <= set(checks(result))


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({}, "what it predicts"),
        ({"links": {}, "recommendations": {}}, "not both"),
        ({"links": {}, "settings": {"budget": "soon"}}, "10min"),
        ({"links": {}, "settings": {"model": {}}}, "model"),
        ({"links": {}, "influence": {}}, "influence: auto has no such asset"),
        ({"links": {}, "publish": "x.csv"}, "vectors"),
    ],
)
def test_mistakes_are_one_sentence(project: Project, attributes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        project.model(system="auto", **attributes)
    assert not (Path(project.root) / "data" / "06_models").exists()
