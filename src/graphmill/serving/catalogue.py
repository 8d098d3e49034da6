"""Lists models and versions and keeps versions open. Every request notices a switch of ``current``.

Names from requests are looked up among the existing folders and never become part of a path.
"""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphmill.errors import GraphmillError, one_line
from graphmill.promotion.versions import CURRENT, Versions, version_rows
from graphmill.serving.open_version import OpenVersion
from graphmill.serving.problem import RequestError

MOST_OPEN = 4
"""Number of versions kept in memory besides the live ones."""
RETRY_SECONDS = 5.0
RETRYING_SECONDS = 1.0
"""How long one call of :meth:`Catalogue.problems` opens versions again that could not be opened, the oldest tries first."""
Key = tuple[str, str]
VersionKey = tuple[str, str, str]
log = logging.getLogger("graphmill.serving")


class Catalogue:
    """The versions under one folder, ``07_promoted``. All methods may be called by several threads at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._open: OrderedDict[VersionKey, OpenVersion] = OrderedDict()
        self._answering: dict[Key, OpenVersion] = {}
        self._opening: dict[VersionKey, threading.Lock] = {}
        self._reading: set[Key] = set()
        self._failed: dict[VersionKey, tuple[float, str]] = {}  # when it could not be opened, and why
        self._verified: dict[VersionKey, str] = {}
        self._lock, self._checking = threading.Lock(), threading.Lock()

    # -- what there is -----------------------------------------------------------------------------------------------

    def models(self) -> list[dict[str, Any]]:
        """Every model with its live version ("" if none), its number of versions, and of the live version ``when`` it went
        live, its verdict and its metric on validation and test."""
        result = []
        for dataset, model, store in self._stores():
            if rows := version_rows(store):
                live: dict[str, Any] = next((row for row in rows if row["live"]), {})
                about = {name: live.get(name) for name in ("when", "verdict", "metric", "valid", "test")}
                named = {"dataset": dataset, "model": model, "current": live.get("version", "")}
                result.append({**named, "versions": len(rows), **about})
        return result

    def versions(self, dataset: str, model: str) -> list[dict[str, Any]]:
        """The versions of a model, the newest first: name, whether it is live, metrics, and when, why and by whom it
        went live."""
        rows = version_rows(self.store(dataset, model))
        return [{name: value for name, value in row.items() if name != "path"} for row in rows]

    def store(self, dataset: str, model: str) -> Versions:
        """The versions of a model. Raises :class:`RequestError` 404 if there are none, and lists the models."""
        stores = [(d, m, store) for d, m, store in self._stores() if d == dataset]
        if not stores:
            existing = ", ".join(sorted({d for d, _, _ in self._stores()})) or "none"
            raise RequestError(404, f"there is no dataset '{dataset}' (there are: {existing})")
        for _, name, store in stores:
            if name == model:
                return store
        raise RequestError(404, f"{dataset} has no model '{model}' (it has: {', '.join(m for _, m, _ in stores)})")

    def _stores(self) -> list[tuple[str, str, Versions]]:
        return [
            (dataset.name, model.name, Versions(model))
            for dataset in _folders(self.folder)
            for model in _folders(dataset)
        ]

    def problems(self) -> dict[str, str]:
        """Versions that cannot be read or only in part, ``dataset/model/version`` → the reason.

        The files of every version are compared with their hashes once, and live versions opened: at the start, and when
        a version is new or has gone live. While another thread does that, what is known so far is returned.
        """
        if self._checking.acquire(blocking=False):
            try:
                until = time.monotonic() + RETRYING_SECONDS
                with self._lock:
                    tried = {key[:2]: when for key, (when, _) in self._failed.items()}
                for dataset, model, store in sorted(self._stores(), key=lambda each: tried.get(each[:2], 0.0)):
                    self._check((dataset, model), store, until)
            finally:
                self._checking.release()
        with self._lock:
            result = {key: why for key, why in self._verified.items() if why}
            result |= {(*key, each.name): each.problem for key, each in self._answering.items() if each.problem}
            return {"/".join(key): why for key, why in (result | {k: w for k, (_, w) in self._failed.items()}).items()}

    def _check(self, key: Key, store: Versions, until: float) -> None:
        names, live = store.names(), ""
        with suppress(GraphmillError, RequestError):
            live = store.current_name()
            if live and ((*key, live) not in self._failed or time.monotonic() < until):
                self._go_live(key, store)
        for name in names:
            if (*key, name) not in self._verified:
                try:
                    store.read(name).verify("changed")
                    why = ""
                except GraphmillError as error:
                    why = str(error)
                with self._lock:
                    self._verified[*key, name] = why
        with self._lock:  # forget versions that were removed
            for known in (self._verified, self._failed):
                for gone in [each for each in known if each[:2] == key and each[2] not in {*names, live}]:
                    del known[gone]

    # -- what is open ------------------------------------------------------------------------------------------------

    def get(self, dataset: str, model: str, version: str) -> OpenVersion:
        """The version with this name; for ``current``, the live one.

        While a new live version is being read, the previous one answers. Raises :class:`RequestError`: 404 for an
        unknown name, 503 for a version that is damaged.
        """
        store = self.store(dataset, model)
        if version != CURRENT:
            with self._lock:
                if result := self._open.get((dataset, model, version)):
                    return result
            names = store.names()
            if version not in names:
                raise RequestError(
                    404, f"{store.label} has no version '{version}' (it has: {', '.join(names) or 'none'})"
                )
            return self._opened((dataset, model, version), store)
        name, key = store.current_name(), (dataset, model)
        if not name:
            raise RequestError(
                404,
                f"no version of {store.label} is live: graphmill rollback {shlex.quote(store.label)} VERSION sets one",
            )
        with self._lock:
            answering = self._answering.get(key)
            failed_at = self._failed.get((*key, name), (-RETRY_SECONDS, ""))[0]
            due = answering is not None and answering.name != name and key not in self._reading
            due = due and time.monotonic() >= failed_at + RETRY_SECONDS
            if due:
                self._reading.add(key)
        if answering is None:
            return self._go_live(key, store)
        if due:
            threading.Thread(target=self._go_live_aside, args=(key, store), name="open-version", daemon=True).start()
        return answering

    def _go_live_aside(self, key: Key, store: Versions) -> None:
        try:
            with suppress(RequestError):
                self._go_live(key, store)
        finally:
            with self._lock:
                self._reading.discard(key)

    def _go_live(self, key: Key, store: Versions) -> OpenVersion:
        opened = self._opened((*key, store.current_name()), store)
        with self._lock:
            self._answering[key] = opened
        return opened

    def _opened(self, key: VersionKey, store: Versions) -> OpenVersion:
        with self._lock:
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:
            with self._lock:
                if key in self._open:
                    self._open.move_to_end(key)
                    return self._open[key]
                failed_at, why = self._failed.get(key, (-RETRY_SECONDS, ""))
            if time.monotonic() < failed_at + RETRY_SECONDS:
                raise RequestError(503, why)
            try:
                result = OpenVersion(store.read(key[2]))
            except Exception as error:  # any error from a file that is damaged or of another release
                if not isinstance(error, GraphmillError):
                    log.exception("%s/%s/%s", *key)
                reason = error if isinstance(error, GraphmillError | OSError) else one_line(error)
                why = f"{'/'.join(key)} cannot be read: {reason}"
                with self._lock:
                    _, before = self._failed.get(key, (0.0, ""))
                    self._failed[key] = (time.monotonic(), why)
                if why != before:
                    log.warning("%s", why)
                raise RequestError(503, why) from None
            with self._lock:
                self._failed.pop(key, None)
                self._open[key] = result
                live = {id(each) for each in self._answering.values()}
                spare = [k for k, each in self._open.items() if id(each) not in live and k != key]
                for old in spare[: max(len(spare) - MOST_OPEN, 0)]:
                    del self._open[old]
                    self._opening.pop(old, None)
        return result


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))
    except OSError:
        return []
