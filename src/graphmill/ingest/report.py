"""``graphmill ingest-report``: what a file holds, how it would be read, what is wrong with it, and a defs.yaml for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from graphmill.errors import InputError, SettingsError
from graphmill.ingest import feature_files
from graphmill.ingest.files import shown
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.interactions_csv import InteractionColumns, choose_columns
from graphmill.ingest.kg_columns import PRIMEKG, KgColumns, KgCsvSettings
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.ingest.kg_guess import DELIMITERS, guess_columns, guess_header
from graphmill.ingest.rows import RowFile
from graphmill.ingest.tables import IngestResult
from graphmill.ingest.user_items import SPLITS

_FIRST_REJECTS = 10
_MOST_KINDS = 30


@dataclass(frozen=True)
class IngestReport:
    """What :func:`ingest_report` found out.

    ``columns``: name, part (what the column is taken for; empty: skipped) and an example. ``problem``: why the file as a
    whole cannot be used, empty where it can. ``node_types`` and ``relations``: how many nodes and edges of each.
    ``defs``: a ``defs.yaml``, empty where none can be written.
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
    defs: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def text(self) -> str:
        """The report for people."""
        parts = [f"{self.file}, read as {self.format}"]
        if self.columns:
            rows = [[c["name"], c["part"] or "(skipped)", c["example"]] for c in self.columns]
            parts.append(_aligned([["column", "taken for", "first value"], *rows]))
        parts.extend([_listed("Guessed", self.remarks), f"CANNOT BE USED: {self.problem}" if self.problem else ""])
        counts = [[name.replace("_", " "), f"{number:,}"] for name, number in self.counts.items() if number]
        parts.append(_aligned([["count", ""], *counts]) if counts else "")
        for title, found in (("nodes of type", self.node_types), ("edges of relation", self.relations)):
            kinds = [[name, f"{number:,}"] for name, number in list(found.items())[:_MOST_KINDS]]
            more = [[f"… and {len(found) - _MOST_KINDS} more", ""]] if len(found) > _MOST_KINDS else []
            parts.append(_aligned([[title, ""], *kinds, *more]) if kinds else "")
        parts.append(_listed("Notes", self.notes))
        bad = [[str(r["line"]), r["column"], r["reason"], r["value"]] for r in self.rejects]
        parts.append(_aligned([["line", "column", "reason", "value"], *bad]) if bad else "")
        parts.append(f"defs.yaml:\n\n{self.defs}" if self.defs else "")
        return "\n\n".join(part.rstrip() for part in parts if part)


def ingest_report(path: str | Path, format: str = "kg_csv") -> IngestReport:
    """Look at ``path`` as a source of ``format`` and say what is there. The whole file is read and checked.

    A file that cannot be used gives a report with ``problem``. Raises :class:`SettingsError` for an unknown format.
    """
    if format not in REPORTERS:
        raise SettingsError(f"there is no report on format '{format}'; choose one of {', '.join(REPORTERS)}")
    return REPORTERS[format](str(path))


def _kg_csv(path: str) -> IngestReport:
    file = shown(path)
    try:
        header, delimiter, first = guess_header(path)
    except InputError as error:
        return IngestReport(file, "kg_csv", problem=str(error))
    columns, remarks = guess_columns(header.names)
    parts = _parts_of(columns) if columns is not None else {}
    listed = [
        {"name": name, "part": parts.get(name, ""), "example": first[i][:60] if i < len(first) else ""}
        for i, name in enumerate(header.names)
    ]
    if delimiter != ",":
        remarks = [f"the fields are separated by '{DELIMITERS[delimiter]}'", *remarks]
    if columns is None:
        problem = "no column map could be guessed: write one (columns: {head_id: …, tail_id: …, relation: …})"
        return IngestReport(file, "kg_csv", listed, remarks, problem)
    settings = KgCsvSettings(columns=columns, delimiter=delimiter)
    try:
        result = read_kg_csv(path, settings)
    except InputError as error:
        return IngestReport(file, "kg_csv", listed, remarks, str(error))
    types = _counted(result.nodes["type"])
    source: dict[str, Any] = {"name": "edges", "format": "kg_csv", "path": file}
    if delimiter != ",":
        source["delimiter"] = DELIMITERS[delimiter]
    chosen = {name: value for name, value in columns.model_dump().items() if value}
    source |= {"columns": chosen} if chosen else {}
    return IngestReport(
        file, "kg_csv", listed, remarks, "", result.counts, result.notes, types, _counted(result.edges["relation"]),
        _first_rejects(result), _defs(_dataset_name(path), source, "hgt", _all_types(types)),
    )  # fmt: skip


def _all_types(types: Mapping[str, int]) -> dict[str, Any]:
    split = {"valid": 0.05, "test": 0.05, "seed": 0}
    return {"include_node_types": list(types), "add_reverse": "missing", "split": split}


def _parts_of(columns: KgColumns) -> dict[str, str]:
    """What each column is taken for."""
    if columns == KgColumns():
        return {name: _spelled(name, "x", "y") for name in PRIMEKG}
    found: dict[str, str] = {}
    for part, name in columns.model_dump().items():
        if name and not part.endswith("_constant"):
            part = _spelled(part, "head", "tail")
            found[name] = f"{found[name]}, {part}" if name in found else part
    return found


def _spelled(part: str, head: str, tail: str) -> str:
    """``x_id`` or ``head_id`` as ``head id``; anything else as it is."""
    for prefix, word in ((head, "head"), (tail, "tail")):
        if part.startswith(f"{prefix}_"):
            return f"{word} {part.removeprefix(f'{prefix}_')}"
    return part


def _node_features(path: str) -> IngestReport:
    file = shown(path)
    suffix = path.removesuffix(".gz").rpartition(".")[2].lower()
    source = {"name": "features", "format": "node_features", "path": file, "node_type": "drug"}
    remarks = ["node_type is an example: write the type of your nodes"]
    columns: list[dict[str, str]] = []
    try:
        if suffix == "npy":
            rows = feature_files.read_npy(path, "")
        elif suffix in ("parquet", "pq"):
            rows = feature_files.read_parquet(path, "id", "", [])
        else:
            header, delimiter, first = guess_header(path)
            key = next((n for n in header.names if n.lower() in ("id", "node_id", "node", "index")), header.names[0])
            source |= {"key_column": key} if key != "id" else {}
            source |= {"delimiter": DELIMITERS[delimiter]} if delimiter != "," else {}
            columns = [
                {"name": n, "part": "key" if n == key else "feature", "example": first[i] if i < len(first) else ""}
                for i, n in enumerate(header.names)
            ]
            rows = feature_files.read_csv(path, key, "", [], delimiter)
    except InputError as error:
        return IngestReport(file, "node_features", columns, problem=str(error))
    counts = {
        "rows": len(rows.key) + len(rows.rejects),
        "rejected_rows": len(rows.rejects),
        "width": rows.values.shape[1],
    }
    bad = [{"file": file, **r._asdict()} for r in sorted(rows.rejects)[:_FIRST_REJECTS]]
    listing = yaml.safe_dump({"sources": [source]}, sort_keys=False, allow_unicode=True)
    return IngestReport(file, "node_features", columns, remarks, "", counts, rejects=bad, defs=listing)


def _interactions_csv(path: str) -> IngestReport:
    file = shown(path)
    try:
        with RowFile(path) as opened:
            header, first = opened.header, list(next(iter(opened.first(1)), {}).values())
        chosen = choose_columns(header.names, InteractionColumns(), file)
    except InputError as error:
        return IngestReport(file, "interactions_csv", problem=str(error))
    part = {name: role for role, name in chosen.items()}
    columns = [
        {"name": name, "part": part.get(name, ""), "example": first[i][:60] if i < len(first) else ""}
        for i, name in enumerate(header.names)
    ]
    # In an order, each user's last two are held out; else they have to be drawn.
    graph = {} if "timestamp" in chosen else {"split": {"method": "random"}}
    return _read("interactions_csv", path, columns, graph=graph)


def _read(
    format: str, path: str, columns: Sequence[dict[str, str]] = (), *, graph: Mapping[str, Any] | None = None
) -> IngestReport:
    """What the format's reader finds with its default settings."""
    file, known = shown(path), FORMATS[format]
    assert known.read is not None
    try:
        result = known.read(path, known.settings())
    except InputError as error:
        return IngestReport(file, format, list(columns), problem=str(error))
    types, relations = _counted(result.nodes["type"]), _counted(result.edges["relation"])
    graph = dict(graph or {})
    if format == "kgat":
        held_out = set(np.unique(result.edges["split"].to_numpy()).tolist())
        if SPLITS.index("test") not in held_out:
            graph["split"] = {"given": "redraw", "method": "random"}
        elif SPLITS.index("valid") not in held_out:
            graph["split"] = {"given": "add_valid"}
    recipe = _RECIPES[format]
    if format == "mmrec" and result.features:
        recipe = "mmgcn"
    source = {"name": "interactions" if known.gives != "edges" else "edges", "format": format, "path": file}
    return IngestReport(
        file, format, list(columns), [], "", result.counts, result.notes, types, relations, _first_rejects(result),
        _defs(_dataset_name(path), source, recipe, graph),
    )  # fmt: skip


REPORTERS: dict[str, Callable[[str], IngestReport]] = {
    name: partial(_read, name) for name, format in FORMATS.items() if format.read is not None
} | {"kg_csv": _kg_csv, "interactions_csv": _interactions_csv, "node_features": _node_features}
"""How a file (or folder) of each format is looked at."""
_RECIPES = {"triples": "conve", "sequence": "sasrec", "interactions_csv": "bpr_mf", "mmrec": "bpr_mf", "kgat": "kgat"}
"""What is trained on a format's data in the defs.yaml."""


def _counted(column: pa.ChunkedArray) -> dict[str, int]:
    """How often each value occurs, most frequent first."""
    pairs = ((v["values"], v["counts"]) for v in pc.value_counts(column.cast(pa.string())).to_pylist())
    return dict(sorted(pairs, key=lambda pair: -pair[1]))


def _first_rejects(result: IngestResult) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.rejects.slice(0, _FIRST_REJECTS).to_pylist()
    return found


def _dataset_name(path: str) -> str:
    stem = shown(path).rstrip("/").rpartition("/")[2].partition(".")[0]
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in stem).strip("_").lower()
    return name if name and not name[0].isdigit() else f"dataset_{name}".rstrip("_")


def _defs(name: str, source: dict[str, Any], recipe: str, graph: Mapping[str, Any]) -> str:
    """A dataset, and a model on it."""
    dataset = {"name": name, "sources": [source]} | ({"graph": dict(graph)} if graph else {})
    dataset["watch"] = {"enabled": True, "interval_seconds": 60}
    model = {
        "dataset": name,
        "recipe": recipe,
        "settings": {"training": {"epochs": 100}},
        "checks": {"severity": "warn"},
    }
    documents = [
        {"type": f"graphmill.components.{kind}", "attributes": attributes}
        for kind, attributes in (("GraphDataset", dataset), ("EmbeddingModel", model))
    ]
    return str(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=110))


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _listed(title: str, lines: list[str]) -> str:
    return "\n".join([f"{title}:", *(f"- {line}" for line in lines)]) if lines else ""
