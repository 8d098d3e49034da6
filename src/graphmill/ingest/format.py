"""What a format is: all that the rest of the program asks of one, in one place.

A new format is a module with a reader, settings and a ``FORMAT``, a line in :mod:`graphmill.ingest.formats`, and its words
in docs/reference/ingestion.md. The assets, the settings page and ``graphmill ingest-report`` follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from graphmill.errors import InputError
from graphmill.ingest.files import Source
from graphmill.ingest.findings import IngestReport
from graphmill.ingest.row_files import RowFile, kind_of
from graphmill.ingest.tables import IngestResult
from graphmill.settings import Settings

Gives = Literal["edges", "interactions", "interactions and nodes", "interactions and facts", "knowledge", "features"]

ONE_WAY = (("add_reverse", "never"),)
"""Graph settings of triples and interactions: they have one direction, and their system looks at the other by itself."""
PREVIEW_ROWS = 5
PREVIEW_BYTES = 1 << 16


class Preview(NamedTuple):
    """Names of columns and the first rows of a file, before anything is checked; how many of its lines are no rows."""

    names: tuple[str, ...]
    rows: list[dict[str, str]]
    header_lines: int = 0


@dataclass(frozen=True)
class Look:
    """A file or folder at first sight, for formats to recognise. ``files``: those of a folder, by name."""

    path: str

    @cached_property
    def files(self) -> dict[str, Path]:
        """Files of the folder by name; none where the path is a file."""
        folder = Path(self.path)
        if "://" in self.path or not folder.is_dir():
            return {}
        return {file.name: file for file in sorted(folder.iterdir()) if file.is_file() and file.name[0] != "."}

    @property
    def is_folder(self) -> bool:
        """Whether the path is a folder."""
        return "://" not in self.path and Path(self.path).is_dir()

    def file(self, *names: str) -> Look | None:
        """The first of these files in the folder (plain or gzipped), or None."""
        found = (name + packed for name in names for packed in ("", ".gz", ".zip"))
        return next((Look(str(self.files[name])) for name in found if name in self.files), None)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of a table file's columns; none where it is no such file."""
        try:
            if self.is_folder or self.path.removesuffix(".gz").endswith(".npy"):
                return ()
            with RowFile(self.path) as file:
                return file.names
        except InputError:
            return ()

    @cached_property
    def kind(self) -> str:
        """csv, parquet, jsonl, or empty."""
        try:
            return "" if self.is_folder else kind_of(self.path)
        except InputError:
            return ""

    @cached_property
    def lines(self) -> list[str]:
        """The first lines of a text file that are not blank, up to a hundred; none of other files."""
        if self.is_folder:
            return []
        try:
            with Source(self.path) as source:
                text = source.read(PREVIEW_BYTES).decode("utf-8", errors="replace")
        except InputError:
            return []
        whole = text.splitlines() if len(text) < PREVIEW_BYTES else text.splitlines()[:-1]
        return [line for line in whole if line.strip()][:100]


@dataclass(frozen=True)
class Format:
    """One format.

    ``gives``: what its rows are ("interactions and nodes": it knows users and items without an interaction), perhaps by its
    settings. ``read``: location and settings to tables (None: features, which are read onto the nodes of others). ``files``:
    location and settings to the files that are read, by role; None: the location is the one file. ``data_roles``: those
    whose rows are data (a role ``edges:a.csv`` is of ``edges``). ``paths``: settings that name files. ``graph``: graph
    settings that suit it where the YAML says nothing else. ``own_features``: whether it brings features by itself.
    ``out_of_core``: whether files are read that do not fit into memory (:func:`~graphmill.ingest.engine.choose`).
    ``preview``: location, settings and role to the first rows. ``examine``: what ``graphmill ingest-report`` says of a path.
    ``recognises``: how sure it is (0: not at all, 100: certain) that a path is of this format.
    """

    name: str
    settings: type[Settings]
    gives: Gives | Callable[[Any], Gives]
    examine: Callable[[str], IngestReport]
    recognises: Callable[[Look], int]
    read: Callable[[str, Any], IngestResult] | None = None
    files: Callable[[str, Any], Mapping[str, str | Path]] | None = None
    data_roles: tuple[str, ...] = ("",)
    paths: tuple[str, ...] = ()
    graph: tuple[tuple[str, Any], ...] = ()
    own_features: Callable[[Any], bool] = field(default=lambda settings: False)
    out_of_core: bool = False
    preview: Callable[[str, Any, str], Preview] = field(default=lambda *given: table_preview(*given))

    def gives_by(self, settings: Any) -> Gives:
        """What a source with these settings gives."""
        return self.gives(settings) if callable(self.gives) else self.gives

    def is_data(self, role: str) -> bool:
        """Whether the rows of the file of this role are data."""
        return role.partition(":")[0] in self.data_roles


def table_preview(location: str, settings: Any, role: str = "") -> Preview:
    """The first rows of a table file."""
    with RowFile(location, getattr(settings, "delimiter", "auto")) as file:
        return Preview(file.names, file.first(PREVIEW_ROWS), file.header.first_line - 1 if file.kind == "csv" else 0)


def lines_preview(location: str, names: tuple[str, ...], mark: str | None) -> Preview:
    """The first lines of a text file, cut into as many cells as there are names."""
    with Source(location) as file:
        lines = file.read(PREVIEW_BYTES).decode("utf-8", errors="replace").splitlines()
    rows = [dict(zip(names, line.split(mark, len(names) - 1), strict=False)) for line in lines[:PREVIEW_ROWS]]
    return Preview(names, rows)
