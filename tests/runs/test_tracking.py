"""A tracker beside the run's files: what it gets, that it stops nothing, and that nothing is lost with its server."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.errors import GraphmillError, SettingsError
from graphmill.runs import tracker as mirror
from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import merge, parse_settings
from graphmill.runs.tracker import Point
from graphmill.runs.train import train
from tests.training.cases import CASES, recommender_graph

CASE = CASES["mf"]


class Remembered:
    """MLflow's place in memory, since the real one takes seconds a run (below). ``lost``: its server is away."""

    lost: ClassVar[bool] = False
    runs: ClassVar[dict[str, dict[str, Any]]] = {}
    points: ClassVar[list[Point]] = []
    finished: ClassVar[list[Mapping[str, Any]]] = []

    def __init__(self, settings: Any) -> None:
        self._there()

    def _there(self) -> None:
        if type(self).lost:
            raise ConnectionError("nobody answers")

    def start(self, key: str, name: str, parameters: Mapping[str, Any], tags: Mapping[str, str]) -> str:
        self._there()
        self.runs[key] = {"name": name, "parameters": parameters, "tags": tags}
        return key

    def log(self, run: str, points: Sequence[Point]) -> None:
        self._there()
        self.points.extend(points)

    def finish(self, run: str, figures: Mapping[str, float], tags: Mapping[str, str], card: str) -> None:
        self._there()
        self.finished.append({"figures": figures, "tags": tags, "card": card})

    def alias(self, model: str, alias: str, version: str, run: str, tags: Mapping[str, str]) -> None:
        self._there()


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "MlflowTracker", Remembered)
    monkeypatch.setattr("graphmill.errors.find_spec", lambda name: name)
    for name, empty in (("lost", False), ("runs", {}), ("points", []), ("finished", [])):
        monkeypatch.setattr(Remembered, name, empty)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "EVERY_SECONDS", 0.01)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(recommender_graph(tmp_path_factory.mktemp("tracking") / "06_models" / "toy" / "graph").path)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("mlflow")
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


def values(graph: str, epochs: int = 4, **tracker: Any) -> dict[str, Any]:
    settings = {"writer": "mlflow", **tracker}
    common = {"system": "mf", "data": graph, "preset": "none", "tracker": settings}
    return merge(merge(CASE.settings, common), {"training": {"epochs": epochs, "patience_epochs": 0}})


def epochs_of(name: str) -> list[int]:
    return [point.epoch for point in Remembered.points if point.name == name]


@pytest.mark.usefixtures("in_memory")
def test_parameters_curves_and_results_are_sent_once(graph: str, tmp_path: Path) -> None:
    run = Path(train(values(graph), "test", root=str(tmp_path))["run_dir"])
    (about,) = Remembered.runs.values()
    assert about["parameters"]["model.embedding_dim"] == 8
    assert about["tags"]["graphmill.run_dir"] == str(run)
    assert not [name for name in about["parameters"] if name.startswith("tracker")]
    assert epochs_of(Remembered.points[0].name) == [1, 2, 3, 4]
    assert "final/valid_recall@5" in Remembered.finished[-1]["figures"]
    # A run that goes on is the same run in the tracker, and what it has is not sent again.
    train(values(graph, epochs=6), "test", root=str(tmp_path))
    assert epochs_of(Remembered.points[0].name) == [1, 2, 3, 4, 5, 6]
    assert len(Remembered.runs) == 1
    # The export is told of by reference, and the card as it is.
    export_run(restore(run))
    last = Remembered.finished[-1]
    assert str(run / "embeddings" / "embeddings.parquet") in last["tags"]["artifact.embeddings.parquet"]
    assert last["card"] == (run / mirror.CARD).read_text(encoding="utf-8")


@pytest.mark.usefixtures("in_memory")
def test_a_server_that_is_lost_stops_nothing_and_loses_nothing(graph: str, tmp_path: Path) -> None:
    Remembered.lost = True
    notes: list[str] = []
    with mirror.mirrored(tmp_path, parse_settings(values(graph), "test").tracker, notes.append):  # type: ignore[attr-defined]
        pass
    assert "nobody answers" in notes[0]
    assert "`graphmill track" in notes[0]
    result = train(values(graph), "test", root=str(tmp_path))
    assert result["epochs_done"] == 4
    assert not Remembered.points
    Remembered.lost = False
    run = Path(result["run_dir"])
    assert mirror.send(run, mirror.tracker_of(run)) == 4
    assert mirror.send(run, mirror.tracker_of(run)) == 0
    assert epochs_of(Remembered.points[0].name) == [1, 2, 3, 4]


@pytest.mark.usefixtures("in_memory")
def test_a_server_that_goes_while_it_is_sent_to_gets_the_rest(graph: str, tmp_path: Path) -> None:
    result = train(values(graph, writer="none"), "test", root=str(tmp_path))
    run = Path(result["run_dir"])
    settings = parse_settings(values(graph), "test").tracker  # type: ignore[attr-defined]

    class Going(Remembered):
        def log(self, run: str, points: Sequence[Point]) -> None:
            raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        mirror.send(run, settings, Going(settings))
    assert mirror.send(run, settings, Remembered(settings)) == 4
    assert len(Remembered.runs) == 1


def test_a_server_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    forever = threading.Event()
    monkeypatch.setattr(mirror, "MlflowTracker", lambda settings: forever.wait())
    settings = {"tracker": {"writer": "mlflow", "address": "http://localhost:1"}}
    (tmp_path / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    assert mirror.send_soon(tmp_path, 0.05) == "no answer within 0.05 s"
    forever.set()


def test_mlflow_has_the_runs_with_their_curves(
    graph: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setattr(mirror, "END_SECONDS", 600.0)  # a busy machine may need longer than a training waits
    root = tmp_path / "06_models" / "toy" / "mf"
    wanted = values(graph, writer="mlflow", address=database, experiment="toy")
    runs = [train(merge(wanted, {"training": {"seed": seed}}), "test", root=str(root))["run_dir"] for seed in (0, 1)]
    client = MlflowClient(database)
    experiment = client.get_experiment_by_name("toy")
    mlflow_runs = client.search_runs([experiment.experiment_id])
    assert len(mlflow_runs) == 2
    first = next(run for run in mlflow_runs if run.data.tags["graphmill.run_dir"] == runs[0])
    assert first.info.status == "FINISHED"
    assert first.data.params["training.epochs"] == "4"
    assert "final/test_recall_at_5" in first.data.metrics
    curve = client.get_metric_history(first.info.run_id, "valid/recall_at_5")
    assert [point.step for point in curve] == [2, 4]


def test_an_mlflow_server_that_is_not_there(
    graph: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    wanted = values(graph, writer="mlflow", address="http://127.0.0.1:9")
    run = train(wanted, "test", root=str(tmp_path))["run_dir"]
    assert any("tracker: " in log.read_text() for log in Path(run).rglob("*.log"))
    refused = CliRunner().invoke(app, ["track", run])
    assert "could not be sent to http://127.0.0.1:9" in str(refused.exception)
    process = CliRunner().invoke(app, ["track", run, "--set", f"tracker.address={database}"])
    assert (process.exit_code, "4 epochs sent" in process.output) == (0, True)
    assert json.loads((Path(run) / mirror.FILE).read_text())["epoch"] == 4


@pytest.mark.parametrize(
    ("tracker", "sentence"),
    [
        ({"writer": "neptune"}, "tracker.writer"),
        ({"writer": "mlflow", "address": "localhost:5000"}, "write http://HOST:PORT or sqlite:///FILE"),
        ({"writer": "mlflow", "address": "http://me:secret@host"}, "set MLFLOW_TRACKING_USERNAME"),
    ],
)
def test_mistakes_are_found_before_the_training(
    graph: str, tmp_path: Path, tracker: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        train(values(graph, **tracker), "test", root=str(tmp_path))
    assert sentence in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_a_missing_extra_is_one_sentence(graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.errors.find_spec", lambda name: None)
    with pytest.raises(GraphmillError, match=r'pip install "graphmill\[tracking\]"'):
        train(values(graph, writer="mlflow", address="http://127.0.0.1:9"), "test", root=str(tmp_path))
