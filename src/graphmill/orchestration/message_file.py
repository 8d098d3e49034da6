"""Reads the worker's Pipes messages from a file, only complete lines.

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
