"""Sends messages to Dagster as custom messages over Pipes. The reader throttles them."""

from __future__ import annotations

import contextlib
from typing import Any

from graphmill.runs.messages import Message


class PipesOutlet:
    """Sends every message as a Pipes custom message, and writes notes for the user to Dagster's event log."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def send(self, message: Message) -> None:
        """Send one custom message. If it cannot be written (a full /tmp), the work continues without it."""
        with contextlib.suppress(OSError):
            if message["kind"] == "note":
                self.context.log.info(message["text"])
            self.context.report_custom_message(message)

    def close(self) -> None:
        """Do nothing: the caller who opened the context closes it."""
