"""Messages to Dagster: custom messages over Pipes, throttled by whoever reads them."""

from __future__ import annotations

import contextlib
from typing import Any

from graphmill.runs.messages import Message


class PipesOutlet:
    """Sends every message as a Pipes custom message; logs what a person should read in Dagster's event log."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def send(self, message: Message) -> None:
        """One custom message. Where it cannot be written (a full /tmp), the work goes on unseen."""
        with contextlib.suppress(OSError):
            if message["kind"] == "note":
                self.context.log.info(message["text"])
            self.context.report_custom_message(message)

    def close(self) -> None:
        """The context is closed by whoever opened it."""
