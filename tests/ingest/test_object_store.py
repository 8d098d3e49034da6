"""Files on an object store (S3, by moto's server): read, its changes seen, mistakes in one sentence."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import graphmill
from graphmill.errors import InputError
from graphmill.ingest import sources as source_files
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
    s3.put_file(str(local), url)
    before = source_files.state(url), source_files.digest(url)
    assert graphmill.read_edges(url).edges.equals(graphmill.read_edges(local).edges)
    s3.pipe_file(url, local.read_bytes().replace(b"drug", b"pill"))
    after = source_files.state(url), source_files.digest(url)
    assert before[0].size == after[0].size
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_bucket_that_is_not_there(s3: Any) -> None:
    with pytest.raises(InputError, match=r"does not exist|cannot be read"):
        source_files.state("s3://no-such-bucket-here/kg.csv")
