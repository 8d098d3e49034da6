"""The promoted versions of one model: immutable folders, and ``current``, a symbolic link to the live one.

``data/07_promoted/D/M/`` holds ``0001-<hash>/``, ``0002-<hash>/``, ..., ``current``, ``history.json`` and ``.lock``. A
folder is published by one rename and never changes. ``current`` is switched by one rename. A reader resolves the link
once (:meth:`Versions.current`) and uses that folder, so a switch cannot mix two versions. ``contents`` decides what is
in a version; ``policy`` decides which run becomes one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from graphmill.atomic_files import os_error_in_a_sentence, sync, write_atomically
from graphmill.errors import InputError, ResourceError, one_line
from graphmill.export.manifests import FORMAT_NUMBER, VERSION_FORMAT, read_version
from graphmill.locks import locked
from graphmill.verified_files import REMEDIES, VERSION, Verify, describe_file, note_of, sealed, verify_files

CURRENT = "current"
HISTORY = "history.json"
_NAME = re.compile(r"(\d{4,})-([0-9a-f]{8})")
_PARTIAL, _REMOVED, _LINK = ".partial-", ".removed-", ".current-"
_LOOKS = 50


class VersionChangedError(InputError):
    """Another version went live between the comparison and the switch."""


@dataclass(frozen=True)
class Version:
    """One version: its folder and its ``version.json``."""

    path: Path
    about: Mapping[str, Any] = field(compare=False)

    @property
    def name(self) -> str:
        """The folder's name, such as ``0003-1a2b3c4d``."""
        return self.path.name

    @property
    def number(self) -> int:
        """The version's number, in the order in which versions were made."""
        return int(self.name.split("-")[0])

    def verify(self, verify: Verify = "always") -> None:
        """Compare every file with its hash. Raises :class:`InputError` for the first file that has changed, and names
        it."""
        verify_files(self.path, self.about["files"], REMEDIES[VERSION_FORMAT], verify)


@dataclass(frozen=True)
class Switch:
    """One change of ``current``: the two versions, when, by whom and why."""

    kind: Literal["promoted", "rolled back"]
    before: str
    after: str
    when: str
    by: str
    why: str


class Versions:
    """The versions under one folder. Reading takes no lock; every change is made under :meth:`lock`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def label(self) -> str:
        """``D/M``."""
        return f"{self.path.parent.name}/{self.path.name}"

    # -- reading -----------------------------------------------------------------------------------------------------

    def current(self) -> Version | None:
        """The live version, or None if nothing has been promoted yet.

        Raises:
            InputError: ``current`` points to nothing, or not to a version.
        """
        for _ in range(_LOOKS):
            name = self.current_name()
            if not name:
                return None
            if (self.path / name).is_dir():
                return self.read(name)
            # Since the link was read, another version may have gone live and this one may have been removed.
            if name == self.current_name():
                break
        raise InputError(
            f"{self.path / CURRENT} leads to {name}, which is not there; "
            f"`graphmill rollback {shlex.quote(self.label)} VERSION` sets it"
        )

    def current_name(self) -> str:
        """The name in the link ``current``, or "" if there is none."""
        try:
            return os.readlink(self.path / CURRENT)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise InputError(f"{self.path / CURRENT} is not a symbolic link ({error.strerror}); remove it") from None

    def names(self) -> list[str]:
        """The names of all versions, the oldest first."""
        if not self.path.is_dir():
            return []
        folders = [path.name for path in self.path.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(folders, key=lambda name: int(name.split("-")[0]))

    def all(self) -> list[Version]:
        """All versions, the oldest first."""
        versions = []
        for name in self.names():
            try:
                versions.append(self.read(name))
            except InputError:
                if (self.path / name).is_dir():  # else it was removed in the meantime
                    raise
        return versions

    def find(self, wanted: str) -> Version:
        """The version with this name, number or prefix of its hash. Up to six digits are a number.

        Raises:
            InputError: there is none, or there are several; the message lists all versions.
        """
        known = self.all()
        number = int(wanted) if wanted.isdigit() and len(wanted) <= 6 else -1
        matching = [v for v in known if v.name == wanted] or [v for v in known if v.number == number]
        if not matching and wanted and number < 0:
            matching = [v for v in known if v.name.split("-")[1].startswith(wanted)]
        if len(matching) == 1:
            return matching[0]
        names = ", ".join(v.name for v in known) or "none"
        what = "no version" if not matching else "more than one version"
        raise InputError(f"{self.label} has {what} '{wanted}'; there are: {names}")

    def history(self) -> list[Switch]:
        """Every switch that took place, the oldest first."""
        try:
            written = TypeAdapter(list[Switch]).validate_json((self.path / HISTORY).read_bytes())
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise InputError(f"{self.path / HISTORY} cannot be read: {one_line(error)}") from None
        # An entry is written before its switch. The switch took place if the next entry, or the link, confirms it.
        after = [entry.before for entry in written[1:]] + [self.current_name()]
        return [entry for entry, name in zip(written, after, strict=True) if entry.after == name]

    def read(self, name: str) -> Version:
        """The version in the folder ``name``. Raises :class:`InputError` if its ``version.json`` is missing or damaged."""
        return Version(self.path / name, read_version(self.path / name))

    # -- changing ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self, wait_seconds: float = 600.0) -> Iterator[None]:
        """Hold the lock for changing versions. The system releases it whenever and however the process ends.

        Raises:
            RunLockedError: another process held it for ``wait_seconds``; the message names it.
            ResourceError: the folder cannot be written, or its file system has no locks.
        """
        with os_error_in_a_sentence(f"{self.path} cannot be written", "make it writable"):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path, f"the folder of the versions of {self.label}", wait_seconds):
            self._clean()
            yield

    def _clean(self) -> None:
        """Remove what killed processes left: unfinished folders, unfinished removals, temporary links. The lock must be
        held."""
        for path in self.path.iterdir():
            if path.name.startswith((_PARTIAL, _REMOVED)):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(_LINK):
                path.unlink(missing_ok=True)

    def add(self, fill: Callable[[Path], Mapping[str, Any]]) -> Version:
        """Make a version under the lock: ``fill`` writes its files into a folder and returns what ``version.json`` says.

        An existing version with the same content is returned instead of a copy. Files that ``fill`` names under
        ``derived`` do not count as content. If ``fill`` raises, nothing is left. The version is not live yet
        (:meth:`switch`).
        """
        scratch = self.path / f"{_PARTIAL}{os.getpid()}"
        try:
            scratch.mkdir()
            about = dict(fill(scratch))
            files = {path.name: describe_file(path) for path in sorted(scratch.iterdir())}
            copied = {name: entry for name, entry in files.items() if name not in about.get("derived", ())}
            content = hashlib.sha256(json.dumps(copied, sort_keys=True).encode()).hexdigest()
            known = self.all()
            for version in known:
                if version.about["content"] == content:
                    return version
            number = max((version.number for version in known), default=0) + 1
            about = {
                "format": VERSION_FORMAT,
                "version": FORMAT_NUMBER,
                "made": now(),
                "content": content,
                "files": files,
                **about,
            }
            text = json.dumps(sealed(about), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
            (scratch / VERSION).write_text(text + "\n", encoding="utf-8")
            for path in scratch.iterdir():
                _sync_file(path)
            sync(scratch)
            final = self.path / f"{number:04d}-{content[:8]}"
            os.replace(scratch, final)
            sync(self.path)
            return self.read(final.name)
        except OSError as error:
            raise ResourceError(f"no version could be written to {self.path}: {error.strerror or error}") from None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def switch(self, version: Version, *, kind: Literal["promoted", "rolled back"], by: str, why: str) -> Switch:
        """Make ``version`` live, under the lock. If it is already live, nothing changes, and there is no entry."""
        before = self.current_name()
        entry = Switch(kind, before, version.name, now(), by, why)
        if before == version.name:
            return entry
        entries = [asdict(each) for each in self.history()] + [asdict(entry)]
        try:
            write_atomically(self.path / HISTORY, (json.dumps(entries, indent=1, ensure_ascii=False) + "\n").encode())
            link = self.path / f"{_LINK}{os.getpid()}"
            link.unlink(missing_ok=True)
            os.symlink(version.name, link)
            os.replace(link, self.path / CURRENT)
            sync(self.path)
        except OSError as error:
            raise ResourceError(f"{self.path / CURRENT} could not be switched: {error.strerror}") from None
        return entry

    def before(self) -> Version:
        """Return the version that a rollback restores: the newest one older than the live one that has been live.

        Raises:
            InputError: nothing is live, or no older version was live.
        """
        live = self.current()
        if live is None:
            raise InputError(f"{self.label} has no live version to roll back")
        once = {name for entry in self.history() for name in (entry.before, entry.after)}
        older = [v for v in self.all() if v.number < live.number and v.name in once]
        if not older:
            raise InputError(
                f"{live.name} is the oldest version of {self.label} that is kept; there is no older one to roll back to"
            )
        return older[-1]

    def prune(self, keep: int) -> list[str]:
        """Remove, under the lock, all but the ``keep`` newest versions; returns their names.

        It never removes the live version and the one before it.
        """
        known, history = self.all(), self.history()
        spared = {version.name for version in known[max(len(known) - keep, 0) :]} | {self.current_name()}
        if history:
            spared.add(history[-1].before)
        gone = [version for version in known if version.name not in spared]
        for version in gone:
            aside = version.path.with_name(_REMOVED + version.name)
            os.replace(version.path, aside)
            shutil.rmtree(aside, ignore_errors=True)
            note_of(version.path).unlink(missing_ok=True)
        return [version.name for version in gone]


def folder_of(what: str, folder: Path) -> Path:
    """The path of a run directory, of a version (its folder, ``D/M`` for the live one, ``D/M/VERSION``), or of a file.

    ``folder``: the folder of the versions of all models. Raises :class:`InputError` for anything else.
    """
    path = Path(what)
    if path.is_symlink():  # `current` is a link: use the version that it names now
        path = path.resolve()
    if path.exists():
        return path
    parts = [part for part in what.split("/") if part]
    if len(parts) in (2, 3) and ".." not in parts:
        store = Versions(folder / parts[0] / parts[1])
        if store.path.is_dir():
            version = store.find(parts[2]) if len(parts) == 3 else store.current()
            if version is not None:
                return version.path
    raise InputError(f"{what} is not a run directory, a version (DATASET/MODEL or DATASET/MODEL/VERSION) or a file")


def version_rows(store: Versions) -> list[dict[str, Any]]:
    """One row per version, the newest first, with the switch that last made it live; ``problem``: why it cannot be read."""
    history, live, rows = store.history(), store.current_name(), []
    for name in reversed(store.names()):
        last = next((entry for entry in reversed(history) if entry.after == name), None)
        about: Mapping[str, Any] = {"made": "", "selection_metric": "", "metrics": {}, "run_dir": ""}
        problem = ""
        try:
            about = store.read(name).about
        except InputError as error:
            problem = str(error)
        metric, figures = about["selection_metric"], about["metrics"]
        rows.append(
            {
                "version": name,
                "live": name == live,
                "when": last.when if last else about["made"],
                "kind": last.kind if last else "never live",
                "why": last.why if last else "",
                "by": last.by if last else "",
                "verdict": about.get("verdict") or {},
                "metric": metric,
                "valid": figures.get(f"valid_{metric}"),
                "test": figures.get(f"test_{metric}"),
                "snapshot": about.get("snapshot", ""),
                "left": about.get("left") or {},
                "run_dir": about["run_dir"],
                "path": str(store.path / name),
                "problem": problem,
            }
        )
    return rows


def now() -> str:
    """The current time as ``2026-11-26T10:00:00Z``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
