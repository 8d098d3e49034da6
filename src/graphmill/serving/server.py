"""Starts the service on an address, after checking that this is safe."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable
from pathlib import Path

from graphmill.errors import InputError, ResourceError, SettingsError

TOKEN_VARIABLE = "GRAPHMILL_TOKEN"
LEAST_TOKEN = 16
IDLE_SECONDS = 15
MOST_HEADERS = 16 << 10


def serve(promoted: Path, host: str, port: int, say: Callable[[str], None] = print) -> None:
    """Serve the versions under ``promoted`` until interrupted. ``say`` gets the address when it is bound.

    Raises:
        SettingsError: other machines can reach the address, and the token is missing or too short.
        InputError: ``promoted`` is a file.
        ResourceError: the port is in use, or the address is not one of this machine.
    """
    import uvicorn

    from graphmill.serving.application import application
    from graphmill.serving.connections import BoundedConnection, most_connections

    local, token = is_local(host), os.environ.get(TOKEN_VARIABLE, "")
    require_token(host, local, token)
    if promoted.exists() and not promoted.is_dir():
        raise InputError(f"{promoted} is a file; --folder is the folder of promoted versions, such as data/07_promoted")
    listening = bound(host, port)
    BoundedConnection.most = most_connections()
    app = application(promoted, token, local)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=IDLE_SECONDS,
        h11_max_incomplete_event_size=MOST_HEADERS,
        http=BoundedConnection,
        ws="none",
    )
    displayed = f"[{host}]" if ":" in host else host
    with listening:
        say(f"http://{displayed}:{listening.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[listening])


def is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_token(host: str, local: bool, token: str) -> None:
    """Raise :class:`SettingsError` if a token is needed and it is missing or too short."""
    if not local and not token:
        raise SettingsError(
            f"{host} can be reached from other machines: set {TOKEN_VARIABLE} to a secret of {LEAST_TOKEN} characters or "
            "more, which every request then has to bring; or serve on 127.0.0.1"
        )
    if token and (len(token) < LEAST_TOKEN or not token.isascii() or token != token.strip()):
        raise SettingsError(
            f"{TOKEN_VARIABLE} is too short or not plain text: {LEAST_TOKEN} ASCII characters or more, such as from "
            "`openssl rand -hex 24`"
        )


def bound(host: str, port: int) -> socket.socket:
    """A socket bound to the address. Raises :class:`ResourceError` if that fails."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ResourceError(f"{host} is not an address of this machine ({error}); choose another with --host") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise ResourceError(
            f"{host}:{port} cannot be used ({error.strerror}); choose another --port or --host"
        ) from None
    return listening
