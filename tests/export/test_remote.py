"""Copies on an object store (S3, by moto's server): whole or not at all, the pointer last, readable again, one sentence."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import graphmill
from graphmill.errors import InputError, ResourceError, SettingsError
from graphmill.export import remote
from graphmill.export.remote import copy_file, copy_folder, fetched, require_target
from graphmill.ingest import source_files
from graphmill.promotion.policy import PromotionSettings
from graphmill.promotion.promote import promote_run, roll_back
from graphmill.promotion.versions import Versions
from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from tests.components.conftest import write_kg
from tests.training.cases import CASES, recommender_graph

BUCKET = "s3://graphmill-test"


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """The bucket's file system."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with contextlib.redirect_stdout(None):
        server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        system = fsspec.filesystem("s3")
        system.mkdir("graphmill-test")
        yield system
    server.stop()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, s3: Any) -> list[Path]:
    """Two runs of ``toy/mf``, exported, whose directories are copied."""
    folder = tmp_path_factory.mktemp("project") / "data" / "06_models" / "toy"
    graph, out = recommender_graph(folder / "graph"), []
    for seed in (0, 1):
        values = merge(CASES["mf"].settings, {"system": "mf", "data": str(graph.path), "preset": "none"})
        more = {"training": {"seed": seed}, "export": {"csv": False, "copy_to": f"{BUCKET}/runs"}}
        path = Path(train(merge(values, more), "test", root=str(folder / "mf"))["run_dir"])
        export_run(restore(path))
        out.append(path)
    return out


def test_a_run_directory_is_copied_when_it_is_exported(s3: Any, runs: list[Path]) -> None:
    there = f"graphmill-test/runs/toy/mf/{runs[0].name}"
    names = {name.removeprefix(f"{there}/") for name in s3.find(there)}
    own = {str(path.relative_to(runs[0])) for path in runs[0].rglob("*") if path.is_file()}
    assert {"report.json", "settings.json", "metrics.jsonl", "embeddings/embeddings.parquet"} <= names <= own
    assert not [name for name in names if name.endswith((".lock", ".partial", ".part"))]


def test_promoted_versions_follow_promotions_and_rollbacks(
    s3: Any, runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(remote.CACHE_VARIABLE, str(tmp_path / "cache"))
    store = Versions(tmp_path / "07_promoted" / "toy" / "mf")
    settings = PromotionSettings(keep=1, copy_to=f"{BUCKET}/promoted")
    for run in runs:
        found = promote_run(run, store, settings, by="me", person=True, force=True)
        assert (found["outcome"], found["copy"]) == ("promoted", "")
        pointer = json.loads(s3.cat_file("graphmill-test/promoted/toy/mf/current.json"))
        assert pointer["version"] == found["version"]
        live = graphmill.load(f"{BUCKET}/promoted/toy/mf/current")
        assert live.to_pandas().equals(graphmill.load(store.path / "current").to_pandas())
    back = roll_back(store, by="me")
    assert back["copy"] == ""
    pointer = json.loads(s3.cat_file("graphmill-test/promoted/toy/mf/current.json"))
    assert pointer["version"] == back["version"]


def test_a_store_that_is_away_stops_no_promotion_and_is_caught_up_with(
    s3: Any, runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Versions(tmp_path / "07_promoted" / "away" / "mf")
    settings = PromotionSettings(copy_to=f"{BUCKET}/promoted")
    with monkeypatch.context() as away:
        away.setattr(remote, "copy_file", _refuse)
        found = promote_run(runs[0], store, settings, by="me", person=True, force=True)
    assert found["outcome"] == "promoted"
    assert "cannot be written" in found["copy"]
    assert not s3.exists("graphmill-test/promoted/away/mf/current.json")
    again = promote_run(runs[0], store, settings, by="me", person=True, force=True)
    assert (again["outcome"], again["copy"]) == ("kept", "")
    assert s3.exists("graphmill-test/promoted/away/mf/current.json")


def _refuse(*_: Any) -> None:
    raise ResourceError("s3://… cannot be written (EndpointConnectionError)")


def test_a_damaged_version_is_not_loaded(s3: Any, runs: list[Path], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv(remote.CACHE_VARIABLE, str(tmp_path / "cache"))
    store = Versions(tmp_path / "07_promoted" / "hurt" / "mf")
    promote_run(runs[0], store, PromotionSettings(copy_to=f"{BUCKET}/promoted"), by="me", person=True, force=True)
    name = f"graphmill-test/promoted/hurt/mf/{store.current_name()}/embeddings.parquet"
    s3.pipe_file(name, b"PAR1")
    with pytest.raises(InputError, match=r"embeddings\.parquet is damaged: it has 4 bytes"):
        fetched(f"{BUCKET}/promoted/hurt/mf/current")
    assert not list((tmp_path / "cache").glob("*/*/version.json"))


def test_a_raw_file_is_read_and_its_change_is_seen(s3: Any, tmp_path: Path) -> None:
    url, local = f"{BUCKET}/raw/kg.csv", tmp_path / "kg.csv"
    write_kg(local)
    s3.pipe_file(url, local.read_bytes())
    before = source_files.state(url), source_files.digest(url)
    assert graphmill.read_edges(url).edges.equals(graphmill.read_edges(local).edges)
    s3.pipe_file(url, local.read_bytes().replace(b"drug", b"pill"))
    after = source_files.state(url), source_files.digest(url)
    assert before[0].size == after[0].size
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_only_what_is_new_is_copied_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "report.json").write_text("{}")
    (folder / ".lock").write_text("")
    (folder / "checkpoints" / "big").write_bytes(b"x" * remote.SMALL_BYTES)
    target = f"memory://copies/{tmp_path.name}"
    assert copy_folder(folder, target, last="report.json") == 2
    assert copy_folder(folder, target, last="report.json") == 1  # the small one may have changed in its size


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "a", tmp_path / "out" / "b"
    source.write_text("new")
    copy_file(source, target)
    assert target.read_text() == "new"

    def broken(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    source.write_text("newer")
    monkeypatch.setattr(remote.shutil, "copyfileobj", broken)
    with pytest.raises(ResourceError, match=r"cannot be written \(No space left on device\)"):
        copy_file(source, target)
    assert target.read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["b"]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("s4://bucket/x", "there is no storage of the kind s4://"),
        ("dropbox://token@x/y", "needs a package that is not installed"),
    ],
)
def test_a_wrong_target_is_found_before_anything_is_done(tmp_path: Path, target: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence) as told:
        require_target(target, "publish")
    assert "token" not in str(told.value)
    values = {"system": "mf", "data": str(recommender_graph(tmp_path / "graph").path)}
    with pytest.raises(SettingsError, match=sentence):
        train({**values, "export": {"copy_to": target}}, "test", root=str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_a_bucket_that_is_not_there(s3: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises((InputError, ResourceError), match=r"s3://no-such-bucket-here/a"):
        copy_file(tmp_path / "a", "s3://no-such-bucket-here/a")
    with pytest.raises(InputError, match=r"holds no files|does not exist"):
        fetched("s3://no-such-bucket-here/toy/hgt")
    with pytest.raises(InputError, match=r"does not exist|cannot be read"):
        source_files.state("s3://no-such-bucket-here/kg.csv")
