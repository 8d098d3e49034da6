"""``python -m graphmill.orchestration.ui``: runs webserver, daemon and `graphmill serve` together; one Ctrl-C stops all.

The daemon runs the queue, so that runs launched in the UI respect the accelerator pool, and runs schedules and sensors.
"""

import argparse
import contextlib
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from graphmill.errors import EXIT_OK, GraphmillError, ResourceError
from graphmill.launchers.child_tree import ChildTree
from graphmill.orchestration.home import PROMOTED, code_location, dagster_home, project_root
from graphmill.orchestration.instance import open_instance
from graphmill.serving.addresses import DEFAULT_PORT, SERVICE_VARIABLE

READY_SECONDS = 180.0
GRACE_SECONDS = 20.0
RESTART_SECONDS = 30.0
"""Least time between two starts of the same child."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until interrupted; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.orchestration.ui", description=__doc__)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="port of the UI (default 3000)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    options = parser.parse_args(arguments)
    try:
        return serve(project_root(), options.host, options.port)
    except GraphmillError as error:
        print(f"graphmill: {error}", file=sys.stderr)
        return error.exit_code


def serve(root: Path, host: str, port: int) -> int:
    """Start all, print the UI's address, wait for an interrupt or for one of them to end, and stop all.

    Raises :class:`ResourceError` if the port is in use or the webserver does not start.
    """
    _require_free(host, port)
    home = dagster_home(root)
    logs = Path(home) / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    service = _port_for_service(port + 1)
    explorer = f"http://127.0.0.1:{service}"
    os.environ[SERVICE_VARIABLE] = explorer
    os.environ.pop(
        "GRAPHMILL_TOKEN", None
    )  # no token: pictures in the browser could not send it, and the service is for this machine only
    print("starting the webserver and the daemon …", flush=True)
    # Create the instance's tables here, once: otherwise webserver, daemon and code servers would all try, and some
    # would fail.
    with open_instance():
        pass
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Before the children start, in which these handlers are reset to the default.
        signal.signal(number, lambda *_: stopping.set())
    workspace = _target(root)
    commands = {
        "webserver": ["dagster_webserver", "-h", host, "-p", str(port), *workspace],
        "daemon": ["dagster._daemon", "run", *workspace],
        "explorer": ["graphmill.cli", "serve", "--folder", str(root / PROMOTED), "--port", str(service)],
    }
    children: dict[str, ChildTree] = {}

    def start(name: str) -> ChildTree:
        command = [sys.executable, "-m", *commands[name]]
        return ChildTree(command, env=os.environ, cwd=str(root), log=logs / f"ui_{name}.log")

    def end_all() -> None:
        for child in children.values():
            child.ask()
        with contextlib.ExitStack() as ends:
            for child in children.values():
                ends.callback(child.wait, GRACE_SECONDS)

    with contextlib.ExitStack() as stack:
        stack.callback(end_all)
        for name in commands:
            (logs / f"ui_{name}.log").write_bytes(b"")
            children[name] = start(name)
        address = f"http://{'localhost' if host in ('127.0.0.1', '0.0.0.0') else host}:{port}"
        _wait_until_ready(f"http://{host}:{port}/server_info", children, stopping, logs)
        if not stopping.is_set():
            print(f"history is in {home}, messages are in {logs}; Ctrl-C stops all", flush=True)
            print(f"the explorer of promoted versions is at {explorer}", flush=True)
            print(f"graphmill is at {address}", flush=True)
        keep_running(children, start, stopping)
        print("stopping webserver, daemon and explorer", flush=True)
    return EXIT_OK


def keep_running(children: dict[str, ChildTree], start: Callable[[str], ChildTree], stopping: threading.Event) -> None:
    """Until ``stopping`` is set, start a child again that has ended. The others go on, with the runs that they started."""
    since = dict.fromkeys(children, 0.0)
    while not stopping.is_set():
        for name, child in children.items():
            child.note_descendants()
            if child.poll() is not None and time.monotonic() >= since[name] + RESTART_SECONDS:
                print(
                    f"the {name} ended with exit code {child.poll()} and is started again", file=sys.stderr, flush=True
                )
                child.kill()
                children[name], since[name] = start(name), time.monotonic()
        time.sleep(0.5)


def _target(root: Path) -> list[str]:
    """Arguments for webserver and daemon: the project's workspace.yaml, or the module that its pyproject.toml names."""
    if (root / "workspace.yaml").is_file():
        return ["-w", str(root / "workspace.yaml")]
    location = code_location(root)
    return ["-m", location.module, "-a", location.attribute, "-d", str(location.folder)]


def _require_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ResourceError(
                f"port {port} on {host} cannot be used ({error.strerror}); choose another with --port"
            ) from None


def _port_for_service(wanted: int) -> int:
    """The port after the UI's, so that addresses in old metadata stay valid; another one if it is in use."""
    for port in (wanted, 0):
        with socket.socket() as probe, contextlib.suppress(OSError, OverflowError):
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise ResourceError("this machine has no free port for the explorer")


def _wait_until_ready(url: str, children: dict[str, ChildTree], stopping: threading.Event, logs: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not stopping.is_set() and time.monotonic() < deadline:
        _require_running(children, logs)
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    if not stopping.is_set():
        raise ResourceError(f"the webserver did not answer within {READY_SECONDS:.0f} s")


def _require_running(children: dict[str, ChildTree], logs: Path) -> None:
    """Raise :class:`ResourceError` if a child has ended, with its last line and the path of its log."""
    for name, child in children.items():
        if (code := child.poll()) is not None:
            last = child.stderr_tail().strip().rpartition("\n")[2]
            reason = f": {last}" if last else ""
            where = f"(all its messages: {logs / f'ui_{name}.log'})"
            raise ResourceError(f"the {name} ended with exit code {code}{reason} {where}")


if __name__ == "__main__":
    sys.exit(main())
