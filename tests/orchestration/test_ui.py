"""``make ui``: what it refuses before anything starts. That it starts and stops everything is tested in tests/ui."""

import socket

import pytest

from graphmill.errors import EXIT_USER_ERROR
from graphmill.orchestration import ui


def test_pictures_and_explorer_have_the_same_address_whenever_the_ui_is_started() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert ui._port_for_service(port) != port
    assert ui._port_for_service(port) == port
    assert 0 < ui._port_for_service(65536) < 65536


def test_a_port_in_use_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert ui.main(["--port", str(port)]) == EXIT_USER_ERROR
    assert f"port {port} on 127.0.0.1 cannot be used" in capsys.readouterr().err
