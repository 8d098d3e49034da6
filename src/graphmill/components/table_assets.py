"""The assets ``<dataset>/raw_<source>`` (a file, and which content it has), ``<dataset>/nodes`` and ``<dataset>/edges``."""

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from graphmill.components.sources import SourceFile, has_features, read_tables
from graphmill.errors import InputError
from graphmill.ingest.csv_blocks import read_header
from graphmill.ingest.files import Source, shown
from graphmill.ingest.tables import IngestResult
from graphmill.orchestration import files
from graphmill.orchestration.checks import Check, PreviousRun, compared, specs
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.home import OUTPUTS
from graphmill.orchestration.metadata import records, table_metadata

RAW_VERSION = "1"
TABLES_VERSION = "1"
PREVIEW_ROWS = 5
BINARY = (".npy", ".parquet", ".pq")
_PREVIEW_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 20

UNIQUE = Check("nodes_are_unique", "No two rows of the table are the same node.", blocking=True)
FEW_REJECTS = Check("few_rejects", "Few enough rows of the files could not be used.", blocking=True)
ENDS_EXIST = Check("ends_exist", "Both ends of every edge are rows of the nodes table.", blocking=True)

NODE_COLUMNS = {
    "index": "the source's own node number, or the row number where it has none",
    "id": "the source's id, as written",
    "type": "node type",
    "name": "the source's name",
    "source": "the vocabulary that the id is from",
}
EDGE_COLUMNS = {
    "relation": "name of the relation",
    "display_relation": "the relation as shown to people",
    "head": "row of the nodes table",
    "tail": "row of the nodes table",
}

Reference = dict[str, Any]


@dataclass(frozen=True)
class TablePlan:
    """Names and places that the assets of a dataset's tables need."""

    dataset: str
    sources: Sequence[SourceFile]
    rejected_share_max: float
    root: Path
    owners: Sequence[str]

    def key(self, name: str) -> dg.AssetKey:
        """``<dataset>/<name>``."""
        return dg.AssetKey([self.dataset, name])


def raw_asset(plan: TablePlan, source: SourceFile) -> dg.AssetsDefinition:
    """A source file: there, readable, with this content. Its value says which content the tables are to be made of."""
    key = plan.key(f"raw_{source.name}")

    @dg.asset(
        key=key,
        group_name=f"{plan.dataset}_ingest",
        kinds={Path(source.path.removesuffix(".gz")).suffix[1:] or "text", "file"},
        owners=list(plan.owners),
        description=f"`{shown(source.path)}` ({source.format}). The data version is the hash of its content.",
        code_version=RAW_VERSION,
    )
    def raw(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Reference]]:
        with user_errors():
            state = files.state(source.location)
            digest, about = (_text_content if _is_text(source) else _binary_content)(source)
        yield dg.MaterializeResult(
            asset_key=key,
            value={"digest": digest, "size": state.size, "version": state.version},
            data_version=dg.DataVersion(digest),
            metadata={"file": dg.MetadataValue.path(shown(source.path)), "bytes": state.size, **about},
        )

    return raw


def table_assets(plan: TablePlan) -> dg.AssetsDefinition:
    """The checked tables; rows that cannot be used are in a file beside them."""
    names = ["nodes", "edges", *(["features"] if has_features(plan.sources) else [])]
    keys = {name: plan.key(name) for name in names}
    abouts = {
        "features": "Numbers of nodes, one table a node type; the value says where they are.",
        "nodes": "One row a node, with a number, id, type, name and source.",
        "edges": "One row an edge, as given: both directions where the files have both, duplicates kept and counted.",
    }
    raw_inputs = {f"raw_{source.name}": dg.AssetIn(plan.key(f"raw_{source.name}")) for source in plan.sources}

    @dg.multi_asset(
        name=f"{plan.dataset}__tables",
        outs={
            name: dg.AssetOut(
                key=key,
                group_name=f"{plan.dataset}_graph",
                kinds={"parquet"},
                owners=list(plan.owners),
                description=abouts[name],
                code_version=TABLES_VERSION,
                dagster_type=dict if name == "features" else pa.Table,
            )
            for name, key in keys.items()
        },
        ins=raw_inputs,
        check_specs=[*specs(keys["nodes"], [UNIQUE]), *specs(keys["edges"], [FEW_REJECTS, ENDS_EXIST])],
    )
    def tables(context: dg.AssetExecutionContext, **raw: Reference) -> Iterator[dg.MaterializeResult[Any]]:
        previous = {name: PreviousRun(context.instance, key) for name, key in keys.items()}
        with user_errors():
            for source in plan.sources:
                _require_unchanged(source, raw[f"raw_{source.name}"])
            result = read_tables(plan.sources)
            rejects = _write_rejects(plan, result)
        for note in result.notes:
            context.log.info(note)
        version = _version(plan, raw)
        yield _nodes(keys["nodes"], result, version, previous["nodes"])
        yield _edges(plan, keys["edges"], result, rejects, version, previous["edges"])
        if "features" in keys:
            yield _features(plan, keys["features"], result, version)

    return tables


def _nodes(
    key: dg.AssetKey, result: IngestResult, version: str, previous: PreviousRun
) -> dg.MaterializeResult[pa.Table]:
    nodes = result.nodes
    by_type = pc.value_counts(nodes["type"].cast(pa.string())).to_pylist()
    per_type = [{"type": row["values"], "nodes": row["counts"]} for row in by_type]
    distinct = nodes.group_by(["type", "id", "index"]).aggregate([]).num_rows
    figures = {"nodes": nodes.num_rows, "types": len(per_type)}
    return dg.MaterializeResult(
        asset_key=key,
        value=nodes,
        data_version=dg.DataVersion(version),
        metadata={
            **table_metadata(nodes, NODE_COLUMNS),
            **figures,
            "by_type": records(sorted(per_type, key=lambda row: -row["nodes"])),
            "figures": compared(figures, previous),
        },
        check_results=[
            UNIQUE.result(key, distinct == nodes.num_rows, f"{distinct:,} distinct nodes in {nodes.num_rows:,} rows")
        ],
    )


def _edges(
    plan: TablePlan, key: dg.AssetKey, result: IngestResult, rejects: str, version: str, previous: PreviousRun
) -> dg.MaterializeResult[pa.Table]:
    edges, refused = result.edges, result.rejects.num_rows
    ends = np.concatenate([edges["head"].to_numpy(), edges["tail"].to_numpy()])
    outside = int(((ends < 0) | (ends >= result.nodes.num_rows)).sum())
    share = refused / max(refused + edges.num_rows, 1)
    by_relation = pc.value_counts(edges["relation"].cast(pa.string())).to_pylist()
    per_relation = [{"relation": row["values"], "edges": row["counts"]} for row in by_relation]
    figures = {**result.counts, "relations": len(per_relation)}
    return dg.MaterializeResult(
        asset_key=key,
        value=edges,
        data_version=dg.DataVersion(version),
        metadata={
            **table_metadata(edges, EDGE_COLUMNS),
            **figures,
            "notes": dg.MetadataValue.md("\n".join(f"- {note}" for note in result.notes) or "nothing odd"),
            "by_relation": records(sorted(per_relation, key=lambda row: -row["edges"])),
            "rejects": records(result.rejects.slice(0, 50).to_pylist()),
            "rejects_file": dg.MetadataValue.path(rejects),
            "figures": compared(figures, previous),
        },
        check_results=[
            FEW_REJECTS.result(
                key,
                share <= plan.rejected_share_max,
                f"{refused:,} rows could not be used ({share:.2%}), bound {plan.rejected_share_max:.2%}; see 'rejects'",
                metadata={"rejected_rows": refused, "share": share, "bound": plan.rejected_share_max},
            ),
            ENDS_EXIST.result(key, outside == 0, f"{outside:,} ends point outside the nodes table"),
        ],
    )


def _features(plan: TablePlan, key: dg.AssetKey, result: IngestResult, version: str) -> dg.MaterializeResult[Reference]:
    folder = f"{OUTPUTS}/{plan.dataset}/features"
    (plan.root / folder).mkdir(parents=True, exist_ok=True)
    paths = {kind: f"{folder}/{number}.parquet" for number, kind in enumerate(sorted(result.features))}
    for kind, path in paths.items():
        pq.write_table(result.features[kind], plan.root / path)
    tables = result.features.items()
    rows = [{"type": kind, "nodes": t.num_rows, "width": t.schema.field("values").type.list_size} for kind, t in tables]
    return dg.MaterializeResult(
        asset_key=key,
        value=paths,
        data_version=dg.DataVersion(version),
        metadata={"dagster/row_count": sum(row["nodes"] for row in rows), "by_type": records(rows)},
    )


def _is_text(source: SourceFile) -> bool:
    return not source.path.lower().endswith(BINARY)


def _binary_content(source: SourceFile) -> tuple[str, dict[str, Any]]:
    """Digest of a file that is no text, and nothing about it: its reader looks into it."""
    return files.digest(source.location), {}


def _text_content(source: SourceFile) -> tuple[str, dict[str, Any]]:
    """Digest of a text file's unpacked content, and what the UI shows of it."""
    hasher, size, lines, last = hashlib.blake2b(digest_size=16), 0, 0, b"\n"
    with Source(source.location) as file:
        while block := file.read(_BLOCK_BYTES):
            hasher.update(block)
            size += len(block)
            lines += block.count(b"\n")
            last = block[-1:]
    columns, preview = _preview(source)
    return hasher.hexdigest(), {
        "bytes_unpacked": size,
        # Records with line breaks in quoted fields span several lines; the tables have the exact number.
        "dagster/row_count": max(lines + (last != b"\n") - 1, 0),
        "dagster/column_schema": dg.TableSchema(columns=[dg.TableColumn(name, "string") for name in columns]),
        "first_rows": records(preview),
    }


def _preview(source: SourceFile) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """Column names and the first rows, before anything is checked."""
    delimiter = str(getattr(source.settings, "delimiter", ","))
    with Source(source.location) as file:
        header, rest = read_header(file, delimiter)
    text = rest[:_PREVIEW_BYTES].decode("utf-8", errors="replace").rpartition("\n")[0]
    rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    shown_rows = [row for row, _ in zip(rows, range(PREVIEW_ROWS), strict=False)]
    return header.names, [dict(zip(header.names, row, strict=False)) for row in shown_rows]


def _require_unchanged(source: SourceFile, raw: Mapping[str, Any]) -> None:
    state = files.state(source.location)
    if (state.size, state.version) == (raw["size"], raw["version"]):
        return
    if (_text_content if _is_text(source) else _binary_content)(source)[0] != raw["digest"]:
        raise InputError(
            f"{shown(source.path)} has changed since raw_{source.name} was materialized; materialize raw_{source.name} "
            "together with the tables"
        )


def _write_rejects(plan: TablePlan, result: IngestResult) -> str:
    path = f"{OUTPUTS}/{plan.dataset}/rejects.parquet"
    (plan.root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(result.rejects, plan.root / path)
    return path


def _version(plan: TablePlan, raw: Mapping[str, Reference]) -> str:
    """The tables' data version: the content of the files, how they are read, and the version of the reader."""
    content = {
        "version": TABLES_VERSION,
        "files": {name: reference["digest"] for name, reference in sorted(raw.items())},
        "settings": {source.name: source.settings.model_dump() for source in plan.sources},
    }
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
