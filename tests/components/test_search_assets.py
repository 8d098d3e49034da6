"""A search in Dagster: a trial is a partition, the sensor asks for trials, what was killed goes on, validation decides."""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import psutil
import pytest
import yaml

from graphmill.errors import GraphmillError, SettingsError
from graphmill.orchestration import searching
from graphmill.orchestration.io_managers import ArtifactStore
from graphmill.orchestration.pipes import WorkerClient, WorkerReport
from graphmill.orchestration.resources import AcceleratorResource
from graphmill.promotion.promote import promote_run, versions_folder
from graphmill.runs.resolve import read_settings
from graphmill.runs.train import train
from graphmill.search import leaderboard as leaderboard_module
from graphmill.search import study as study_module
from graphmill.search.study import open_search
from graphmill.training.metrics_log import MetricsLog
from graphmill.training.signals import StopRequest
from graphmill.worker.modes import run_mode
from tests.components.conftest import Project, checks, failure

pytest.importorskip("optuna")

SETTINGS: dict[str, Any] = {
    "preset": "none",
    "model": {"embedding_dim": 8},
    "training": {"epochs": 3, "learning_rate": 0.01},
    "acceleration": {"batch_size": 64},
}
SPACE = {"training.learning_rate": {"low": 0.001, "high": 0.1, "log": True}, "model.embedding_dim": [4, 8]}
SOURCE = {"name": "views", "format": "sequence", "path": "data/views.tsv"}


def write_interactions(path: Path, users: int = 40, items: int = 30) -> None:
    """Two crowds, each with its own half of the items."""
    rng = np.random.default_rng(0)
    lines = []
    for user in range(users):
        liked = rng.permutation(items // 2)[:8] + (user % 2) * (items // 2)
        lines += [f"u{user}\ti{item}\t{1000 + 60 * step}" for step, item in enumerate(liked)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


STARTED: list[dict[str, Any]] = []
"""What each worker was to be started with, beside its job."""


class WorkerHere(WorkerClient):
    """Does the worker's job in this process."""

    def run(
        self, context: dg.AssetExecutionContext, *, extras: Mapping[str, Any], cwd: str, **how: Any
    ) -> WorkerReport:
        STARTED.append({"extras": extras, **how})
        with contextlib.chdir(cwd), StopRequest() as stop:
            try:
                return WorkerReport(result=run_mode(extras, [], stop))
            except GraphmillError as error:
                raise dg.Failure(str(error), allow_retries=False) from None


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Trainings happen in this process; the settings of each."""
    made: list[dict[str, Any]] = []

    def run(
        values: Mapping[str, Any], where: str, root: Path, tell: Callable[..., None], stop: Any, **more: Any
    ) -> Any:
        made.append(dict(values))
        result = train(values, where, root=str(root), **more)
        for record in MetricsLog(Path(result["run_dir"]) / "metrics.jsonl").read("epoch"):
            tell(record)
        return result, ""

    monkeypatch.setattr(study_module, "run_process", run)
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose graph is there."""
    project = Project(tmp_path_factory.mktemp("built"))
    write_interactions(project.root / "data" / "views.tsv")
    assert project.materialize(project.dataset(sources=[SOURCE])).success
    return project.root


@pytest.fixture
def project(built: Path, tmp_path: Path) -> Project:
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return Project(tmp_path)


class Searched:
    """A project with interactions, MF, and a search; its instance, sensor and assets."""

    def __init__(
        self, project: Project, settings: dict[str, Any] = SETTINGS, launcher: Any = None, **search: Any
    ) -> None:
        self.project = project
        # A sensor's tick resolves partitions in an instance that is kept in files only.
        (project.root / "home").mkdir()
        project.instance = dg.DagsterInstance.local_temp(str(project.root / "home"))
        asked = {"space": SPACE, "sampler": "random", "trials": 2, "prune": False, **search}
        place = {} if launcher is None else {"launcher": launcher}
        self.own = project.model(system="mf", settings=settings, search=asked, **place)
        self.dataset = project.dataset(sources=[SOURCE])
        self.definitions = dg.Definitions.merge(
            dg.Definitions(assets=self.dataset.assets),
            dg.Definitions(assets=self.own.assets, jobs=self.own.jobs, sensors=self.own.sensors),
            dg.Definitions(
                resources={
                    "graphmill_store": ArtifactStore(base_path=str(project.root / "data" / "06_models")),
                    "accelerator": AcceleratorResource(device="cpu"),
                    "worker": WorkerHere(),
                }
            ),
        )

    @property
    def instance(self) -> dg.DagsterInstance:
        return self.project.instance

    def tick(self) -> dg.SensorResult:
        (sensor,) = (sensor for sensor in self.own.sensors or () if sensor.name == "toy_mf_search")
        assert sensor.default_status == dg.DefaultSensorStatus.STOPPED
        # As the daemon makes it: build_sensor_context() knows no partitions that are only asked for.
        context = dg.SensorEvaluationContext(
            instance_ref=self.instance.get_ref(),
            last_tick_completion_time=None,
            last_run_key=None,
            cursor=None,
            log_key=None,
            repository_name=None,
            repository_def=self.definitions.get_repository_def(),
            instance=self.instance,
        )
        with context:
            found = sensor.evaluate_tick(context)
        for request in found.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        return found

    def launch(self, request: Any) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_job_def(request.job_name)
        return job.execute_in_process(
            partition_key=request.partition_key, instance=self.instance, tags=request.tags, raise_on_error=False
        )

    def all(self) -> None:
        """Ticks and runs until the leaderboard is made."""
        for _ in range(10):
            for request in (found := self.tick()).run_requests or ():
                result = self.launch(request)
                assert result.success, failure(result)
                if request.job_name.endswith("leaderboard"):
                    self.board = result
                    return
            assert found.run_requests, found.skip_message
        raise AssertionError("no end")


def test_the_sensor_makes_every_trial_and_then_the_leaderboard(
    project: Project, trained: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaderboard_module, "LEAST_TRIALS", 2)  # so that two trials say what mattered
    searched = Searched(project, seeds=2)
    first = searched.tick()
    (request,) = first.run_requests
    assert request.job_name == "toy_mf_trial"
    key = request.partition_key
    assert key in searched.instance.get_dynamic_partitions("toy_mf_trials")
    (file,) = project.root.glob(f"data/06_models/toy/mf/search-*/trials/{key}.yaml")
    written = read_settings(file)
    # The same look again asks for the same run, and for no other trial: the pool has one place.
    assert [each.run_key for each in searched.tick().run_requests] == [request.run_key]

    searched.all()
    assert len(trained) == 4
    assert trained[0]["training"]["learning_rate"] == written["training"]["learning_rate"]
    assert {values["training"]["seed"] for values in trained} == {0, 1}
    trial = project.metadata("toy/mf_trials")
    assert trial["state"] == "finished"
    assert trial["promote"].startswith("```\ngraphmill promote data/06_models/toy/mf/search-")

    board = project.metadata("toy/mf_leaderboard")
    assert (board["trials"], board["failed"], board["ended_early"]) == (2, 0, 0)
    (kept,) = project.root.glob("data/06_models/toy/mf/search-*/leaderboard.json")
    found = json.loads(kept.read_text())
    assert board["seconds"] == pytest.approx(sum(e["seconds"] for e in found["entries"]), rel=1e-3)
    assert found["importance"].keys() == SPACE.keys()
    assert all(f"| {path} | " in board["importance"] for path in SPACE)
    assert "data:image/png;base64," in board["parallel_coordinates"]
    assert "95 %" in board["trials_by_validation"].records[0].data
    assert "popularity" in board["winner_on_the_test"]
    assert set(checks(searched.board)) == {"trials_trained", "winner_is_apart"}
    # What is pasted into the component is what the winner was trained with.
    pasted = yaml.safe_load(board["settings"].removeprefix("```yaml\n").removesuffix("```"))
    assert "search" not in pasted["settings"]
    project.model(system="mf", settings=pasted["settings"])
    # Nothing more is asked for; and the leaderboard is asked for under the same run key.
    assert [each.run_key for each in searched.tick().run_requests] == [f"{file.parents[1].name}-2"]

    # The line that promotes: a trial is a run directory of this model, exported when it goes live.
    with contextlib.chdir(project.root):
        run = board["promote"].split()[-2]
        store = versions_folder(run)
        assert store.path == project.root / "data/07_promoted/toy/mf"
        assert promote_run(run, store, by="me", person=True, force=True)["outcome"] == "promoted"
    assert (project.root / "data/07_promoted/toy/mf/current/embeddings.parquet").is_file()


class TestWhereATrialRuns:
    def launched(self, searched: Searched) -> tuple[dict[str, Any], dg.ExecuteInProcessResult]:
        STARTED.clear()
        result = searched.launch(searched.tick().run_requests[0])
        return STARTED[0], result

    def test_it_is_where_the_models_trainings_run(self, project: Project, trained: list[Any]) -> None:
        place = {"kind": "ray", "address": "http://head:8265", "cpus": 2, "gpus": 1}
        settings = {"acceleration": {**SETTINGS["acceleration"], "processes": 3}}
        searched = Searched(project, settings={**SETTINGS, **settings}, launcher=place, trials=1)
        started, result = self.launched(searched)
        assert result.success, failure(result)
        # The worker starts the training's three processes itself, so its one job asks for all of them.
        assert (started["launcher"].kind, started["launcher"].cpus, started["launcher"].gpus) == ("ray", 6, 3)
        assert project.metadata("toy/mf_trials")["launcher"] == "ray"

    def test_without_a_launcher_it_is_here(self, project: Project, trained: list[Any]) -> None:
        started, _ = self.launched(Searched(project, trials=1))
        assert started["launcher"].kind == "local"

    @pytest.mark.parametrize(("kind", "told"), [("ray", False), ("slurm", True)])
    def test_the_address_of_the_study_is_told_where_nobody_else_reads_it(
        self, kind: str, told: bool, project: Project, trained: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        searched = Searched(project, launcher={"kind": kind}, trials=1)
        request = searched.tick().run_requests[0]
        monkeypatch.setattr("graphmill.components.search_assets.studies_address", lambda instance: "sqlite:///here.db")
        STARTED.clear()
        result = searched.launch(request)
        assert ("GRAPHMILL_STUDIES" in STARTED[0]["environment"]) == told
        assert "set GRAPHMILL_STUDIES there (with launcher: k8s by one of launcher.secrets" in failure(result)

    def test_a_process_on_a_machine_that_was_lost_is_in_nobodys_way(self, project: Project, trained: list[Any]) -> None:
        searched = Searched(project, trials=1)
        request = searched.tick().run_requests[0]
        values = {"system": "mf", "data": "data/06_models/toy/graph", **SETTINGS}
        asked = {"space": SPACE, "sampler": "random", "trials": 1, "prune": False}
        search = open_search({**values, "search": asked}, "here", "data/06_models/toy/mf", base=project.root)
        study = search.study()
        study._storage.set_trial_user_attr(study.get_trials()[0]._trial_id, "process", [1, 0.0, "a node that is gone"])
        result = searched.launch(request)
        assert result.success, failure(result)


def test_a_trial_whose_run_was_killed_is_launched_again_and_given_up_after_three(
    project: Project, trained: list[Any]
) -> None:
    searched = Searched(project, trials=1)
    (request,) = searched.tick().run_requests
    key = request.partition_key
    for attempt in range(searching.ATTEMPTS):
        (again,) = searched.tick().run_requests
        assert again.run_key == (f"{key}-{attempt}" if attempt else key)
        run = searched.instance.create_run_for_job(
            searched.definitions.resolve_job_def("toy_mf_trial"), tags={searching.PARTITION: key}
        )
        assert searched.tick().skip_message == "0 trials have ended, 1 are under way"
        searched.instance.report_run_failed(run, "killed")
    assert searched.tick().run_requests[0].job_name == "toy_mf_leaderboard"
    result = searched.launch(searched.tick().run_requests[0])
    assert "no trial of" in failure(result)


def test_a_run_that_a_person_cancels_ends_its_trial(project: Project) -> None:
    searched = Searched(project, trials=2)
    (request,) = searched.tick().run_requests
    run = searched.instance.create_run_for_job(
        searched.definitions.resolve_job_def("toy_mf_trial"), tags={searching.PARTITION: request.partition_key}
    )
    searched.instance.report_run_canceled(run)
    (other,) = searched.tick().run_requests
    assert other.partition_key != request.partition_key


def test_no_more_trials_are_asked_for_than_the_pool_has_places(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = Searched(project, trials=9)
    monkeypatch.setattr(searching, "places", lambda instance, pool: 3)
    assert len(searched.tick().run_requests) == 3
    monkeypatch.setattr(searching, "places", lambda instance, pool: 4)
    assert len(searched.tick().run_requests) == 4


def test_places_are_the_pools_limit(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("concurrency: {pools: {default_limit: 2}}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert searching.places(instance, "accelerator") == 2
        instance.event_log_storage.set_concurrency_slots("accelerator", 5)
        assert searching.places(instance, "accelerator") == 5
    assert searching.places(dg.DagsterInstance.ephemeral(), "accelerator") == 1


def test_before_there_is_a_graph_the_sensor_says_so(project: Project) -> None:
    searched = Searched(project)
    (project.root / "data/06_models/toy/graph/manifest.json").unlink()
    assert searched.tick().skip_message == "toy/graph does not exist yet: materialize it"


def test_a_partition_that_nobody_asked_for_is_one_sentence(project: Project) -> None:
    searched = Searched(project)
    searched.instance.add_dynamic_partitions("toy_mf_trials", ["mine"])
    job = searched.definitions.resolve_job_def("toy_mf_trial")
    result = job.execute_in_process(partition_key="mine", instance=searched.instance, raise_on_error=False)
    assert "nobody asked for a trial 'mine' of this search" in failure(result)


def test_a_worker_that_outlived_its_run_is_stopped_first(project: Project) -> None:
    searched = Searched(project, trials=1)
    (request,) = searched.tick().run_requests
    run = searched.instance.create_run_for_job(
        searched.definitions.resolve_job_def("toy_mf_trial"), tags={searching.PARTITION: request.partition_key}
    )
    values = {"system": "mf", "data": "data/06_models/toy/graph", **SETTINGS}
    asked = {"space": SPACE, "sampler": "random", "trials": 1, "prune": False}
    search = open_search({**values, "search": asked}, "here", "data/06_models/toy/mf", base=project.root)
    study = search.study()
    with subprocess.Popen(["sleep", "100"]) as left:
        process = [left.pid, psutil.Process(left.pid).create_time(), socket.gethostname()]
        frozen = study.get_trials()[0]
        study._storage.set_trial_user_attr(frozen._trial_id, "process", process)
        searched.instance.report_run_failed(run, "its process was killed")
        assert searched.tick().skip_message == "0 trials have ended, 1 are under way"
        assert left.wait(10) == -signal.SIGTERM
    (again,) = searched.tick().run_requests
    assert again.run_key == f"{request.partition_key}-1"


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        (
            {"space": {"training.rate": [1, 2]}},
            "toy/mf: search.space.training.rate is not a setting of this system",
        ),
        ({"space": {"training.epochs": [1, 2]}}, "search.space.training.epochs cannot be searched"),
        ({"space": SPACE, "trails": 3}, "search: unknown setting 'trails'"),
        ({"space": SPACE, "sampler": "grid"}, "sampler grid needs a list of choices"),
        ({"trials": 3}, "search: space"),
    ],
)
def test_mistakes_in_the_section_are_found_when_the_project_loads(
    project: Project, search: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingsError) as told:
        project.model(system="mf", settings=SETTINGS, search=search)
    assert sentence in str(told.value)


def test_trials_of_other_data_are_another_search(project: Project) -> None:
    searched = Searched(project)
    values = {"system": "mf", "data": "data/06_models/toy/graph", **SETTINGS, "search": {"space": SPACE}}
    before = open_search(values, "here", base=project.root).folder
    write_interactions(project.root / "data" / "views.tsv", users=30)
    assert project.materialize(searched.dataset).success
    assert open_search(values, "here", base=project.root).folder != before
