"""Reads the worker's Pipes messages from a file, whole lines only.

Dagster's own reader takes what it finds at the end of the file for a line: when it looks while the worker is writing, it
meets half a message, and neither that one nor any later one arrives.
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

LOOK_SECONDS = 0.1


class MessageFile(dg.PipesMessageReader):
    """A file that the worker appends to, one JSON message a line; it is gone at the session's end.

    ``folder``: where it is made; without one, where temporary files are. ``seen`` gives its path as the worker sees it.
    """

    def __init__(self, folder: Path | None = None, seen: Callable[[Path], str] = str) -> None:
        self._folder, self._seen = folder, seen
        self.seen_as = ""

    @contextlib.contextmanager
    def read_messages(self, handler: Any) -> Iterator[Mapping[str, Any]]:
        """Hand each message to ``handler`` while the session lasts; those at its end are handed on before it closes."""
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
        """Where messages were expected, for Dagster's warning that there were none."""
        return "Messages were expected in a file."


def _follow(path: Path, handler: Any, ended: threading.Event) -> None:
    rest = b""
    with path.open("rb") as file:
        while True:
            last = ended.is_set()  # before reading, so that what came until then is read
            *lines, rest = (rest + file.read()).split(b"\n")
            for line in lines:
                handler.handle_message(json.loads(line))
            if last:  # what is left in ``rest`` is a message that a kill cut short
                return
            ended.wait(LOOK_SECONDS)
