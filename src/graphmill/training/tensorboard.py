"""Writes TensorBoard events of a run: scalars only, one file per process, each record written at once.

tensorboard's own writer uses a thread. If the thread fails, it prints a traceback and can hang the flush. Here the
caller writes each small record itself, and a kill loses nothing. tensorboard is imported when a writer is made.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from graphmill.atomic_files import write_all

_logger = logging.getLogger(__name__)


class EventWriter:
    """Appends scalars. A resumed run passes ``purge_step``, the first step that it will report again. TensorBoard then
    ignores the earlier files from that step on, so the curves equal those of an uninterrupted run. If events cannot be
    written (disk full), this is logged once and the training continues.
    """

    def __init__(self, directory: Path, *, purge_step: int | None = None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._session_log, self._record_writer = event_pb2.SessionLog, RecordWriter
        self._file: BinaryIO | None = None
        events = [self._event(wall_time=time.time(), file_version="brain.Event:2")]
        if purge_step is not None:
            restart = self._session_log(status=self._session_log.START)
            events.append(self._event(wall_time=time.time(), step=purge_step, session_log=restart))
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = open(_next_path(directory), "xb", buffering=0)  # noqa: SIM115 - closed by close()
        except OSError as error:
            self._give_up(error)
        self._write(events)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add one point to each curve; "/" in a name groups the curves. It also accepts nan and inf."""
        value = self._summary.Value
        points = [value(tag=name, simple_value=float(number)) for name, number in values.items()]
        self._write([self._event(wall_time=time.time(), step=step, summary=self._summary(value=points))])

    def close(self) -> None:
        """Close the file; further scalars are not written."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, events: list[Any]) -> None:
        if self._file is None:
            return
        records = BytesIO()
        writer = self._record_writer(records)
        for event in events:
            writer.write(event.SerializeToString())
        try:
            write_all(self._file, records.getvalue())
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        _logger.warning("TensorBoard events are no longer written: %s (%s)", error.strerror, error.filename or "")
        self.close()


def _next_path(directory: Path) -> Path:
    """A name that sorts after all existing ones: TensorBoard reads a run's files in the order of their names."""
    taken = [
        int(part) for path in directory.glob("events.out.tfevents.*") if (part := path.name.split(".")[3]).isdigit()
    ]
    second = max([int(time.time()), *(when + 1 for when in taken)])
    return directory / f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}"
