"""The assets ``<dataset>/nodes``, ``<dataset>/edges`` or ``<dataset>/interactions`` or both, ``<dataset>/features`` and
``<dataset>/attributes``."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphmill.atomic_files import replacing
from graphmill.components.plan import DatasetPlan, Reference
from graphmill.components.raw_asset import require_unchanged
from graphmill.graph.interaction_tables import (
    INTERACTION_COLUMNS,
    evaluated_users,
    interactions_table,
    knowledge_edges,
    liked_rows,
)
from graphmill.ingest.attributes import frequent
from graphmill.ingest.id_columns import read_aliases
from graphmill.ingest.sources import digest, read_tables, table_names
from graphmill.ingest.tables import IngestResult, attribute_kind
from graphmill.orchestration.checks import Check, PreviousRun, specs
from graphmill.orchestration.defaults import STORE
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.metadata import records, table_metadata
from graphmill.orchestration.page import asset_page, in_words, links
from graphmill.parquet import write_parquet

TABLES_VERSION = "1"
Made = tuple[Any, dict[str, Any], list[dg.AssetCheckResult]]
"""Value, metadata and check results of one table."""

UNIQUE = Check(
    "nodes_are_unique",
    "No two rows of the table are the same node. If some are: report a bug; the reader should have merged them.",
    blocking=True,
)
FEW_REJECTS = Check(
    "few_rejects",
    "At most rejected_share_max of the rows could not be used. If there are more, see `rejects`: correct the files "
    "or the source's columns, or raise rejected_share_max in the defs.yaml.",
    blocking=True,
)
IDS_MATCH = Check(
    "ids_match",
    "For each pair of sources, at least ids_match_min of the ids of the smaller one are in the other. If fewer are: the "
    "table `ids` names the repair that would match most; correct the file, list the ids in `aliases`, or lower the bound.",
    blocking=True,
)
ENDS_EXIST = Check(
    "ends_exist",
    "Both ends of every edge are rows of the nodes table. If one is not: report a bug; the reader should have "
    "refused it.",
    blocking=True,
)

EVALUABLE = Check(
    "users_can_be_evaluated",
    "Most users have an interaction to test on, in addition to those to train on. If few have: rankings say little; "
    "lower k_core or add more history.",
)
CHECKS = {
    "nodes": (UNIQUE,),
    "edges": (FEW_REJECTS, IDS_MATCH, ENDS_EXIST),
    "interactions": (FEW_REJECTS, IDS_MATCH, EVALUABLE),
}

NODE_COLUMNS = {
    "index": "the source's own node number, or the row number if it has none",
    "id": "the source's id, unchanged",
    "type": "node type",
    "name": "the source's name",
    "source": "the vocabulary from which the id comes",
}
EDGE_COLUMNS = {
    "relation": "name of the relation",
    "display_relation": "the relation as shown to people",
    "head": "row of the nodes table",
    "tail": "row of the nodes table",
}


def table_assets(plan: DatasetPlan) -> dg.AssetsDefinition:
    """Make the assets of the checked tables. Rows that cannot be used go to a separate file."""
    keys = {name: plan.key(name) for name in table_names(plan.sources)}
    abouts = {
        "interactions": (
            "Which user took which item: one row per interaction, in order, with repetitions. `notes` list what is "
            "unusual in the files; `rejects` lists the rows that could not be used, and why."
        ),
        "features": (
            "Numbers that describe nodes, for example from an image or a text: one table per node type, for models "
            "that read features."
        ),
        "attributes": (
            "What describes nodes, as given: texts, categories, numbers, dates and lists. The graph turns them into "
            "features, which models read."
        ),
        "nodes": (
            "The nodes of the graph: one row per node. If a number in `by_type` surprises you, look at the columns "
            "of the source in the defs.yaml."
        ),
        "edges": (
            "The edges between the nodes: one row per edge, as in the files. `notes` list what is unusual; `rejects` "
            "lists the rows that could not be used, and why."
        ),
    }
    raw_inputs = {f"raw_{source.name}": dg.AssetIn(plan.key(f"raw_{source.name}")) for source in plan.sources}

    @dg.multi_asset(
        name=f"{plan.dataset}__tables",
        outs={
            name: dg.AssetOut(
                key=key,
                io_manager_key=STORE,
                group_name=f"{plan.dataset}_graph",
                kinds={"parquet"},
                owners=list(plan.owners),
                description=abouts[name],
                code_version=TABLES_VERSION,
                dagster_type=dict if name in ("features", "attributes") else pa.Table,
            )
            for name, key in keys.items()
        },
        ins=raw_inputs,
        partitions_def=plan.partitions_def,
        check_specs=[
            spec for name, key in keys.items() for spec in specs(key, CHECKS.get(name, ()), plan.partitions_def)
        ],
    )
    def tables(context: dg.AssetExecutionContext, **raw: Reference) -> Iterator[dg.MaterializeResult[Any]]:
        previous = {name: PreviousRun(context.instance, key) for name, key in keys.items()}
        with user_errors():
            here = plan.at(context)
            for source in here.sources:
                require_unchanged(source, raw[f"raw_{source.name}"])
            result = read_tables(here.sources, read_aliases(plan.aliases, plan.repair_ids))
            rejects = f"{here.folder}/rejects.parquet"
            with replacing(here.root / rejects) as part:
                write_parquet(result.rejects, part.file)
        for note in result.notes:
            context.log.info(note)
        version = dg.DataVersion(_version(plan, raw))
        makers: dict[str, Callable[[PreviousRun], Made]] = {
            "interactions": lambda was: _interactions(plan, result, rejects, was),
            "nodes": lambda was: _nodes(result, was),
            "edges": lambda was: _edges(plan, result, rejects, was),
            "features": lambda was: _features(here, result, was),
            "attributes": lambda was: _attributes(here, result, was),
        }
        for name, key in keys.items():
            value, metadata, checks = makers[name](previous[name])
            yield dg.MaterializeResult(
                asset_key=key, value=value, data_version=version, metadata=metadata, check_results=checks
            )
            del value  # a table can be large

    return tables


def _nodes(result: IngestResult, previous: PreviousRun) -> Made:
    nodes = result.nodes
    by_type = pc.value_counts(nodes["type"].cast(pa.string())).to_pylist()
    per_type = [{"type": row["values"], "nodes": row["counts"]} for row in by_type]
    distinct = nodes.group_by(["type", "id", "index"]).aggregate([]).num_rows
    summary = f"{nodes.num_rows:,} nodes of {len(per_type)} types" + _largest(per_type, "type", "nodes") + "."
    metadata = {
        **asset_page(summary, plotted={"nodes": nodes.num_rows, "types": len(per_type)}, previous=previous),
        **table_metadata(nodes, NODE_COLUMNS),
        "by_type": records(sorted(per_type, key=lambda row: -row["nodes"])),
    }
    text = f"{distinct:,} distinct nodes in {nodes.num_rows:,} rows"
    return nodes, metadata, [UNIQUE.result(previous.asset, distinct == nodes.num_rows, text)]


def _edges(plan: DatasetPlan, result: IngestResult, rejects: str, previous: PreviousRun) -> Made:
    edges = knowledge_edges(result.edges) if "interactions" in table_names(plan.sources) else result.edges
    outside, per_relation = _counted(edges, result.nodes.num_rows)
    elsewhere = OF_INTERACTIONS if "interactions" in result.counts else ()
    figures = {name: count for name, count in result.counts.items() if name not in elsewhere}
    figures["relations"] = len(per_relation)
    largest = _largest(per_relation, "relation", "edges")
    summary = f"{edges.num_rows:,} edges of {len(per_relation)} relations{largest}. {_refused(result)}"
    metadata = {
        **asset_page(summary, plotted=PLOTTED, others=figures, previous=previous),
        **table_metadata(edges, EDGE_COLUMNS),
        **_odd(result, rejects),
        "by_relation": records(sorted(per_relation, key=lambda row: -row["edges"])),
    }
    exist = ENDS_EXIST.result(previous.asset, outside == 0, f"{outside:,} ends point outside the nodes table")
    return (
        edges,
        metadata,
        [_few_rejects(plan, previous.asset, result), _ids_match(plan, previous.asset, result), exist],
    )


def _counted(edges: pa.Table, nodes: int) -> tuple[int, list[dict[str, Any]]]:
    """The number of ends outside the nodes table, and of edges of each relation."""
    ends = np.concatenate([edges["head"].to_numpy(), edges["tail"].to_numpy()])
    counts = edges["relation"].unify_dictionaries().combine_chunks().value_counts().to_pylist()
    per_relation = [{"relation": row["values"], "edges": row["counts"]} for row in counts]
    return int(((ends < 0) | (ends >= nodes)).sum()), per_relation


def _interactions(plan: DatasetPlan, result: IngestResult, rejects: str, previous: PreviousRun) -> Made:
    table = interactions_table(result)
    likes = liked_rows(table)
    evaluated, users = evaluated_users(likes)
    summary = (
        f"{likes.num_rows:,} interactions of {users:,} users, {'all' if evaluated == users else f'{evaluated:,}'} "
        "of whom have something to hold out. " + _refused(result)
    )
    given = [name for name in ("position", "timestamp", "weight", "split") if name in table.column_names]
    metadata = {
        **asset_page(summary, plotted=PLOTTED, others=result.counts, previous=previous),
        **table_metadata(table, INTERACTION_COLUMNS),
        **_odd(result, rejects),
        "first_rows": records(table.select(["user_id", "item_id", *given]).slice(0, 10).to_pylist()),
    }
    evaluable = EVALUABLE.result(
        previous.asset,
        2 * evaluated >= users,
        f"{evaluated:,} of {users:,} users have something to hold out; the others are only trained on",
        metadata={"evaluated": evaluated, "users": users},
    )
    checks = [_few_rejects(plan, previous.asset, result), _ids_match(plan, previous.asset, result), evaluable]
    return table, metadata, checks


PLOTTED = (
    "rows",
    "edges",
    "relations",
    "interactions",
    "users",
    "items",
    "rejected_rows",
    "duplicate_rows",
    "self_loops",
)
"""Numbers to plot over several deliveries of the files."""
OF_INTERACTIONS = ("rows", "interactions", "users", "items")
"""Counts that the page of the interactions shows, if a dataset has interactions and other edges."""


def _described(row: Mapping[str, Any]) -> str:
    kind, _, name = row["type"].partition("::")
    return f"{row['width']} numbers{f' ({name})' * bool(name)} for each of {row['nodes']:,} nodes of type {kind}"


def _largest(rows: Sequence[Mapping[str, Any]], name: str, count: str) -> str:
    """The three largest counts with their names, such as ``": 512 gene, 40 drug, …"``."""
    best = sorted(rows, key=lambda row: -row[count])
    largest = ", ".join(f"{row[count]:,} {row[name]}" for row in best[:3])
    return f": {largest}{', …' if len(best) > 3 else ''}" if largest else ""


def _refused(result: IngestResult) -> str:
    refused, odd = _rejected(result), len(result.notes)
    rows = "1 row" if refused == 1 else f"{refused:,} rows"
    first = f"{rows} could not be used: see `rejects`." if refused else "Every row could be used."
    things = "1 thing is" if odd == 1 else f"{odd} things are"
    return first + (f" {things} unusual but allowed: see `notes`." if odd else "")


def _rejected(result: IngestResult) -> int:
    """The number of rejected rows of all sources; of many, the table has the first ones."""
    return sum(number for name, number in result.counts.items() if name.endswith("rejected_rows"))


def _odd(result: IngestResult, rejects: str) -> dict[str, Any]:
    """Metadata on rejected rows, and on unusual but valid ones."""
    return {
        "notes": dg.MetadataValue.md("\n".join(f"- {note}" for note in result.notes) or "nothing odd"),
        "rejects": records(result.rejects.slice(0, 50).to_pylist()),
        "rejects_file": dg.MetadataValue.path(rejects),
        **({"ids": records([each.to_dict() for each in result.coverage])} if result.coverage else {}),
    }


def _few_rejects(plan: DatasetPlan, key: dg.AssetKey, result: IngestResult) -> dg.AssetCheckResult:
    refused, bound = _rejected(result), plan.rejected_share_max
    share = refused / max(refused + result.edges.num_rows, 1)
    return FEW_REJECTS.result(
        key,
        share <= bound,
        f"{refused:,} rows could not be used ({share:.2%}), bound {bound:.2%}; see 'rejects'",
        metadata={"rejected_rows": refused, "share": share, "bound": bound},
    )


def _ids_match(plan: DatasetPlan, key: dg.AssetKey, result: IngestResult) -> dg.AssetCheckResult:
    bound = plan.ids_match_min
    bad = [each for each in result.coverage if each.share < bound]
    text = "; ".join(each.sentence for each in bad or result.coverage) or "the ids are all of one source"
    least = min((each.share for each in result.coverage), default=1.0)
    return IDS_MATCH.result(key, not bad, text, metadata={"share": least, "bound": bound})


def _features(plan: DatasetPlan, result: IngestResult, previous: PreviousRun) -> Made:
    paths = _write_each(plan, "features", result.features)
    tables = result.features.items()
    rows = [{"type": kind, "nodes": t.num_rows, "width": t.schema.field("values").type.list_size} for kind, t in tables]
    metadata: dict[str, Any] = {
        "summary": in_words(
            "; ".join(map(_described, rows)) + "." if rows else "No node has features.", links(previous.asset)
        ),
        "dagster/row_count": sum(row["nodes"] for row in rows),
        "by_type": records(rows),
        # There is no table of the files for features: there is a matrix per node type, with the set's name after the
        # type.
        "files": dg.MetadataValue.md("\n".join(f"- {kind}: `{path}`" for kind, path in paths.items()) or "none"),
    }
    return paths, metadata, []


def _attributes(plan: DatasetPlan, result: IngestResult, previous: PreviousRun) -> Made:
    paths = _write_each(plan, "attributes", result.attributes)
    rows = [
        {"type": kind, "attribute": name, "kind": attribute_kind(table[name].type), "nodes": len(table[name].drop_null()),
         "frequent": ", ".join(f"{value} ({count:,})" for value, count in frequent(table[name].combine_chunks()))}
        for kind, table in result.attributes.items()
        for name in table.column_names[1:]
    ]  # fmt: skip
    described = (
        f"{t.num_columns - 1} attributes of {t.num_rows:,} nodes of type {k}" for k, t in result.attributes.items()
    )
    metadata = {
        "summary": in_words("; ".join(described) + ".", links(previous.asset)),
        "dagster/row_count": sum(table.num_rows for table in result.attributes.values()),
        "by_attribute": records(rows),
        "files": dg.MetadataValue.md("\n".join(f"- {kind}: `{path}`" for kind, path in paths.items())),
    }
    return paths, metadata, []


def _write_each(plan: DatasetPlan, folder: str, tables: Mapping[str, pa.Table]) -> dict[str, str]:
    """Write tables into a folder; the path of each, relative to the project, by its key."""
    paths = {key: f"{plan.folder}/{folder}/{number}.parquet" for number, key in enumerate(sorted(tables))}
    for key, path in paths.items():
        with replacing(plan.root / path) as part:
            write_parquet(tables[key], part.file)
    return paths


def _version(plan: DatasetPlan, raw: Mapping[str, Reference]) -> str:
    """The tables' data version, from the content of the files, the reading settings, and the version of the reader."""
    content = {
        "version": TABLES_VERSION,
        "files": {name: reference["digest"] for name, reference in sorted(raw.items())},
        "settings": {source.name: source.settings.model_dump() for source in plan.sources},
        **({"aliases": digest(plan.aliases)} if plan.aliases else {}),
        **({"repair_ids": list(plan.repair_ids)} if plan.repair_ids else {}),
    }
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
