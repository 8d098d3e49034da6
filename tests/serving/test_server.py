"""``graphmill serve`` as a process, and where it refuses to start."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.errors import GraphmillError, ResourceError, SettingsError
from graphmill.promotion.promote import roll_back
from graphmill.promotion.versions import Versions
from graphmill.serving import connections
from graphmill.serving.server import TOKEN_VARIABLE, is_local, require_token
from tests.serving.conftest import MakeVersion


@contextmanager
def served(folder: Path, *options: str, **environment: str) -> Iterator[str]:
    """The address of a real server; it is stopped by an interrupt."""
    command = [sys.executable, "-m", "graphmill.cli", "serve", "--folder", str(folder), "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment}
    )
    assert process.stdout is not None
    try:
        lines = []
        while "; Ctrl-C stops it" not in (line := process.stdout.readline()):
            lines.append(line)
            assert line, lines
        # Its log is read, because a server waits for a pipe that is full.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield line.rpartition(" at ")[2].partition(";")[0]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


def test_a_real_server_answers_and_a_switch_under_load_loses_no_request(promoted: Path, make: MakeVersion) -> None:
    names, process = [make(seed).name for seed in (1, 2)], threading.Event()
    failed: list[str] = []
    seen: set[str] = set()
    with served(promoted) as address:

        def ask() -> None:
            with httpx.Client(base_url=address, timeout=60) as client:
                while not process.is_set():
                    result = client.get("/v1/toy/hgt/current/neighbors", params={"id": "DR5"})
                    if result.status_code != 200:
                        failed.append(result.text)
                    else:
                        seen.add(result.json()["version"])

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            with httpx.Client(base_url=address, timeout=60) as client:
                for number in range(6):
                    roll_back(Versions(promoted / "toy/hgt"), names[number % 2], by="a test")
                    for _ in range(1000):
                        if client.get("/v1/toy/hgt/current/report").json()["version"] == names[number % 2]:
                            break
        finally:
            process.set()
            for thread in threads:
                thread.join()
    assert failed == []
    assert seen == set(names)


def test_an_empty_folder_is_served_with_a_note(promoted: Path) -> None:
    with served(promoted) as address:
        assert httpx.get(f"{address}/v1").json() == {"models": []}
        assert httpx.get(f"{address}/healthz").json()["status"] == "ok"


def refusal(*options: str) -> GraphmillError:
    result = CliRunner().invoke(app, ["serve", *options])
    assert isinstance(result.exception, GraphmillError), result.output
    assert result.exception.exit_code == 2
    return result.exception


def test_a_port_in_use_is_one_sentence(promoted: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = refusal("--folder", str(promoted), "--port", str(port))
    assert isinstance(error, ResourceError)
    assert str(error).startswith(f"127.0.0.1:{port} ")
    assert "--port" in str(error)


def test_an_address_that_others_reach_needs_a_token(promoted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert "GRAPHMILL_TOKEN" in str(refusal("--host", "0.0.0.0"))
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    assert "too short" in str(refusal("--host", "0.0.0.0"))
    require_token("0.0.0.0", False, "a-secret-of-some-length")
    with pytest.raises(SettingsError, match="not plain text"):
        require_token("127.0.0.1", True, "é" * 20)


def test_addresses_that_are_none_and_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is a file" in str(refusal("--folder", str(tmp_path / "file")))
    assert [is_local(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "10.0.0.1", "example.org")] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip


def test_with_a_token_a_real_server_lets_in_who_brings_it(promoted: Path, make: MakeVersion) -> None:
    make()
    token = "a-secret-of-some-length"
    with served(promoted, "--host", "0.0.0.0", **{TOKEN_VARIABLE: token}) as address:
        address = address.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{address}/v1").status_code == 401
        result = httpx.get(f"{address}/v1", headers={"authorization": f"Bearer {token}"})
        assert result.json()["models"][0]["model"] == "hgt"


def test_slow_clients_lock_nobody_out(promoted: Path, make: MakeVersion) -> None:
    """As many half-sent requests as this process may open, and half-sent bodies: the honest are answered meanwhile."""
    make()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    slow: list[socket.socket] = []
    try:
        count = min(1300, min(4096, hard) - 400)
        with served(promoted) as address, httpx.Client(base_url=address, timeout=60) as client:
            host, port = address.removeprefix("http://").split(":")
            for number in range(count):
                body = b"GET /v1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nhalf"
                slow.append(socket.create_connection((host, int(port)), timeout=60))
                slow[-1].sendall(body if number % 2 else b"GET /v1 HTTP/1.1\r\nhost: loc")
                if number % 200 == 0:
                    assert client.get("/v1").status_code == 200
            began = time.monotonic()
            while time.monotonic() < began + connections.HEADER_SECONDS / 2:
                with httpx.Client(base_url=address, timeout=60) as honest:
                    assert honest.get("/v1/toy/hgt/current/neighbors", params={"id": "DR5"}).status_code == 200
            first = slow[-1 if count % 2 else -2]  # without a body: closed when its headers' time is over
            first.settimeout(connections.HEADER_SECONDS * 6)
            with contextlib.suppress(ConnectionError):
                assert first.recv(100) == b""
            assert time.monotonic() - began < connections.HEADER_SECONDS * 6
    finally:
        for each in slow:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
