"""``metrics.jsonl``: one JSON object a line, appended while training, cut back to the checkpoint when a run resumes; and
TensorBoard's events of the same run.

JSON has no inf and nan. They are written as the strings "inf", "-inf" and "nan", which ``float()`` and pandas
understand.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal

from graphmill.atomic_files import os_error_in_a_sentence, write_all, write_atomically
from graphmill.errors import InputError
from graphmill.evaluation.json_values import readable

_logger = logging.getLogger(__name__)

Kind = Literal["step", "epoch"]
WRITE_AGAIN = "free some space or make the directory writable, and run the same command again"
_MOST = 1 << 62
_NUMBERS = ("learning_rate", "seconds", "skips", "memory_bytes", "best_epoch")
_TABLES = ("losses", "coefficients", "valid", "health", "per_second")
_ALWAYS = {"step": ("losses",), "epoch": ("losses", "seconds")}
"""Fields that every record of a kind has. Plots, tables and comparisons need them."""


class MetricsLog:
    """The trace of a run. Anyone may read it; only the holder of the run's lock may write it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def append(self, kind: Kind, epoch: int, step: int, values: Mapping[str, Any]) -> None:
        """Add a record: ``kind`` "step" after an optimizer step, "epoch" after an epoch; ``step`` counts the steps
        done.

        Each record is one write without fsync. A killed process loses nothing. A power cut loses the records since
        :meth:`sync`.

        Raises:
            ResourceError: it cannot be written (disk full).
        """
        record = {"kind": kind, "epoch": epoch, "step": step} | readable(values)
        with os_error_in_a_sentence(f"cannot write {self.path}", WRITE_AGAIN):
            if self._file is None:
                self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
                self._file.truncate(_whole_lines(self.path))
            write_all(self._file, json.dumps(record, allow_nan=False).encode() + b"\n")

    def sync(self) -> None:
        """fsync the file. It is called before a checkpoint, so that the trace never lacks steps that the checkpoint
        has."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def read(self, kind: Kind | None = None) -> list[dict[str, Any]]:
        """All records, or those of one kind. Incomplete or damaged lines are left out.

        Raises:
            InputError: the path is not a file, or cannot be read.
        """
        records = (_parse(line) for line in self._lines())
        return [record for record in records if record is not None and kind in (None, record["kind"])]

    def truncate_after(self, epoch: int, step: int) -> int:
        """Remove the records that a resume from the checkpoint (``epoch``, ``step``) will report again; returns their
        number.

        It keeps the steps up to ``step`` and the epochs that ended before it. It removes the epoch that ends exactly at
        the checkpoint, because a resume at an epoch's end evaluates and reports that epoch again.
        """
        self.close()
        lines = self._lines()
        kept = [line for line in lines if _survives(_parse(line), epoch, step)]
        if len(kept) < len(lines) or _whole_lines(self.path) < _size(self.path):
            write_atomically(self.path, b"".join(line + b"\n" for line in kept))
        return len(lines) - len(kept)

    def close(self) -> None:
        """Close the file; appending opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _lines(self) -> list[bytes]:
        try:
            return self.path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be read: {error.strerror}; nothing else depends on this trace of the run: "
                "remove it, and run the same command again"
            ) from None


def _survives(record: dict[str, Any] | None, epoch: int, step: int) -> bool:
    if record is None:
        return False
    at = (record["epoch"], record["step"])
    return at[1] <= step and at[0] <= epoch and (record["kind"] == "step" or at[1] < step)


def _parse(line: bytes) -> dict[str, Any] | None:
    """The record of a line, or None if its names or types are wrong, so that plots and tables can rely on them."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("kind") not in ("step", "epoch"):
        return None
    if any(name not in record for name in _ALWAYS[record["kind"]]):
        return None
    counts = all(type(record.get(name)) is int and 0 <= record[name] < _MOST for name in ("epoch", "step"))
    numbers = all(_is_number(record[name]) for name in _NUMBERS if name in record)
    tables = all(_is_table(record[name]) for name in _TABLES if name in record)
    return record if counts and numbers and tables else None


def _is_number(value: Any) -> bool:
    return (isinstance(value, int | float) and not isinstance(value, bool)) or value in ("nan", "inf", "-inf")


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _whole_lines(path: Path) -> int:
    """Number of bytes up to the last line feed. A kill left the rest incomplete."""
    return path.read_bytes().rfind(b"\n") + 1 if _size(path) else 0


class EventWriter:
    """Appends scalars to TensorBoard's event files, one file per process, each record written at once, so that a kill loses
    nothing. tensorboard's own writer uses a thread: if it fails, it prints a traceback and can hang.

    A resumed run passes ``purge_step``, the first step that it will report again. TensorBoard then
    ignores the earlier files from that step on, so the curves equal those of an uninterrupted run. If events cannot be
    written (disk full), this is logged once and the training continues.
    """

    def __init__(self, directory: Path, *, purge_step: int | None = None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary, self._record_writer = event_pb2.Event, summary_pb2.Summary, RecordWriter
        self._file: BinaryIO | None = None
        events = [self._event(wall_time=time.time(), file_version="brain.Event:2")]
        if purge_step is not None:
            restart = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            events.append(self._event(wall_time=time.time(), step=purge_step, session_log=restart))
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # TensorBoard reads a run's files in the order of their names.
            name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
            self._file = open(directory / name, "xb", buffering=0)  # noqa: SIM115 - closed by close()
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
        for event in events:
            self._record_writer(records).write(event.SerializeToString())
        try:
            write_all(self._file, records.getvalue())
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        _logger.warning("TensorBoard events are no longer written: %s (%s)", error.strerror, error.filename or "")
        self.close()
