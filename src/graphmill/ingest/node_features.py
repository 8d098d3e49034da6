"""The format ``node_features``: numbers for the nodes of one type, from ``.npy`` with ids, Parquet or CSV.

A row that matches no node, repeats a node, or has values that are not finite numbers is a reject. Nodes without a row
are counted. docs/reference/ingestion.md has the table of cases.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import field_validator

from graphmill.errors import InputError, listed
from graphmill.ingest.cells import Column, RowBlock
from graphmill.ingest.column_maps import DELIMITER, Delimiter
from graphmill.ingest.files import guarded, load_matrix, path_text, text_lines, within
from graphmill.ingest.format import FIRST_REJECTS, Candidate, Format, IngestReport, listed_columns
from graphmill.ingest.id_columns import Aliases, coverage, renamed
from graphmill.ingest.names import BLANK, as_number, is_row_number, numbers_of, row_number_note, without_row_numbers
from graphmill.ingest.row_files import RowFile, parquet_file
from graphmill.ingest.tables import (
    EDGES,
    MAX_SHOWN,
    IngestResult,
    Reject,
    feature_key,
    feature_table,
    reject_table,
    sentences,
)
from graphmill.memory import available_memory, format_size
from graphmill.settings import Settings, setting


@dataclass(frozen=True)
class FeatureRows:
    """Rows of one file: ``key`` (text), ``type`` (text; empty if the file has none), ``values`` float32 n × f.

    ``line`` (int64): of a CSV file or an id list; of Parquet, the row from 1. ``notes``: on columns that were not read.
    """

    key: pa.StringArray
    type: pa.StringArray
    values: np.ndarray
    line: np.ndarray
    rejects: list[Reject]
    notes: tuple[str, ...] = ()

    def taken(self, rows: np.ndarray) -> "FeatureRows":
        """Only these ``rows`` (int64), in their order."""
        where = pa.array(rows)
        kind = self.type.take(where) if len(self.type) else self.type
        return replace(self, key=self.key.take(where), type=kind, values=self.values[rows], line=self.line[rows])


def read_npy(path: str | Path, ids_path: str) -> FeatureRows:
    """Read a matrix with one row per node, and the ids of the rows, one per line: ``id``, or ``type<TAB>id``.

    ``ids_path``: in the matrix's folder; empty: the file there that ends in ``.ids.txt``.
    """
    matrix = load_matrix(path)
    ids = str(path).removesuffix(".npy") + ".ids.txt"
    if ids_path:
        ids = within(str(path).rpartition("/")[0] or ".", ids_path)
    lines = [line for _, line in text_lines(ids)]
    kinds, tabs, keys = zip(*(line.rpartition("\t") for line in lines), strict=True) if lines else ((), (), ())
    key, kind = pa.array(keys, pa.string()), pa.array(kinds if any(tabs) else (), pa.string())
    if len(key) == len(matrix) + 1 and key[0].as_py().strip().lower() in ("id", "ids", "node", "node_id", "name"):
        key, kind = key.slice(1), kind.slice(1)  # a header line
    if len(key) != len(matrix):
        raise InputError(
            f"{path_text(path)} has {len(matrix):,} rows, but {path_text(ids)} has {len(key):,} ids; "
            "there must be one for each row, in the same order"
        )
    return FeatureRows(key, kind, matrix, np.arange(1, len(key) + 1), [])


def read_parquet(path: str | Path, key: str, kind: str, columns: Sequence[str]) -> FeatureRows:
    """Read a Parquet file with the column ``key`` and either one column of lists, or columns of numbers.

    ``kind``: the column with the node type, or "". ``columns``: empty means all others of numbers, or the one of lists.
    """
    file = parquet_file(path, path_text(path))
    if (needed := 12 * file.values) > (free := available_memory()):
        raise InputError(
            f"{path_text(path)} holds {file.values:,} values, which need about {format_size(needed)} of memory, and "
            f"{format_size(free)} are available; leave out columns or rows"
        )
    table = file.read()
    chosen, notes = _choose(table.column_names, key, kind, columns, path_text(path))
    kinds = {c: table.schema.field(c).type for c in chosen}
    of_lists = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
    lists = [c for c, each in kinds.items() if isinstance(each, of_lists) and _is_number(each.value_type)]
    odd = [c for c in chosen if c not in lists and not _is_number(kinds[c])]
    usable = lists or [c for c in chosen if c not in odd]
    if not columns:
        if skipped := [c for c in chosen if c not in usable]:
            notes += (f"columns that play no part were skipped: {', '.join(skipped)}",)
        chosen, odd = usable, []
    if odd or not chosen or (lists and len(chosen) > 1):
        wrong = f"{', '.join(odd or lists)} cannot" if odd or lists else "none can"
        raise InputError(
            f"{path_text(path)}: expected columns of numbers, or one column of lists of numbers; of "
            f"{listed(table.column_names)}, {wrong} be used. Name the right ones in `columns`"
        )
    text = pc.fill_null(table[key].combine_chunks().cast(pa.string()), "")
    kinds = pc.fill_null(table[kind].combine_chunks().cast(pa.string()), "") if kind else pa.nulls(0, pa.string())
    line = np.arange(1, table.num_rows + 1)
    rows = FeatureRows(text, kinds, np.zeros((len(line), 0), np.float32), line, [], notes)
    if lists:
        values, kept, rejects = _from_lists(table[lists[0]], lists[0])
        return replace(rows.taken(kept), values=values, rejects=rejects)
    return _numeric(rows, {c: table[c].combine_chunks().cast(pa.float64(), safe=False) for c in chosen})


def _is_number(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean)
    return any(is_kind(kind) for is_kind in kinds)


def _numeric(
    rows: FeatureRows, columns: Mapping[str, pa.Array], text: Callable[[int, str], str] = lambda row, column: ""
) -> FeatureRows:
    """``rows`` with the numbers (float64) of their columns. Rows with a null become rejects; ``text``: function from row and
    column to the cell as written."""
    wrong = np.stack([each.is_null().to_numpy(zero_copy_only=False) for each in columns.values()], axis=1)
    with np.errstate(over="ignore"):
        values = [each.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float32) for each in columns.values()]
    rejects = []
    for row in np.flatnonzero(wrong.any(axis=1)).tolist():
        column = list(columns)[int(wrong[row].argmax())]
        value = text(row, column)
        reason = "not a number" if value.strip(BLANK) else "blank"
        rejects.append(Reject(int(rows.line[row]), column, reason, value[:MAX_SHOWN]))
    whole = replace(rows, values=np.stack(values, axis=1), rejects=rejects)
    return whole.taken(np.flatnonzero(~wrong.any(axis=1)))


def _from_lists(column: pa.ChunkedArray, name: str) -> tuple[np.ndarray, np.ndarray, list[Reject]]:
    """Values from lists. Lists of another length than most, and lists with nulls, are rejected."""
    array = column.combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(array), -1).to_numpy().astype(np.int64)
    usable = lengths[lengths > 0]
    width = int(np.bincount(usable).argmax()) if len(usable) else 1
    right = np.flatnonzero(lengths == width)
    flat = pc.list_flatten(array.take(pa.array(right))).cast(pa.float64(), safe=False)
    hole = flat.is_null().to_numpy(zero_copy_only=False).reshape(len(right), width).any(axis=1)
    with np.errstate(over="ignore"):
        values = flat.fill_null(0).to_numpy().reshape(len(right), width).astype(np.float32)
    rejects = [
        Reject(int(r) + 1, name, "blank" if lengths[r] < 0 else f"{lengths[r]} values; most rows have {width}", "")
        for r in np.flatnonzero(lengths != width)
    ]
    rejects += [Reject(int(r) + 1, name, "a value is missing", "") for r in right[hole]]
    return values[~hole], right[~hole], rejects


def read_csv(path: str | Path, key: str, kind: str, columns: Sequence[str], delimiter: str) -> FeatureRows:
    """Read a CSV file with the column ``key`` and columns of numbers. ``kind`` and ``columns``: as for Parquet."""
    with RowFile(path, delimiter, wanted=[key, *columns]) as file:
        mark = file.delimiter
        chosen, notes = _choose(file.names, key, kind, columns, file.name)
        read = [Column(key, "text", required=True), *(Column(kind, "text") for _ in [0] if kind)]
        read += [Column(c, "text") for c in chosen]
        none, rejects = pa.nulls(0, pa.string()), list[Reject]()
        parts = [FeatureRows(none, none, np.zeros((0, len(chosen)), np.float32), np.zeros(0, np.int64), [])]
        for part, refused in file.blocks(read, lambda b: _digest(b, key, kind, chosen, mark)):
            parts.append(part)
            rejects += [*refused, *part.rejects]
    keys, kinds = (pa.concat_arrays([getattr(part, name) for part in parts]) for name in ("key", "type"))
    values, line = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "line"))
    return FeatureRows(keys, kinds, values, line, rejects, notes)


def _digest(block: RowBlock, key: str, kind: str, columns: list[str], mark: str) -> FeatureRows:
    kinds = block.table[kind].combine_chunks() if kind else pa.nulls(0, pa.string())
    values = np.zeros((len(block.lines), 0), np.float32)
    rows = FeatureRows(block.table[key].combine_chunks(), kinds, values, block.lines, [])
    read = {name: numbers_of(block.table[name].combine_chunks(), mark) for name in columns}
    return _numeric(rows, read, lambda row, column: str(block.table[column][row].as_py()))


def _choose(
    names: Sequence[Any], key: str, kind: str, columns: Sequence[str], file: str
) -> tuple[list[str], tuple[str, ...]]:
    """The columns to read, and a note on row-number columns that were left out: they are features only if they are named."""
    missing = [c for c in (key, kind, *columns) if c and c not in names]
    if missing:
        raise InputError(f"{file}: column {', '.join(missing)} is missing; there are {listed(names)}")
    others = [c for c in names if c not in ((key, kind) if kind else (key,))]
    chosen, left_out = (list(columns), []) if columns else without_row_numbers(others)
    if not chosen:
        raise InputError(f"{file} has no feature columns besides {', '.join([key, *left_out])}")
    return chosen, (row_number_note(left_out),) if left_out else ()


ResultT = TypeVar("ResultT", bound=IngestResult)
_IDS = ("id", "node_id", "node")


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
    delimiter: Delimiter = DELIMITER

    @field_validator("node_type")
    @classmethod
    def _given(cls, value: str) -> str:
        if not value:
            raise ValueError("a source of node features needs node_type")
        return value


@guarded
def read_node_features(
    path: str | Path, nodes: pa.Table, settings: NodeFeatureSettings, aliases: Aliases | None = None
) -> IngestResult:
    """Read features for nodes of ``settings.node_type`` in ``nodes`` (schema :data:`graphmill.ingest.tables.NODES`).

    The result has ``nodes`` as given, no edges, and the feature table of that type, in the order of ``nodes``. Raises
    :class:`InputError` if the type is unknown, no row is usable, or the file cannot be read.
    """
    file, kind = path_text(path), settings.node_type
    types = nodes["type"].unique().to_pylist()
    if kind not in types:
        raise InputError(f"{file}: there are no nodes of type '{kind}'; the types are {', '.join(map(repr, types))}")
    rows = load_rows(path, settings)
    skipped = 0
    if len(rows.type):
        of_kind = pc.equal(rows.type, kind).to_numpy(zero_copy_only=False)
        skipped, rows = int((~of_kind).sum()), rows.taken(np.flatnonzero(of_kind))
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
    notes = {
        "rejected_rows": "{} feature rows cannot be used: see the rejects",
        "nodes_without_features": f"{{}} of {len(of_type):,} nodes of type '{kind}' have no features",
        "rows_of_other_types": f"{{}} feature rows of other types than '{kind}' were left out",
        "zero_rows": f"{{}} nodes of type '{kind}' have nothing but zeros for features",
    }
    refused = reject_table((file, reject) for reject in rejects)
    features = {feature_key(kind, settings.name): feature_table(node, values)}
    return IngestResult(
        nodes, EDGES.empty_table(), refused, features, counts, [*sentences(counts, notes), *rows.notes], matches
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
        return read_npy(path, settings.ids_path)
    if suffix in ("csv", "tsv", "txt", "jsonl", "zip"):
        return read_csv(path, key, settings.type_column, settings.columns, settings.delimiter)
    if suffix in ("parquet", "pq"):
        return read_parquet(path, key, settings.type_column, settings.columns)
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


def _examine(path: str) -> IngestReport:
    file, listed, settings = path_text(path), list[dict[str, str]](), dict[str, Any]()
    try:
        if not path.removesuffix(".gz").endswith(".npy"):
            with RowFile(path) as opened:
                names, mark, first = opened.names, opened.delimiter, next(iter(opened.first(1)), {})
            by_name = {name.lower(): name for name in reversed(names)}
            known = [by_name[name] for name in (*_IDS, "index") if name in by_name]
            key = (known or without_row_numbers(names)[0] or list(names) or [""])[0]
            parts = {n: "key" if n == key else "" if is_row_number(n) else "feature" for n in names}
            listed = listed_columns(names, parts, first)
            settings |= {"key_column": key} if key != "id" else {}
            settings |= {"delimiter": {"\t": "tab"}.get(mark, mark)} if mark != "," else {}
        rows = load_rows(path, NodeFeatureSettings(node_type="drug", **settings))
    except InputError as error:
        return IngestReport(file, "node_features", listed, problem=str(error))
    refused = len(rows.rejects)
    source = {"name": "features", "format": "node_features", "path": file, "node_type": "drug", **settings}
    return IngestReport(
        file,
        "node_features",
        listed,
        ["node_type is an example: write the type of your nodes"],
        counts={"rows": len(rows.key) + refused, "rejected_rows": refused, "width": rows.values.shape[1]},
        notes=list(rows.notes),
        rejects=[{"file": file, **reject._asdict()} for reject in sorted(rows.rejects)[:FIRST_REJECTS]],
        documents=[{"sources": [source]}],
    )


def _recognises(candidate: Candidate) -> int:
    if candidate.path.removesuffix(".gz").endswith(".npy"):
        return 90
    names = {name.lower() for name in candidate.columns}
    if not names & set(_IDS) or candidate.probe is None:
        return 0
    first = zip(candidate.columns, next(iter(candidate.probe.rows), ()), strict=False)
    cells = [cell for name, cell in first if name.lower() not in (*_IDS, "index")]
    numbers = sum(as_number(part) is not None for cell in cells for part in str(cell).split("|"))
    return 60 if numbers >= max(2, len(cells) // 2) else 0


FORMAT = Format("node_features", NodeFeatureSettings, "features", _recognises, examine=_examine)
