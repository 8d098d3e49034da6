"""The format ``node_features``: numbers for the nodes of one type, from ``.npy`` with ids, Parquet or CSV.

A row that matches no node, repeats a node, or has values that are not finite numbers is a reject. Nodes without a row
are counted. docs/reference/ingestion.md has the table of cases.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import field_validator

from graphmill.errors import InputError
from graphmill.ingest import feature_files
from graphmill.ingest.aliases import Aliases, renamed
from graphmill.ingest.feature_files import FeatureRows
from graphmill.ingest.files import path_text
from graphmill.ingest.findings import FIRST_REJECTS, IngestReport, listed_columns
from graphmill.ingest.format import Candidate, Format
from graphmill.ingest.guard import guarded
from graphmill.ingest.id_coverage import coverage
from graphmill.ingest.kg_columns import checked_delimiter
from graphmill.ingest.names import as_number, is_row_number, without_row_numbers
from graphmill.ingest.rejects import Reject, reject_table
from graphmill.ingest.row_files import RowFile
from graphmill.ingest.tables import EDGES, MAX_SHOWN, IngestResult, feature_key, feature_table
from graphmill.settings import Settings, setting

ResultT = TypeVar("ResultT", bound=IngestResult)


class NodeFeatureSettings(Settings):
    """How a ``node_features`` source is read."""

    node_type: str = setting("", "node type of the features; required")
    name: str = setting("", "name of this set, such as image; needed if a type has several sets")
    key: Literal["id", "index"] = setting(
        "id", "how a row identifies its node: by its id within the type, or by its index"
    )
    key_column: str = setting(
        "", "CSV and Parquet: the column with the key; empty: the column with the name of the key"
    )
    type_column: str = setting("", "CSV and Parquet: a column with the node type; rows of other types are skipped")
    columns: list[str] = setting([], "CSV and Parquet: the columns to read; empty: all other columns that hold numbers")
    ids_path: str = setting(
        "", ".npy: the list of ids, one per line; empty: the file in the same folder that ends in .ids.txt"
    )
    delimiter: str = setting(
        "auto", "CSV: one ASCII character between fields, the word tab, or auto: what fits the columns"
    )

    @field_validator("node_type")
    @classmethod
    def _given(cls, value: str) -> str:
        if not value:
            raise ValueError("a source of node features needs node_type")
        return value

    _delimiter = field_validator("delimiter")(checked_delimiter)


@guarded
def read_node_features(
    path: str | Path, nodes: pa.Table, settings: NodeFeatureSettings, aliases: Aliases | None = None
) -> IngestResult:
    """Read features for nodes of ``settings.node_type`` in ``nodes`` (schema :data:`graphmill.ingest.tables.NODES`).

    The result has ``nodes`` as given, no edges, and in ``features`` the table of that type: rows of ``nodes`` in
    increasing order, float32 values. Raises :class:`InputError` if the type is unknown, no row is usable, or the file
    as a whole cannot be read.
    """
    file, kind = path_text(path), settings.node_type
    types = nodes["type"].unique().to_pylist()
    if kind not in types:
        raise InputError(f"{file}: there are no nodes of type '{kind}'; the types are {', '.join(map(repr, types))}")
    rows = load_rows(path, settings)
    skipped = 0
    if len(rows.type):
        of_kind = pc.equal(rows.type, kind).to_numpy(zero_copy_only=False)
        skipped, where = int((~of_kind).sum()), pa.array(of_kind)
        key, types = rows.key.filter(where), rows.type.filter(where)
        rows = replace(rows, key=key, type=types, values=rows.values[of_kind], line=rows.line[of_kind])
    if settings.key == "id":
        rows = replace(rows, key=renamed(rows.key, aliases or Aliases()))
    of_type = np.flatnonzero(pc.equal(nodes["type"].cast(pa.string()), kind).to_numpy())
    ids = nodes[settings.key].combine_chunks().take(pa.array(of_type)).cast(pa.string())
    matches = [coverage(f"features of {kind}", rows.key, f"the {kind} nodes", ids)]
    matched, rejects = _match(rows, ids, of_type, settings, file)
    kept = np.flatnonzero(matched >= 0)
    kept = kept[np.argsort(matched[kept])]
    node, values = matched[kept].astype(np.int32), rows.values[kept]
    rejects = sorted([*rows.rejects, *rejects])
    counts = {
        "rows": len(rows.key) + len(rows.rejects),
        "rows_of_other_types": skipped,
        "rejected_rows": len(rejects),
        "nodes_with_features": len(node),
        "nodes_without_features": len(of_type) - len(node),
        "zero_rows": int((values == 0).all(axis=1).sum()),
    }
    if len(node) == 0:
        because = f"; the first on {rejects[0].place}" if rejects else ""
        because += "".join(f"; {each.repair}" for each in matches if each.repair)
        raise InputError(f"{file} has no usable row for nodes of type '{kind}'{because}")
    refused = reject_table((file, reject) for reject in rejects)
    features = {feature_key(kind, settings.name): feature_table(node, values)}
    return IngestResult(
        nodes, EDGES.empty_table(), refused, features, counts, [*_notes(counts, kind), *rows.notes], matches
    )


def with_features(
    result: ResultT, path: str | Path, settings: NodeFeatureSettings, aliases: Aliases | None = None
) -> ResultT:
    """``result`` with the features, rejects, counts (by type) and notes of one more source."""
    key = feature_key(settings.node_type, settings.name)
    if key in result.features:
        raise InputError(
            f"{path_text(path)}: nodes of type '{settings.node_type}' already have features"
            + (f" named '{settings.name}'" if settings.name else "")
            + "; give one source, or each a name of its own"
        )
    more = read_node_features(path, result.nodes, settings, aliases)
    counts = {f"{key} features: {name}": number for name, number in more.counts.items()}
    return replace(
        result,
        features=result.features | more.features,
        rejects=pa.concat_tables([result.rejects, more.rejects]),
        counts=result.counts | counts,
        notes=result.notes + more.notes,
        coverage=result.coverage + more.coverage,
    )


def load_rows(path: str | Path, settings: NodeFeatureSettings) -> FeatureRows:
    """The rows of a file, not matched to nodes."""
    key = settings.key_column or settings.key
    suffix = str(path).removesuffix(".gz").rpartition(".")[2].lower()
    if suffix == "npy":
        return feature_files.read_npy(path, settings.ids_path)
    if suffix in ("csv", "tsv", "txt", "jsonl", "zip"):
        return feature_files.read_csv(path, key, settings.type_column, settings.columns, settings.delimiter)
    if suffix in ("parquet", "pq"):
        return feature_files.read_parquet(path, key, settings.type_column, settings.columns)
    raise InputError(
        f"{path_text(path)}: node features are read from .npy, .parquet, .csv, .tsv, .txt and .jsonl files"
    )


def _match(
    rows: FeatureRows, ids: pa.StringArray, of_type: np.ndarray, settings: NodeFeatureSettings, file: str
) -> tuple[np.ndarray, list[Reject]]:
    """The node of each feature row, -1 for a reject, and the reasons. ``ids``: those of the nodes ``of_type``."""
    if len(ids.unique()) < len(ids):
        raise InputError(f"{file}: ids of type '{settings.node_type}' are not unique in the nodes; use key: index")
    position = pc.fill_null(pc.index_in(rows.key, value_set=ids), -1).to_numpy()
    finite = np.isfinite(rows.values).all(axis=1)
    first = np.full(len(ids) + 1, -1, dtype=np.int64)
    candidates = np.flatnonzero(finite & (position >= 0))
    first[position[candidates[::-1]]] = candidates[::-1]
    chosen = np.zeros(len(position), dtype=bool)
    chosen[first[first >= 0]] = True
    rejects = []
    for row in np.flatnonzero(~chosen).tolist():
        if position[row] < 0:
            reason = f"no node of type '{settings.node_type}' has this {settings.key}"
        elif not finite[row]:
            reason = "a value is not finite as a 32-bit number"
        else:
            reason = f"a second row for this node; the first is on line {rows.line[first[position[row]]]}"
        rejects.append(Reject(int(rows.line[row]), settings.key, reason, rows.key[row].as_py()[:MAX_SHOWN]))
    return np.where(chosen, of_type[np.maximum(position, 0)], -1), rejects


def _notes(counts: dict[str, int], kind: str) -> list[str]:
    total = counts["nodes_without_features"] + counts["nodes_with_features"]
    words = {
        "rejected_rows": "feature rows cannot be used: see the rejects",
        "nodes_without_features": f"of {total:,} nodes of type '{kind}' have no features",
        "rows_of_other_types": f"feature rows of other types than '{kind}' were left out",
        "zero_rows": f"nodes of type '{kind}' have nothing but zeros for features",
    }
    return [f"{counts[name]:,} {text}" for name, text in words.items() if counts[name]]


def _examine(path: str) -> IngestReport:
    file = path_text(path)
    remarks = ["node_type is an example: write the type of your nodes"]
    source: dict[str, Any] = {"name": "features", "format": "node_features", "path": file, "node_type": "drug"}
    listed: list[dict[str, str]] = []
    settings = NodeFeatureSettings(node_type="drug")
    try:
        if not path.removesuffix(".gz").endswith(".npy"):
            with RowFile(path) as opened:
                names, mark, first = opened.names, opened.delimiter, next(iter(opened.first(1)), {})
            by_name = {name.lower(): name for name in reversed(names)}
            known = [by_name[name] for name in ("id", "node_id", "node", "index") if name in by_name]
            key = (known or without_row_numbers(names)[0] or list(names) or [""])[0]
            parts = {n: "key" if n == key else "" if is_row_number(n) else "feature" for n in names}
            listed = listed_columns(names, parts, first)
            source |= {"key_column": key} if key != "id" else {}
            source |= {"delimiter": {"\t": "tab"}.get(mark, mark)} if mark != "," else {}
            settings = NodeFeatureSettings(node_type="drug", key_column=key, delimiter=mark)
        rows = load_rows(path, settings)
    except InputError as error:
        return IngestReport(file, "node_features", listed, problem=str(error))
    refused = len(rows.rejects)
    counts = {"rows": len(rows.key) + refused, "rejected_rows": refused, "width": rows.values.shape[1]}
    bad = [{"file": file, **r._asdict()} for r in sorted(rows.rejects)[:FIRST_REJECTS]]
    notes, documents = list(rows.notes), [{"sources": [source]}]
    return IngestReport(file, "node_features", listed, remarks, "", counts, notes, rejects=bad, documents=documents)


def _recognises(candidate: Candidate) -> int:
    if candidate.path.removesuffix(".gz").endswith(".npy"):
        return 90
    names = {name.lower() for name in candidate.columns}
    if not names & {"id", "node_id", "node"} or not candidate.kind:
        return 0
    try:
        with RowFile(candidate.path) as file:
            first = next(iter(file.first(1)), {})
    except InputError:
        return 0
    cells = [cell for name, cell in first.items() if name.lower() not in ("id", "node_id", "node", "index")]
    numbers = sum(as_number(part) is not None for cell in cells for part in str(cell).split("|"))
    return 60 if numbers >= max(2, len(cells) // 2) else 0


FORMAT = Format("node_features", NodeFeatureSettings, "features", _recognises, examine=_examine)
