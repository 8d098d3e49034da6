"""Lists models and versions and keeps versions open. Every request notices a switch of ``current``.

Names from requests are looked up among the existing folders and never become part of a path.
"""

from __future__ import annotations

import logging
import shlex
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphmill.errors import GraphmillError, one_line
from graphmill.promotion.versions import CURRENT, Versions, version_rows
from graphmill.serving.answers import RequestError
from graphmill.serving.open_version import OpenVersion

MOST_OPEN = 4
"""Number of versions kept in memory besides the live ones."""
RETRY_SECONDS = 5.0
"""How long a version that could not be opened is not tried again."""
Key = tuple[str, str]
VersionKey = tuple[str, str, str]
log = logging.getLogger("graphmill.serving")


class Catalogue:
    """The versions under one folder, ``07_promoted``. All methods may be called by several threads at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._open: dict[VersionKey, OpenVersion] = {}
        self._live: dict[Key, OpenVersion] = {}
        self._failed: dict[VersionKey, tuple[float, str]] = {}  # when it could not be opened, and why
        self._verified: dict[VersionKey, str] = {}
        self._opening, self._checking = threading.Lock(), threading.Lock()

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
        a version is new or has gone live.
        """
        with self._checking:
            for dataset, model, store in self._stores():
                names, live = store.names(), ""
                with suppress(GraphmillError, RequestError):
                    if live := store.current_name():
                        self.get(dataset, model, CURRENT)
                for key in [(dataset, model, name) for name in names if (dataset, model, name) not in self._verified]:
                    try:
                        store.read(key[2]).verify("changed")
                        self._verified[key] = ""
                    except GraphmillError as error:
                        self._verified[key] = str(error)
                for known in (self._verified, self._failed):  # forget versions that were removed
                    for key in known.copy():
                        if key[:2] == (dataset, model) and key[2] not in {*names, live}:
                            known.pop(key, None)
        result = {key: why for key, why in self._verified.copy().items() if why}
        result |= {(*key, each.name): each.problem for key, each in self._live.copy().items() if each.problem}
        result |= {key: why for key, (_, why) in self._failed.copy().items()}
        return {"/".join(key): why for key, why in result.items()}

    # -- what is open ------------------------------------------------------------------------------------------------

    def get(self, dataset: str, model: str, version: str) -> OpenVersion:
        """The version with this name; for ``current``, the live one.

        If a new live version is damaged, the previous one goes on answering. Raises :class:`RequestError`: 404 for an
        unknown name, 503 for a version that is damaged.
        """
        store, key = self.store(dataset, model), (dataset, model)
        if version != CURRENT:
            if (*key, version) not in self._open and version not in (names := store.names()):
                raise RequestError(
                    404, f"{store.label} has no version '{version}' (it has: {', '.join(names) or 'none'})"
                )
            return self._opened((*key, version), store)
        name, before = store.current_name(), self._live.get(key)
        if not name:
            raise RequestError(
                404,
                f"no version of {store.label} is live: graphmill rollback {shlex.quote(store.label)} VERSION sets one",
            )
        try:
            self._live[key] = self._opened((*key, name), store)
        except RequestError:
            if before is None:
                raise
        return self._live[key]

    def _opened(self, key: VersionKey, store: Versions) -> OpenVersion:
        if result := self._open.get(key):
            return result
        with self._opening:  # one at a time: many requests for a new version share it
            if result := self._open.get(key):
                return result
            failed_at, before = self._failed.get(key, (-RETRY_SECONDS, ""))
            if time.monotonic() < failed_at + RETRY_SECONDS:
                raise RequestError(503, before)
            try:
                result = OpenVersion(store.read(key[2]))
            except Exception as error:  # any error from a file that is damaged or of another release
                if not isinstance(error, GraphmillError):
                    log.exception("%s/%s/%s", *key)
                reason = error if isinstance(error, GraphmillError | OSError) else one_line(error)
                why = f"{'/'.join(key)} cannot be read: {reason}"
                self._failed[key] = (time.monotonic(), why)
                if why != before:
                    log.warning("%s", why)
                raise RequestError(503, why) from None
            self._failed.pop(key, None)
            self._open[key] = result
            live = {id(each) for each in self._live.values()}
            spare = [k for k, each in self._open.items() if id(each) not in live and k != key]
            for old in spare[: max(len(spare) - MOST_OPEN, 0)]:
                del self._open[old]
        return result


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))
    except OSError:
        return []
