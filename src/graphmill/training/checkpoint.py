"""Which checkpoints a run keeps, and from which one it resumes.

One checkpoint is one file whose name ends in the hash of its content (``e00010-s00000100-<hash>.safetensors``), so each
file can be verified by itself, and no index can disagree with the directory. ``checkpoint_format.py`` defines the
content of a file. Only the process that holds the run directory's lock writes here.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from graphmill.atomic_files import PartFile, write_atomically
from graphmill.errors import InputError, ResourceError
from graphmill.training import checkpoint_format
from graphmill.training.checkpoint_format import DamagedError, Snapshot
from graphmill.training.memory import format_size


@dataclass(frozen=True)
class CheckpointInfo:
    """One checkpoint as its header describes it. ``epoch`` and ``step`` count those completed.

    ``roles``: "last", "best", "final", "influence"; a checkpoint without a role is removed at the next save. ``metric``
    (higher is better) is None where the model was not evaluated; ``loss`` may be nan.
    """

    path: Path
    epoch: int
    step: int
    roles: tuple[str, ...]
    metric: float | None
    learning_rate: float
    loss: float
    bytes: int
    final: bool


def assign(
    infos: Sequence[CheckpointInfo], keep_last: int, keep_best: int, keep_influence: int
) -> list[CheckpointInfo]:
    """Return ``infos``, oldest first, with their roles filled in."""
    newest_first = list(infos)[::-1]
    # During the run, keep twice as many: which ones are evenly spread is known only at the end.
    count = keep_influence * (1 if newest_first and newest_first[0].final else 2)
    holders = {
        "last": newest_first[:keep_last],
        "best": best_first(infos)[:keep_best],
        "final": [info for info in newest_first if info.final][:1],
        "influence": spread(falling(infos), count),
    }
    return [replace(info, roles=tuple(role for role in holders if info in holders[role])) for info in infos]


def best_first(infos: Sequence[CheckpointInfo]) -> list[CheckpointInfo]:
    """The checkpoints with a metric, highest first; of equals, the earlier first."""
    measured = [info for info in infos if info.metric is not None and not math.isnan(info.metric)]
    return sorted(measured, key=lambda info: -float(info.metric or 0.0))


def falling(infos: Sequence[CheckpointInfo]) -> list[CheckpointInfo]:
    """The checkpoints whose finite loss is below that of every earlier one. This leaves out noise and epochs after
    convergence."""
    records: list[CheckpointInfo] = []
    for info in infos:
        if math.isfinite(info.loss) and (not records or info.loss < records[-1].loss):
            records.append(info)
    return records


def spread(candidates: Sequence[CheckpointInfo], count: int) -> list[CheckpointInfo]:
    """At most ``count`` of ``candidates`` (falling loss), evenly spread in loss; the lowest is always among them."""
    kept = list(candidates)
    if count <= 1:
        return kept[-1:] if count else []
    while len(kept) > count:
        closest = min(range(1, len(kept) - 1), key=lambda i: kept[i - 1].loss - kept[i + 1].loss, default=0)
        del kept[closest]
    return kept


__all__ = ["CheckpointInfo", "CheckpointMissingError", "CheckpointStore", "Loaded", "Snapshot"]

_NAME = re.compile(rf"e(\d{{5,}})-s(\d{{8,}})-([0-9a-f]{{{checkpoint_format.HASH_DIGITS}}})\.safetensors")
_DAMAGED = ".damaged"

# Inside the class, ``list`` is the store's own method.
Infos = list[CheckpointInfo]
Names = list[tuple[Path, int, int, str]]  # path, epoch, step, hash

_logger = logging.getLogger(__name__)


class CheckpointMissingError(InputError):
    """There is no such checkpoint, or none that is undamaged. ``notes`` says which files were set aside."""

    def __init__(self, message: str, notes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.notes = list(notes)


@dataclass
class Loaded:
    """A verified snapshot, its file, and notes on the damaged files that were skipped."""

    snapshot: Snapshot
    path: Path
    epoch: int
    step: int
    notes: list[str] = field(default_factory=list)


class CheckpointStore:
    """The checkpoints of one run.

    It keeps the ``keep_last`` newest, the ``keep_best`` with the highest metric (of equals, the earlier), the newest
    final one, and candidates for the ``keep_influence`` ones (see :meth:`influence`). It never removes the newest.
    """

    def __init__(self, directory: Path, *, keep_last: int = 2, keep_best: int = 1, keep_influence: int = 0) -> None:
        self.directory = Path(directory)
        self.keep_last = max(1, keep_last)
        self.keep_best = keep_best
        self.keep_influence = keep_influence

    # -- writing -----------------------------------------------------------------------------------------------------

    def check_writable(self, expected_bytes: int) -> None:
        """Make the directory, and check before training that it can be written and has room for the checkpoints to
        keep.

        ``expected_bytes`` is the size of one checkpoint.

        Raises:
            ResourceError: the directory cannot be written, or has too little room; the message gives the bytes needed
                and free.
        """
        kept = self.keep_last + self.keep_best + 2 * self.keep_influence
        missing = max(1, kept + 1 - len(self._names()))
        needed = expected_bytes * missing
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_atomically(self.directory / ".probe", b"graphmill")
            (self.directory / ".probe").unlink()
        except OSError as error:
            raise self._write_error(error, expected_bytes) from None
        if self._free() < needed:
            raise ResourceError(
                f"{self.directory} has {format_size(self._free())} free, but up to {missing} more checkpoints of "
                f"{format_size(expected_bytes)} need {format_size(needed)}: free some space, choose another output "
                "directory, or lower acceleration.keep_influence"
            )

    def save(
        self,
        snapshot: Snapshot,
        *,
        epoch: int,
        step: int,
        learning_rate: float,
        loss: float,
        metric: float | None = None,
        final: bool = False,
    ) -> Path:
        """Write a checkpoint durably, then remove those that are no longer kept.

        A second save of the same epoch and step replaces the first, and inherits its metric and its role as final.

        Raises:
            ResourceError: it could not be written (disk full, quota, read-only). Earlier files are untouched, and no
                partial file is left.
        """
        before = [info for info in self._infos() if (info.epoch, info.step) == (epoch, step)]
        if metric is None:
            metric = next((info.metric for info in before if info.metric is not None), None)
        final = final or any(info.final for info in before)
        details = {"epoch": epoch, "step": step, "metric": metric, "final": final}
        details |= {"learning_rate": float(learning_rate), "loss": float(loss)}
        layout = checkpoint_format.layout_of(snapshot, details)
        try:
            part = PartFile(self.directory / "checkpoint", layout.size)
            try:
                digest = checkpoint_format.write(part.file, layout)
                path = part.commit(self.directory / f"e{epoch:05d}-s{step:08d}-{digest}.safetensors")
            finally:
                part.abort()
        except OSError as error:
            raise self._write_error(error, layout.size) from None
        superseded = [info.path for info in before if info.path != path]
        self._prune(path, superseded)
        return path

    def discard_after(self, step: int) -> None:
        """Remove every checkpoint after ``step`` (-1: all), because the run resumes from an earlier one or starts anew."""
        for path, _, at, _ in self._names():
            if at > step:
                self._delete(path)

    def _prune(self, newest: Path, superseded: Sequence[Path]) -> None:
        for path in superseded:
            self._delete(path)
        kept = {info.path for info in self.list() if info.roles} | {newest}
        # Remove only files with a readable header.
        for info in self._infos():
            if info.path not in kept:
                self._delete(info.path)
        for path in sorted(self.directory.glob(f"*{_DAMAGED}"))[:-1]:  # one damaged copy is enough
            self._delete(path)

    def _delete(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # the run is safe without it; the next save tries again
            _logger.warning("could not remove the old checkpoint %s: %s", path, error.strerror)

    # -- reading -----------------------------------------------------------------------------------------------------

    def list(self) -> Infos:
        """The checkpoints, oldest first. This reads only the headers, so it is fast and verifies nothing."""
        # A kill between writing a step's second file and removing its first leaves both: the later one counts.
        by_step = {(info.epoch, info.step): info for info in self._infos()}
        return assign(list(by_step.values()), self.keep_last, self.keep_best, self.keep_influence)

    def influence(self) -> Infos:
        """At most ``keep_influence`` checkpoints for TracIn, evenly spread over the falling part of the loss.

        At most twice as many stay on disk during training.
        """
        return spread(falling(self.list()), self.keep_influence)

    def load(
        self, which: str | int | CheckpointInfo = "last", stream: Callable[[str], bool] = lambda name: False
    ) -> Loaded:
        """A verified checkpoint: "last", "best", "final", an epoch, or one of :meth:`list`.

        A damaged file is set aside (renamed to ``*.damaged``), and the next one that fits is loaded: the one before,
        the next best, an earlier final one, or an earlier step of the same epoch. ``notes`` says so. Tensors for whose
        name ``stream`` returns True stay in the file (``Snapshot.streamed``).

        Raises:
            CheckpointMissingError: no undamaged checkpoint fits; the message lists those that there are.
        """
        notes = []
        for path, epoch, step, digest in self._candidates(which):
            try:
                snapshot = checkpoint_format.read(path, digest, stream)
            except FileNotFoundError:
                continue  # the writer has removed it since it was listed
            except DamagedError as error:
                notes.append(self._set_aside(path, f"is damaged: {error}"))
            except OSError as error:
                notes.append(f"the checkpoint {path} cannot be read ({error.strerror})")
            else:
                if notes:
                    notes.append(f"went on from {path.name} (epoch {epoch}, step {step})")
                return Loaded(snapshot, path, epoch, step, notes)
        raise self._missing(which, notes)

    def _candidates(self, which: str | int | CheckpointInfo) -> Names:
        names = self._names()
        if isinstance(which, CheckpointInfo):
            return [name for name in names if name[0] == which.path]
        if isinstance(which, int):
            return [name for name in names[::-1] if name[1] == which]
        if which == "last":
            return names[::-1]
        infos = self._infos()
        chosen = {"best": best_first(infos), "final": [info for info in infos[::-1] if info.final]}[which]
        # Try files with an unreadable header first: the one asked for may be among them, and load() then reports it.
        listed = {info.path for info in infos}
        by_path = {name[0]: name for name in names}
        unread = [name for name in names if name[0] not in listed]
        return unread + [by_path[info.path] for info in chosen if info.path in by_path]

    def _set_aside(self, path: Path, why: str) -> str:
        aside = path.with_name(path.name + _DAMAGED)
        try:
            os.replace(path, aside)
        except OSError:
            return f"the checkpoint {path} {why}; it could not be renamed"
        return f"the checkpoint {path} {why}; set aside as {aside.name}"

    def _missing(self, which: str | int | CheckpointInfo, notes: Sequence[str]) -> CheckpointMissingError:
        wanted = f"checkpoint of epoch {which}" if isinstance(which, int) else f"{which} checkpoint"
        if isinstance(which, CheckpointInfo):
            wanted = f"checkpoint {which.path.name}"
        existing = [
            f"epoch {i.epoch} step {i.step}" + (f" ({', '.join(i.roles)})" if i.roles else "") for i in self.list()
        ]
        text = f"there is no {wanted} in {self.directory}; there is: {'; '.join(existing) or 'none at all'}"
        return CheckpointMissingError(". ".join([text, *notes]), notes)

    # -- the directory -----------------------------------------------------------------------------------------------

    def _names(self) -> Names:
        """(path, epoch, step, hash) of every checkpoint by its name, oldest first."""
        paths = self.directory.iterdir() if self.directory.is_dir() else ()
        matches = [(path, match) for path in paths if (match := _NAME.fullmatch(path.name))]
        result = [(path, int(match[1]), int(match[2]), match[3]) for path, match in matches]
        # Two files of one step: a kill came before the older was removed. The later one has more information.
        return sorted(result, key=lambda name: (name[2], name[1], _modified(name[0]), name[3]))

    def _infos(self) -> Infos:
        infos = []
        for path, epoch, step, _ in self._names():
            try:
                info, _ = checkpoint_format.read_header(path)
                size = path.stat().st_size
                metric = None if info["metric"] is None else float(info["metric"])
                rate, loss = float(info["learning_rate"]), float(info["loss"])
                infos.append(CheckpointInfo(path, epoch, step, (), metric, rate, loss, size, bool(info["final"])))
            except (DamagedError, OSError, KeyError, TypeError, ValueError):
                continue  # load() reports it
        return infos

    def _free(self) -> int:
        return shutil.disk_usage(self.directory).free

    def _write_error(self, error: OSError, size: int) -> ResourceError:
        try:
            free = f"{format_size(self._free())} are free there"
        except OSError:
            free = "how much is free is unknown"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "free some space, raise the quota" if full else "make the directory writable"
        return ResourceError(
            f"cannot write a checkpoint to {self.directory}: {error.strerror}; it needs {format_size(size)}, and "
            f"{free}. Earlier checkpoints are untouched: {remedy}, or choose another output directory, and run the same "
            "command again"
        )


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
