"""The definition of a format, everything that the rest of the program needs to know about it, and of a report on a path.

A new format needs a module with a reader, settings and a ``FORMAT``, a line in :mod:`graphmill.ingest.formats`, and a
section in docs/reference/ingestion.md. The assets, the settings page and ``graphmill ingest-report`` then support it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from graphmill.errors import InputError
from graphmill.ingest.files import Source, first_lines, path_text
from graphmill.ingest.names import ROWS, Probe, has_header
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import IngestResult
from graphmill.settings import Settings

FIRST_REJECTS = 10
SMALL = 50_000
"""With as many edges or fewer, the choice of a system that `init` writes has a minute, else ten."""
_MOST_KINDS = 30


@dataclass(frozen=True)
class IngestReport:
    """The findings about one path.

    ``columns``: name, part (the column's role; empty: skipped) and an example. ``problem``: why the path cannot be
    used, empty if it can. ``node_types`` and ``relations``: numbers of nodes and edges of each. ``documents``: of a
    ``defs.yaml``, empty if none can be written.
    """

    file: str
    format: str
    columns: list[dict[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    problem: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    node_types: dict[str, int] = field(default_factory=dict)
    relations: dict[str, int] = field(default_factory=dict)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    coverage: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = asdict(self)
        del values["documents"]
        return {**values, "defs": self.defs}

    @property
    def defs(self) -> str:
        """The ``defs.yaml``, or ""."""
        if not self.documents:
            return ""
        return str(yaml.safe_dump_all(self.documents, sort_keys=False, allow_unicode=True, width=110))

    def text(self) -> str:
        """The report as text."""
        parts = [f"{self.file}, read as {self.format}"]
        if self.columns:
            rows = [[c["name"], c["part"] or "(skipped)", c["example"]] for c in self.columns]
            parts.append(_aligned([["column", "taken for", "first value"], *rows]))
        parts.extend([_listed("Guessed", self.remarks), f"CANNOT BE USED: {self.problem}" if self.problem else ""])
        counts = [[name.replace("_", " "), f"{number:,}"] for name, number in self.counts.items() if number]
        parts.append(_aligned([["count", ""], *counts]) if counts else "")
        for title, numbers in (("nodes of type", self.node_types), ("edges of relation", self.relations)):
            kinds = [[name, f"{number:,}"] for name, number in list(numbers.items())[:_MOST_KINDS]]
            more = [[f"… and {len(numbers) - _MOST_KINDS} more", ""]] if len(numbers) > _MOST_KINDS else []
            parts.append(_aligned([[title, ""], *kinds, *more]) if kinds else "")
        parts.append(coverage_text(self.coverage))
        parts.append(_listed("Notes", self.notes))
        bad = [[str(r["line"]), r["column"], r["reason"], r["value"]] for r in self.rejects]
        parts.append(_aligned([["line", "column", "reason", "value"], *bad]) if bad else "")
        parts.append(f"defs.yaml:\n\n{self.defs}" if self.defs else "")
        return "\n\n".join(part.rstrip() for part in parts if part)


def coverage_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of how ids of sources match, as text; "" without a pair of sources."""
    cells = [
        [f"{row['first']} in {row['second']}", f"{row['matched']:,} of {row['ids']:,}", f"{row['share']:.0%}",
         ", ".join(map(repr, row["samples"])), row["repair"]]
        for row in rows
    ]  # fmt: skip
    return _aligned([["ids of", "match", "share", "others, such as", "repair"], *cells]) if cells else ""


def all_types(result: IngestResult) -> dict[str, Any]:
    """The section ``graph`` of the YAML for a knowledge graph with typed nodes."""
    split = {"valid": 0.05, "test": 0.05, "seed": 0}
    return {"include_node_types": list(counted(result.nodes["type"])), "add_reverse": "missing", "split": split}


def listed_columns(names: Sequence[str], parts: Mapping[str, str], first: Mapping[str, str]) -> list[dict[str, str]]:
    """Columns for the report: their names, roles and first values."""
    return [{"name": name, "part": parts.get(name, ""), "example": str(first.get(name, ""))[:60]} for name in names]


def counted(column: pa.ChunkedArray) -> dict[str, int]:
    """The frequency of each value, most frequent first."""
    pairs = ((v["values"], v["counts"]) for v in pc.value_counts(column.cast(pa.string())).to_pylist())
    return dict(sorted(pairs, key=lambda pair: -pair[1]))


def dataset_name(path: str) -> str:
    """A name for the dataset, from the file or folder, that can be part of an asset key."""
    stem = path_text(path).rstrip("/").rpartition("/")[2].partition(".")[0]
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in stem).strip("_").lower()
    return name if name and not name[0].isdigit() else f"dataset_{name}".rstrip("_")


def documents_of(
    name: str, source: Mapping[str, Any], predicts: str, graph: Mapping[str, Any], edges: int
) -> list[dict[str, Any]]:
    """A dataset of so many ``edges`` and a model on it, for a defs.yaml. ``predicts``: the section of its predictions."""
    dataset = {"name": name, "sources": [dict(source)]} | ({"graph": dict(graph)} if graph else {})
    dataset["watch"] = {"enabled": True, "interval_seconds": 60}
    model = {
        "dataset": name,
        "system": "auto",
        "settings": {"budget": "1min" if edges <= SMALL else "10min"},
        predicts: {},
    }
    model["checks"] = {"severity": "warn"}
    return [
        {"type": f"graphmill.components.{kind}", "attributes": attributes}
        for kind, attributes in (("GraphDataset", dataset), ("EmbeddingModel", model))
    ]


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _listed(title: str, lines: list[str]) -> str:
    return "\n".join([f"{title}:", *(f"- {line}" for line in lines)]) if lines else ""


Gives = Literal["edges", "interactions", "interactions and facts", "knowledge", "features", "attributes"]

ONE_WAY = (("add_reverse", "never"),)
"""Graph settings for triples and interactions: no reverses, because their systems handle the other direction themselves."""
_START_BYTES = 1 << 16


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
                data = source.read(_START_BYTES)
        except InputError:
            return []
        whole = data if len(data) < _START_BYTES else data.rpartition(b"\n")[0]
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

    ``gives``: the kind of its rows, which may depend on its settings. ``read``: function from location and settings to
    tables (None: features and attributes, which are added to the nodes of other sources). ``files``: function from location
    and settings to the files, by role; None: the location is the only file. ``graph``: default graph settings.
    ``brings_features``: whether it has features itself.
    ``opened``: function from location and settings to the open table; None if the format has none. ``recognises``: function
    that returns how likely a path is of this format (0: not at all, 100: certain). ``guess``: function from a candidate and
    the columns that are named (role → column) to the settings with which the path is read; it raises :class:`InputError`
    if it cannot tell. ``suited``: the graph settings of a generated YAML.
    ``examine``: makes the report itself, in place of these.
    """

    name: str
    settings: type[Settings]
    gives: Gives | Callable[[Any], Gives]
    recognises: Callable[[Candidate], int]
    read: Callable[[str, Any], IngestResult] | None = None
    files: Callable[[str, Any], Mapping[str, str | Path]] | None = None
    graph: tuple[tuple[str, Any], ...] = ()
    brings_features: Callable[[Any], bool] = field(default=lambda settings: False)
    opened: Callable[[str, Any], RowFile] | None = field(
        default=lambda location, settings: RowFile(
            location, getattr(settings, "delimiter", "auto"), header_line=getattr(settings, "header", True)
        )
    )
    guess: Callable[[Candidate, Mapping[str, str]], Guess] = field(
        default=lambda candidate, columns: no_columns(columns)
    )
    suited: Callable[[IngestResult], Mapping[str, Any]] = field(default=lambda result: {})
    examine: Callable[[str], IngestReport] | None = None

    def gives_by(self, settings: Any) -> Gives:
        """The kind of rows of a source with these settings."""
        return self.gives(settings) if callable(self.gives) else self.gives


def no_columns(columns: Mapping[str, str]) -> Guess:
    """The guess of a format whose columns have no names. Raises :class:`InputError` if some are named."""
    if columns:
        raise InputError(f"columns of this format cannot be named ({', '.join(columns)}); leave --columns out")
    return Guess({})
