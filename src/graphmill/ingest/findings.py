"""The findings of ``graphmill ingest-report`` about a path, as data and as text, and a defs.yaml that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from graphmill.ingest.files import path_text
from graphmill.ingest.tables import IngestResult

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
    """A dataset of so many ``edges`` and a model on it, for a defs.yaml. ``predicts``: the section of its predictions.

    A small table has its first result within two minutes.
    """
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
