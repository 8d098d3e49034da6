"""Promotion through Dagster, with real runs: the asset decides, commands and asset see the same versions."""

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from graphmill.components.promoted_asset import failed_checks, gating_checks
from graphmill.errors import ResourceError, SettingsError
from graphmill.orchestration import promotion
from graphmill.orchestration.resources import AcceleratorResource
from graphmill.promotion.promote import roll_back
from graphmill.promotion.versions import Versions
from tests.components.conftest import Project, WorkerHere, checks

SMALL: dict[str, Any] = {
    "preset": "none",
    "model": {"embedding_dim": 8, "hidden_dim": 8, "num_heads": 2},
    "training": {"epochs": 2, "steps_per_epoch": 2},
}


class Chain:
    """A project with a dataset and a small HGT, and the policy as it is changed from run to run."""

    def __init__(self, project: Project) -> None:
        self.project, self.worker = project, WorkerHere()
        self.worker.modes.clear()
        self.versions = Versions(project.root / "data" / "07_promoted" / "toy" / "hgt")
        assert project.materialize(project.dataset()).success

    def run(self, *parts: str, settings: dict[str, Any] | None = None, **promote: Any) -> dg.ExecuteInProcessResult:
        only = " or ".join(
            f'key:"toy/hgt_{part}"'
            for part in parts or ("model", "embeddings", "validation", "ranking", "drift", "promoted")
        )
        values = {**SMALL, "training": {**SMALL["training"], **(settings or {})}}
        definitions = self.project.model(settings=values, promote=promote)
        return self.project.materialize(self.project.dataset(), definitions, only=only, worker=self.worker)

    @property
    def metadata(self) -> dict[str, Any]:
        return self.project.metadata("toy/hgt_promoted")

    @property
    def data_version(self) -> str:
        return self.project.data_version("toy/hgt_promoted")


@pytest.fixture
def chain(project: Project) -> Chain:
    return Chain(project)


def test_the_policys_decisions_from_the_first_run_to_a_rollback(chain: Chain) -> None:
    result = chain.run()  # manual is the default: nothing goes live, and no process is started to say so
    assert result.success
    assert (chain.metadata["decision"], chain.data_version) == ("waits", "none")
    assert chain.project.metadata("toy/hgt_drift")["finding"] == "there is no live version to compare with"
    assert "promote" not in chain.worker.modes
    assert "rank" in chain.worker.modes
    for part in ("validation", "ranking"):
        page = chain.project.metadata(f"toy/hgt_{part}")
        assert (str(page["card"])[-8:], "report_page" in page) == ("/card.md", True), "a person finds the whole run"

    result = chain.run("promoted", when="better")
    assert result.success
    assert chain.metadata["decision"] == "kept"
    assert "did not pass" in chain.metadata["reason"]
    failing = [name for name in failed_checks(chain.project.instance, gating_checks_of(chain)) if "(" not in name]
    assert failing
    assert all(name in chain.metadata["reason"] for name in failing)

    # The models of other seeds may fail other checks.
    policy = {"when": "better", "except_checks": sorted({check.name for check in gating_checks_of(chain)})}
    assert chain.run("promoted", **policy).success
    first = chain.versions.current()
    assert first is not None
    assert (chain.metadata["decision"], chain.metadata["live_version"], chain.data_version) == (
        "promoted",
        first.name,
        first.name,
    )
    assert chain.project.value("toy/hgt_promoted")["version"] == first.name
    assert chain.versions.history()[-1].by.startswith("Dagster run ")

    # Another seed is not surely better: a success, and the same data version.
    result = chain.run(settings={"seed": 1}, **policy)
    assert result.success
    assert chain.metadata["decision"] == "kept"
    assert chain.data_version == first.name
    assert chain.metadata["low"] < chain.metadata["difference"] < chain.metadata["high"]
    assert "validation, the same" in chain.metadata["figures"]
    assert set(checks(result)) >= {"version_is_whole", "not_worse_than_the_live_one"}

    # Another seed of the same settings, beside the live version.
    drift = chain.project.metadata("toy/hgt_drift")
    assert drift["against"] == first.name
    assert 0 < drift["changed"] <= 1
    assert drift["finding"] in ("moved_little", "moved", "unchanged", "rotation_only")
    assert "node pairs" in drift["graph"]
    assert f"Compared with {first.name}." in drift["summary"]
    assert chain.metadata["summary"].startswith("**Kept**: ")
    assert {"neighbours_stayed", "data_not_lost"} <= set(checks(result))
    kept = chain.run("promoted", **policy, max_drift=1e-6)
    assert kept.success
    assert "promote.max_drift = 1e-06" in chain.metadata["reason"]

    # What is at most a little worse goes live if the policy says so.
    assert chain.run(settings={"seed": 1}, **{**policy, "min_gain": -1.0}).success
    second = chain.versions.current()
    assert second is not None
    assert (chain.data_version, second.number) == (second.name, 2)

    answer = roll_back(chain.versions, by="me")
    event = {
        "dataset": "toy",
        "model": "hgt",
        "by": "me",
        "decision": {**answer, "outcome": "rolled back", "champion": answer["before"]},
    }
    promotion.record(chain.project.instance, event)
    assert (chain.metadata["decision"], chain.data_version) == ("rolled back", first.name)
    assert chain.run("promoted", **{**policy, "min_gain": -1.0}).success
    assert "was rolled back" in chain.metadata["reason"]
    assert chain.data_version == first.name

    # A damaged version is found, and nothing downstream would run on it.
    (first.path / "embeddings.parquet").write_bytes(b"")
    result = chain.run("promoted")
    assert not checks(result)["version_is_whole"].passed


def test_a_condition_and_the_schedules_job_come_to_the_assets_own_decision(chain: Chain) -> None:
    """``eager()`` asks for what is downstream of failed checks too: the decision is the asset's, whoever asks."""
    key = dg.AssetKey(["toy", "hgt_promoted"])
    assert chain.run("model", "embeddings", "links", "validation", "ranking", "drift").success
    assert failed_checks(chain.project.instance, gating_checks_of(chain))
    promote = {"when": "checks_pass"}
    parts = [
        chain.project.dataset(),
        chain.project.model(settings=SMALL, promote=promote, schedule={"cron": "0 3 * * *"}),
    ]

    def eager(spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(automation_condition=dg.AutomationCondition.eager()) if spec.key == key else spec

    needed = {"accelerator": AcceleratorResource(device="cpu"), "worker": chain.worker}
    whole = dg.Definitions.merge(*parts, dg.Definitions(resources=needed))
    whole = whole.map_asset_specs(func=eager)
    first = dg.evaluate_automation_conditions(whole, chain.project.instance)
    assert chain.run("validation").success
    request = dg.evaluate_automation_conditions(whole, chain.project.instance, cursor=first.cursor)
    assert request.get_num_requested(key) == 1
    assert chain.run("promoted", **promote).success
    assert chain.metadata["decision"] == "kept"
    assert "did not pass" in chain.metadata["reason"]
    assert chain.versions.current() is None

    # One that waits for checks holds back before the asset is asked at all.
    passed = dg.AutomationCondition.all_checks_match(dg.AutomationCondition.check_passed())
    waits = dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_match(passed)
    patient = dg.Definitions.merge(*parts, dg.Definitions(resources=needed)).map_asset_specs(
        func=lambda spec: spec.replace_attributes(automation_condition=waits) if spec.key == key else spec
    )
    first = dg.evaluate_automation_conditions(patient, chain.project.instance)
    assert chain.run("validation").success
    request = dg.evaluate_automation_conditions(patient, chain.project.instance, cursor=first.cursor)
    assert request.get_num_requested(key) == 0

    (schedule,) = whole.schedules or ()
    job = whole.resolve_job_def(schedule.job_name)  # type: ignore[union-attr]
    result = job.execute_in_process(instance=chain.project.instance, raise_on_error=False)
    assert key in {event.asset_key for event in result.all_events if event.is_step_materialization}
    assert chain.metadata["decision"] == "kept"
    assert chain.versions.current() is None


def test_a_check_that_was_not_evaluated_has_not_passed(chain: Chain) -> None:
    missing = failed_checks(chain.project.instance, gating_checks_of(chain))
    assert missing
    assert all(name.endswith("(not evaluated)") for name in missing)


def test_a_validation_of_another_run_does_not_vouch_for_this_one(chain: Chain) -> None:
    assert chain.run().success
    chain.run("model", "embeddings", settings={"seed": 2})
    assert chain.run("promoted", settings={"seed": 2}, when="checks_pass").success
    assert "validation (of another run)" in chain.metadata["reason"]


def test_a_policy_that_cannot_be_is_one_sentence(project: Project) -> None:
    for promote, sentence in (
        ({"when": "sometimes"}, "promote: when = 'sometimes'"),
        ({"except_checks": ["finit"]}, "there is no check 'finit' .known: finite, shape"),
        ({"keep": 0}, "promote: keep = 0"),
    ):
        with pytest.raises(SettingsError, match=sentence):
            project.model(promote=promote)


def gating_checks_of(chain: Chain) -> list[dg.AssetCheckKey]:
    from graphmill.components import EmbeddingModel

    return gating_checks(EmbeddingModel(dataset="toy", system="hgt").plan(chain.project.context))


def test_the_csv_is_published_to_a_file_whole_or_not_at_all(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphmill import atomic_files
    from graphmill.components.embeddings_asset import _publish

    (project.root / "a.csv").write_text("node_index\n")
    plan: Any = SimpleNamespace(root=project.root, publish="out/toy.csv")
    assert _publish(plan, {"csv": "a.csv"}) == "out/toy.csv"
    target = project.root / "out" / "toy.csv"
    assert target.read_text() == "node_index\n"

    def broken(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    (project.root / "a.csv").write_text("newer\n")
    monkeypatch.setattr(atomic_files.shutil, "copyfileobj", broken)
    with pytest.raises(ResourceError, match=r"cannot be written: No space left on device|No space left"):
        _publish(plan, {"csv": "a.csv"})
    assert target.read_text() == "node_index\n"
    assert [path.name for path in target.parent.iterdir()] == ["toy.csv"]


def test_a_url_to_publish_to_is_refused_without_its_token(project: Project) -> None:
    with pytest.raises(SettingsError, match=r"publish: https://host/toy\.csv is a URL; name a file") as raised:
        project.model(publish="https://host/toy.csv?token=abc")
    assert "abc" not in str(raised.value)
