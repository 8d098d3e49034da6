"""Files on an object store (S3, by moto's server): read, published whole or not at all, mistakes in one sentence."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import graphmill
from graphmill import atomic_files
from graphmill.errors import InputError, ResourceError, SettingsError
from graphmill.export.remote import copy_file, require_target
from graphmill.ingest import source_files
from tests.components.conftest import write_kg

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


def test_a_raw_file_is_read_and_its_change_is_seen(s3: Any, tmp_path: Path) -> None:
    url, local = f"{BUCKET}/raw/kg.csv", tmp_path / "kg.csv"
    write_kg(local)
    copy_file(local, url)
    before = source_files.state(url), source_files.digest(url)
    assert graphmill.read_edges(url).edges.equals(graphmill.read_edges(local).edges)
    s3.pipe_file(url, local.read_bytes().replace(b"drug", b"pill"))
    after = source_files.state(url), source_files.digest(url)
    assert before[0].size == after[0].size
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "a", tmp_path / "out" / "b"
    source.write_text("new")
    copy_file(source, target)
    assert target.read_text() == "new"

    def broken(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    source.write_text("newer")
    monkeypatch.setattr(atomic_files.shutil, "copyfileobj", broken)
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
def test_a_wrong_target_is_found_before_anything_is_done(target: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence) as told:
        require_target(target, "publish")
    assert "token" not in str(told.value)


def test_a_bucket_that_is_not_there(s3: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises((InputError, ResourceError), match=r"s3://no-such-bucket-here/a"):
        copy_file(tmp_path / "a", "s3://no-such-bucket-here/a")
    with pytest.raises(InputError, match=r"does not exist|cannot be read"):
        source_files.state("s3://no-such-bucket-here/kg.csv")
