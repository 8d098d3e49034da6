"""Reads the worker's Pipes messages from a file, only complete lines, and formats them as log lines and observations.

Dagster's own reader takes the end of the file as a line. If it reads while the worker is writing, it gets half a
message, and neither this message nor any later one arrives.
"""

import contextlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pipes import PipesDefaultMessageWriter

from graphmill.orchestration.metadata import rounded, scalars
from graphmill.reports.training_curves import is_total, total_loss
from graphmill.runs.messages import duration, progress_line

Message = Mapping[str, Any]
READ_SECONDS = 0.1


class MessageFile(dg.PipesMessageReader):
    """A file to which the worker appends one JSON message per line. It is removed at the end of the session.

    ``folder``: the folder for the file; by default that of temporary files. ``seen``: maps its path to the path on the
    worker's machine.
    """

    def __init__(self, folder: Path | None = None, seen: Callable[[Path], str] = str) -> None:
        self._folder, self._seen = folder, seen
        self.seen_as = ""

    @contextlib.contextmanager
    def read_messages(self, handler: Any) -> Iterator[Mapping[str, Any]]:
        """Pass each message to ``handler`` during the session, and the remaining ones before it closes."""
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="graphmill-", dir=self._folder, ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "messages"
            path.touch()
            self.seen_as = self._seen(path)
            ended = threading.Event()
            thread = threading.Thread(target=_follow, args=(path, handler, ended), daemon=True)
            thread.start()
            try:
                yield {
                    PipesDefaultMessageWriter.FILE_PATH_KEY: self.seen_as,
                    PipesDefaultMessageWriter.INCLUDE_STDIO_IN_MESSAGES_KEY: False,
                }
            finally:
                ended.set()
                thread.join()

    def no_messages_debug_text(self) -> str:
        """The place of the messages, for Dagster's warning that there were none."""
        return "Messages were expected in a file."


def _follow(path: Path, handler: Any, ended: threading.Event) -> None:
    rest = b""
    with path.open("rb") as file:
        while True:
            last = ended.is_set()  # before reading, so that all messages until then are read
            *lines, rest = (rest + file.read()).split(b"\n")
            for line in lines:
                handler.handle_message(json.loads(line))
            if last:  # ``rest`` may hold an incomplete message of a killed worker
                return
            ended.wait(READ_SECONDS)


def started_metadata(message: Message) -> dict[str, Any]:
    """The observation at a run's start: what runs where, from which epoch, and the expected time."""
    out: dict[str, Any] = {"progress": started_line(message)}
    out |= scalars({"resumed_from_epoch": message.get("resumed_from_epoch")})
    if message.get("run_dir"):
        out["run_dir"] = dg.MetadataValue.path(str(message["run_dir"]))
    return out


def progress_metadata(message: Message) -> dict[str, Any]:
    """The line that a person reads, and the numbers whose curves the UI plots while it trains: epoch, loss, metrics.

    The loss of several phases is known at the end of an epoch only.
    """
    losses, metrics = message.get("losses") or {}, message.get("valid") or {}
    whole = losses if not message.get("step") or message.get("phases", 1) == 1 else {}
    loss = total_loss(whole) if any(is_total(name) for name in whole) else None
    figures = scalars({"epoch": message.get("epoch"), "loss": loss, str(message.get("split", "valid")): metrics})
    return {"progress": epoch_line(message)} | {name: rounded(value) for name, value in figures.items()}


def started_line(message: Message) -> str:
    """One line for the log at the start."""
    if message.get("reused"):
        return f"a finished run with these settings and data exists and is reused: {message.get('run_dir', '')}"
    parts = [f"training on {message.get('device', 'an unnamed device')}"]
    if message.get("device_reason"):
        parts[0] += f" ({message['device_reason']})"
    if message.get("resumed_from_epoch"):
        parts.append(f"continuing after epoch {message['resumed_from_epoch']}")
    estimate = message.get("estimate") or {}
    if estimate.get("seconds_total"):
        parts.append(f"about {duration(estimate['seconds_total'])} to go")
    return " · ".join(parts)


def epoch_line(message: Message) -> str:
    """One line for the log: epoch, step and the current figures."""
    epoch, epochs, step = (message.get(name, "?") for name in ("epoch", "epochs", "step"))
    return f"epoch {epoch}/{epochs}, step {step}  {progress_line(dict(message))}"
