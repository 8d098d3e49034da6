"""Copies promoted versions to ``URL/D/M/<version>/…``, with ``current.json`` naming the live one.

The local folder is authoritative, and the copy follows it. Targets and sinks are stored beside the versions, so that a
rollback writes there, too. They hold for this folder only: in a copy, which may come from anyone, they are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from graphmill.atomic_files import write_atomically, writing
from graphmill.errors import GraphmillError
from graphmill.export.remote import copy_folder, read_pointer, remove_folder, write_pointer
from graphmill.promotion.versions import Versions, now
from graphmill.verified_files import VERSION

FILE = "copies.json"


def note_target(store: Versions, target: str) -> None:
    """Store the target to which the versions are copied; "" keeps the stored one."""
    if target and target != target_of(store):
        _note(store, {"to": target, "sinks": sinks_of(store)})


def note_sinks(store: Versions, sinks: Sequence[str]) -> None:
    """Store the sinks that have the live version's vectors."""
    if list(sinks) != sinks_of(store):
        _note(store, {"to": target_of(store), "sinks": list(sinks)})


def target_of(store: Versions) -> str:
    """The target to which the versions are copied, or ""."""
    return str(_noted(store).get("to", ""))


def sinks_of(store: Versions) -> list[str]:
    """The sinks that have the live version's vectors."""
    found = _noted(store).get("sinks", [])
    return [str(each) for each in found] if isinstance(found, list) else []


def _note(store: Versions, values: dict[str, Any]) -> None:
    with writing(store.path):
        store.path.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**values, "folder": store.path.stat().st_ino})
        write_atomically(store.path / FILE, text.encode())


def _noted(store: Versions) -> dict[str, Any]:
    try:
        found = json.loads((store.path / FILE).read_text(encoding="utf-8"))
        return found if found["folder"] == store.path.stat().st_ino else {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def copy_live(store: Versions, removed: Sequence[str] = ()) -> str:
    """Update the copy to the live version; returns an error message or "". The next promotion or rollback retries it.

    ``removed``: versions that have been removed.
    """
    target, live = target_of(store), store.current()
    if not target or live is None:
        return ""
    folder = f"{target.rstrip('/')}/{store.label}"
    try:
        if read_pointer(folder).get("version") != live.name:
            copy_folder(live.path, f"{folder}/{live.name}", last=VERSION)
            write_pointer(folder, {"version": live.name, "content": live.about["content"], "when": now()})
    except GraphmillError as error:
        return str(error)
    for name in removed:
        remove_folder(f"{folder}/{name}")
    return ""
