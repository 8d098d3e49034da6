"""Snapshots of a dataset: sources whose path has ``{partition}`` have one file, or folder, for each snapshot.

A snapshot's name is what stands for ``{partition}``. Names are ordered as people do: ``2024-9`` is before ``2024-10``.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import fsspec

from graphmill.atomic_files import replacing
from graphmill.errors import InputError, SettingsError
from graphmill.ingest.files import is_binary, lines_of, path_text
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.sources import ADDED, SourceFile
from graphmill.settings import Settings, setting

PLACE = "{partition}"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*(\.[A-Za-z0-9_+-]+)*")


class SnapshotSettings(Settings):
    """How the files of snapshots make a graph, and how many snapshots are kept."""

    mode: Literal["replace", "append"] = setting(
        "replace",
        "replace: a snapshot's files are the whole dataset; append: they are added to those of the snapshots before it",
    )
    keep: int = setting(
        0, "Number of snapshots whose graphs and runs are kept, the newest and the live ones; 0: all of them", ge=0
    )


def require_places(sources: Sequence[SourceFile], settings: SnapshotSettings | None) -> None:
    """Raise :class:`SettingsError` if ``{partition}`` and the section ``partitions`` do not fit together."""
    varying = [source for source in sources if PLACE in source.path]
    if settings is None:
        if varying:
            raise SettingsError(
                f"source {varying[0].name!r} has {PLACE} in its path: add `partitions: {{mode: replace}}` to the dataset, "
                "or remove it"
            )
        return
    (main,) = [source for source in sources if source.gives not in ADDED]
    if main not in varying:
        raise SettingsError(
            f"partitions: the path of source {main.name!r} has no {PLACE}; write it where the snapshot's name stands, such "
            f"as data/01_raw/{PLACE}/kg.csv"
        )
    if settings.mode == "append" and (folders := [s for s in varying if FORMATS[s.format].files is not None]):
        raise SettingsError(
            f"partitions: mode append joins text files, and source {folders[0].name!r} ({folders[0].format}) is a folder: "
            "use mode replace"
        )


def order(name: str) -> list[tuple[int, int, str]]:
    """The sort key of a snapshot's name: numbers in it are compared as numbers."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def checked_snapshot(name: str) -> str:
    """``name`` if it can be that of a snapshot, and of its folder. Raises :class:`InputError` otherwise."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"snapshot {name!r}: a name has letters, digits, '_', '-', '+' and single dots only; rename its file or folder"
        )
    return name


def snapshot_names(sources: Sequence[SourceFile]) -> list[str]:
    """The names of all snapshots of which a source has a file, the oldest first.

    Raises:
        InputError: a name cannot be that of a folder, two differ only in case, or the folder cannot be read.
    """
    matches = {name for source in sources if PLACE in source.location for name in _matches(source.location)}
    names = [checked_snapshot(name) for name in sorted(matches, key=order)]
    folded: dict[str, str] = {}
    for name in names:
        if (other := folded.setdefault(name.casefold(), name)) != name:
            raise InputError(
                f"two snapshots are named {other!r} and {name!r}, which some disks take for one; rename one"
            )
    return names


def _matches(location: str) -> list[str]:
    try:
        filesystem, inner = fsspec.core.url_to_fs(location)
        filesystem.invalidate_cache()
        literal = [re.sub(r"([*?\[])", r"[\1]", part) for part in inner.split(PLACE)]
        paths: list[str] = filesystem.glob("*".join(literal))
    except Exception as error:  # any error of a file system's client; its text may contain a token
        raise InputError(f"the snapshots of {path_text(location)} cannot be listed ({type(error).__name__})") from None
    first, *rest = (re.escape(part) for part in inner.split(PLACE))
    pattern = re.compile(f"{first}(?P<name>[^/]+){'(?P=name)'.join(rest)}")
    return [match["name"] for path in paths if (match := pattern.fullmatch(path)) and match["name"][0] != "."]


def at_snapshot(source: SourceFile, name: str) -> SourceFile:
    """The source with the snapshot's name in its paths."""
    return replace(
        source,
        path=source.path.replace(PLACE, name),
        location=source.location.replace(PLACE, name),
    )


def joined(source: SourceFile, names: Iterable[str], target: Path) -> None:
    """Write the text of the source's files of all these snapshots into one file, with one header.

    Raises :class:`InputError` if a file is missing or not text, or if two have different headers.
    """
    parts = [at_snapshot(source, name).location for name in names]
    for part in parts:
        if is_binary(part):
            raise InputError(f"{path_text(part)} is not text, and partitions: mode append joins text: use mode replace")
    lines, header = 0, list[bytes]()
    if opened := FORMATS[source.format].opened:
        with opened(parts[0], source.settings) as table:
            lines = table.header.first_line - 1
    with replacing(target) as file:
        for part in parts:
            content = (line for _, line in lines_of(part))
            head = list(islice(content, lines))
            if header and head != header:
                raise InputError(
                    f"{path_text(part)} has another header than {path_text(parts[0])}: give both the same columns"
                )
            file.file.writelines(line + b"\n" for line in chain(() if header else head, content))
            header = head
