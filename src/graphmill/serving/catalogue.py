"""Lists models and versions and keeps versions open. Every request notices a switch of ``current``.

Names from requests are looked up among the existing folders and never become part of a path.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from graphmill.errors import GraphmillError, one_line
from graphmill.promotion.versions import CURRENT, Version, Versions, version_rows
from graphmill.serving.open_version import OpenVersion
from graphmill.serving.problem import RequestError

MOST_OPEN = 4
"""Number of versions kept in memory besides the live ones."""
RETRY_SECONDS = 5.0
Key = tuple[str, str]
log = logging.getLogger("graphmill.serving")


class Catalogue:
    """The versions under one folder, ``07_promoted``. All methods may be called by several threads at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._open: OrderedDict[tuple[str, str, str], OpenVersion] = OrderedDict()
        self._answering: dict[Key, OpenVersion] = {}
        self._opening: dict[tuple[str, str, str], threading.Lock] = {}
        self._reading: set[Key] = set()
        self._failed: dict[Key, tuple[float, str]] = {}
        self._lock = threading.Lock()

    # -- what there is -----------------------------------------------------------------------------------------------

    def models(self) -> list[dict[str, Any]]:
        """Every model with its live version ("" if none) and its number of versions."""
        found = []
        for dataset, model, store in self._stores():
            names = [version.name for version in store.all()]
            if names:
                found.append(
                    {"dataset": dataset, "model": model, "current": store.current_name(), "versions": len(names)}
                )
        return found

    def versions(self, dataset: str, model: str) -> list[dict[str, Any]]:
        """The versions of a model, the newest first: name, whether it is live, metrics, and when, why and by whom it
        went live."""
        rows = version_rows(self.store(dataset, model))
        return [{name: value for name, value in row.items() if name != "path"} for row in rows]

    def store(self, dataset: str, model: str) -> Versions:
        """The versions of a model. Raises :class:`RequestError` 404 if there are none, and lists the models."""
        stores = [(d, m, store) for d, m, store in self._stores() if d == dataset]
        if not stores:
            there = ", ".join(sorted({d for d, _, _ in self._stores()})) or "none"
            raise RequestError(404, f"there is no dataset '{dataset}' (there are: {there})")
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
        """Live versions that could not be opened, with the reason. The previous live version answers for them."""
        with self._lock:
            return {"/".join(key): why for key, (_, why) in self._failed.items()}

    # -- what is open ------------------------------------------------------------------------------------------------

    def get(self, dataset: str, model: str, version: str) -> OpenVersion:
        """The version with this name; for ``current``, the live one.

        While a new live version is being read, the previous one answers. Raises :class:`RequestError`: 404 for an
        unknown name, 503 for a version that is damaged.
        """
        store = self.store(dataset, model)
        if version != CURRENT:
            with self._lock:
                if found := self._open.get((dataset, model, version)):
                    return found
            names = {each.name: each for each in store.all()}
            if version not in names:
                raise RequestError(
                    404, f"{store.label} has no version '{version}' (it has: {', '.join(names) or 'none'})"
                )
            return self._opened((dataset, model, version), names[version])
        name, key = store.current_name(), (dataset, model)
        if not name:
            raise RequestError(
                404, f"no version of {store.label} is live: graphmill rollback {store.label} VERSION sets one"
            )
        with self._lock:
            answering = self._answering.get(key)
            failed_at = self._failed.get(key, (-RETRY_SECONDS, ""))[0]
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
            self._go_live(key, store)
        except RequestError as problem:
            log.warning("%s", problem)
            with self._lock:
                self._failed[key] = (time.monotonic(), str(problem))
        finally:
            with self._lock:
                self._reading.discard(key)

    def _go_live(self, key: Key, store: Versions) -> OpenVersion:
        try:
            version = store.current()
        except GraphmillError as error:
            raise RequestError(503, str(error)) from None
        if version is None:
            raise RequestError(404, f"no version of {store.label} is live")
        opened = self._opened((*key, version.name), version)
        with self._lock:
            self._answering[key] = opened
            self._failed.pop(key, None)
        return opened

    def _opened(self, key: tuple[str, str, str], version: Version) -> OpenVersion:
        with self._lock:
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:
            with self._lock:
                if key in self._open:
                    self._open.move_to_end(key)
                    return self._open[key]
            try:
                found = OpenVersion(version)
            except Exception as error:  # any error from a file that is damaged or of another release
                if not isinstance(error, GraphmillError):
                    log.exception("%s/%s %s", *key[:2], version.name)
                why = error if isinstance(error, GraphmillError | OSError) else one_line(error)
                raise RequestError(503, f"{key[0]}/{key[1]} {version.name} cannot be read: {why}") from None
            with self._lock:
                self._open[key] = found
                live = {id(each) for each in self._answering.values()}
                spare = [k for k, each in self._open.items() if id(each) not in live and k != key]
                for old in spare[: max(len(spare) - MOST_OPEN, 0)]:
                    del self._open[old]
                    self._opening.pop(old, None)
        return found


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))
    except OSError:
        return []
