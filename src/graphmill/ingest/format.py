"""The definition of a format: everything that the rest of the program needs to know about it.

A new format needs a module with a reader, settings and a ``FORMAT``, a line in :mod:`graphmill.ingest.formats`, and a
section in docs/reference/ingestion.md. The assets, the settings page and ``graphmill ingest-report`` then support it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from graphmill.errors import InputError
from graphmill.ingest.files import Source, first_lines
from graphmill.ingest.findings import IngestReport
from graphmill.ingest.names import ROWS, Probe, has_header
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import IngestResult
from graphmill.settings import Settings

Gives = Literal[
    "edges", "interactions", "interactions and nodes", "interactions and facts", "knowledge", "features", "attributes"
]

ONE_WAY = (("add_reverse", "never"),)
"""Graph settings for triples and interactions: no reverses, because their systems handle the other direction themselves."""
PREVIEW_ROWS = 5
PREVIEW_BYTES = 1 << 16


class Preview(NamedTuple):
    """Names of columns and the first rows of a file, unchecked, and the number of its lines that are not rows."""

    names: tuple[str, ...]
    rows: list[dict[str, str]]
    header_lines: int = 0


class Guess(NamedTuple):
    """How a format would read a path: its settings, a remark on each guess, and the role of each column by its name."""

    settings: dict[str, Any]
    remarks: list[str] = []  # noqa: RUF012 - never changed
    parts: dict[str, str] = {}  # noqa: RUF012


def probe_of(file: RowFile) -> Probe:
    """The first rows of an open table, whose first line may be a row or have names."""
    names, rows = file.names, [tuple(row) for row in file.cells(ROWS)]
    sure = file.kind != "csv" or file.header.commented
    header = True if sure else has_header(names, rows)
    if header is False or (header is None and file.delimiter in ("\t", " ")):
        rows, names = [names, *rows], tuple(map(str, range(len(names))))
    return Probe(names, header, tuple(rows))


@dataclass(frozen=True)
class Candidate:
    """A file or folder that formats try to recognise. ``files``: the files of a folder, by name."""

    path: str

    @cached_property
    def files(self) -> dict[str, Path]:
        """The folder's files by name; empty if the path is a file."""
        folder = Path(self.path)
        if "://" in self.path or not folder.is_dir():
            return {}
        return {file.name: file for file in sorted(folder.iterdir()) if file.is_file() and file.name[0] != "."}

    @property
    def is_folder(self) -> bool:
        """Whether the path is a folder."""
        return "://" not in self.path and Path(self.path).is_dir()

    def file(self, *names: str) -> Candidate | None:
        """The first of these files in the folder (plain or gzipped), or None."""
        candidates = (name + packed for name in names for packed in ("", ".gz", ".zip"))
        return next((Candidate(str(self.files[name])) for name in candidates if name in self.files), None)

    @cached_property
    def _table(self) -> tuple[tuple[str, ...], Probe | None, str]:
        try:
            if self.is_folder or self.path.removesuffix(".gz").endswith(".npy"):
                return (), None, ""
            with RowFile(self.path) as file:
                with suppress(InputError):
                    return file.names, probe_of(file), file.kind
                return file.names, None, file.kind
        except InputError:
            return (), None, ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of a table file's columns; empty for other files."""
        return self._table[0]

    @property
    def probe(self) -> Probe | None:
        """The first rows of a table file; None for other files."""
        return self._table[1]

    @property
    def kind(self) -> str:
        """csv, parquet, jsonl, or empty."""
        return self._table[2]

    @cached_property
    def lines(self) -> list[str]:
        """The first lines of a text file that are not blank, at most a hundred; empty for other files and folders."""
        try:
            with Source(self.path) as source:
                data = source.read(PREVIEW_BYTES)
        except InputError:
            return []
        whole = data if len(data) < PREVIEW_BYTES else data.rpartition(b"\n")[0]
        return first_lines(whole)[:100]


def table_guess(
    candidate: Candidate, columns: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, Any], list[str], RowFile]:
    """The names of a table's columns, the settings and remarks that its separator and its header need, and the closed file.
    ``columns``: role → column."""
    with RowFile(candidate.path, wanted=list(columns.values())) as file:
        names, mark, remarks = file.names, file.delimiter, list[str]()
    settings: dict[str, Any] = {"delimiter": {"\t": "tab", " ": "space"}.get(mark, mark)} if mark != "," else {}
    probe = candidate.probe
    if probe is not None and probe.header is False and not set(columns.values()) - set(probe.names):
        names, settings["header"] = probe.names, False
        remarks = ["the first line is a row: its columns are called 0, 1, …"]
    return names, settings, remarks, file


@dataclass(frozen=True)
class Format:
    """One format.

    ``gives``: the kind of its rows, which may depend on its settings ("interactions and nodes": also users and items
    without an interaction). ``read``: function from location and settings to tables (None: features and attributes, which
    are added to the nodes of other sources). ``files``: function from location and settings to the files, by role; None: the
    location is the only file. ``data_roles``: roles whose rows are data (the role ``edges:a.csv`` belongs to
    ``edges``). ``graph``: default graph settings. ``brings_features``: whether it has
    features itself. ``preview``: function from location, settings and role to the first rows.
    ``recognises``: function that returns how likely a path is of this format (0: not at all, 100: certain). ``guess``:
    function from a candidate and the columns that are named (role → column) to the settings with which the path is read; it
    raises :class:`InputError` if it cannot tell. ``suited``: the graph settings of a generated YAML.
    ``examine``: makes the report itself, in place of these.
    """

    name: str
    settings: type[Settings]
    gives: Gives | Callable[[Any], Gives]
    recognises: Callable[[Candidate], int]
    read: Callable[[str, Any], IngestResult] | None = None
    files: Callable[[str, Any], Mapping[str, str | Path]] | None = None
    data_roles: tuple[str, ...] = ("",)
    graph: tuple[tuple[str, Any], ...] = ()
    brings_features: Callable[[Any], bool] = field(default=lambda settings: False)
    preview: Callable[[str, Any, str], Preview] = field(default=lambda *given: table_preview(*given))
    guess: Callable[[Candidate, Mapping[str, str]], Guess] = field(
        default=lambda candidate, columns: no_columns(columns)
    )
    suited: Callable[[IngestResult], Mapping[str, Any]] = field(default=lambda result: {})
    examine: Callable[[str], IngestReport] | None = None

    def gives_by(self, settings: Any) -> Gives:
        """The kind of rows of a source with these settings."""
        return self.gives(settings) if callable(self.gives) else self.gives

    def is_data(self, role: str) -> bool:
        """Whether the rows of the file of this role are data."""
        return role.partition(":")[0] in self.data_roles


def no_columns(columns: Mapping[str, str]) -> Guess:
    """The guess of a format whose columns have no names. Raises :class:`InputError` if some are named."""
    if columns:
        raise InputError(f"columns of this format cannot be named ({', '.join(columns)}); leave --columns out")
    return Guess({})


def table_preview(location: str, settings: Any, role: str = "") -> Preview:
    """The first rows of a table file."""
    header = getattr(settings, "header", True)
    with RowFile(location, getattr(settings, "delimiter", "auto"), header_line=header) as file:
        return Preview(file.names, file.first(PREVIEW_ROWS), file.header.first_line - 1 if file.kind == "csv" else 0)


def lines_preview(location: str, names: tuple[str, ...], mark: str | None) -> Preview:
    """The first lines of a text file, split into as many cells as there are names."""
    with Source(location) as file:
        lines = first_lines(file.read(PREVIEW_BYTES))
    rows = [dict(zip(names, line.split(mark, len(names) - 1), strict=False)) for line in lines[:PREVIEW_ROWS]]
    return Preview(names, rows)
