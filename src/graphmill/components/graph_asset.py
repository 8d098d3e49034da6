"""The asset ``<dataset>/graph``: builds a typed graph on disk from the tables, with held-out pairs and their audit."""

import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from graphmill.components.plan import DatasetPlan, Reference, plan_asset
from graphmill.errors import InputError
from graphmill.graph.build import build_graph
from graphmill.graph.graph_location import SNAPSHOTS
from graphmill.graph.interaction_tables import edges_of
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.snapshots import checked_snapshot
from graphmill.ingest.sources import table_names
from graphmill.orchestration.automation import known_snapshots
from graphmill.orchestration.checks import Check, PreviousRun
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.home import OUTPUTS, PROMOTED
from graphmill.orchestration.io_managers import REMEDY
from graphmill.orchestration.metadata import records, snippet
from graphmill.orchestration.page import asset_page
from graphmill.parquet import ParquetTable
from graphmill.promotion.versions import Versions

TRAINED = Check(
    "relations_have_training_edges",
    "Every relation has edges to train on. If one has none: hold out less of it (graph.split), or leave it out.",
    blocking=True,
)
REACHED = Check(
    "types_are_reached",
    "Every node type has nodes with a training edge. If one has none: leave it out (graph.include_node_types).",
    blocking=True,
)
SEALED = Check(
    "no_split_leakage",
    "No edge of another split joins a held-out pair of nodes, in either direction or any relation. If one does, the "
    "test figures are too good: let the graph draw the split itself (graph.split.method).",
    blocking=True,
)
CHECKS = (TRAINED, REACHED, SEALED)


def graph_asset(plan: DatasetPlan) -> dg.AssetsDefinition:
    """Make the graph asset. Its value has the graph's path."""
    key = plan.key("graph")

    @plan_asset(
        plan,
        "graph",
        "graph",
        inputs=table_names(plan.sources),
        kinds={"numpy"},
        description=(
            f"The graph of {plan.dataset} that models train on, with pairs held out for validation and test. The "
            "section graph of the defs.yaml sets what it contains and holds out. Next: a model."
        ),
        checks=CHECKS,
    )
    def graph(context: dg.AssetExecutionContext, **tables: Any) -> Iterator[dg.MaterializeResult[Reference]]:
        previous = PreviousRun(context.instance, key)
        with user_errors():
            here = plan.at(context)
            features = {
                part: {
                    kind: ParquetTable(plan.root / path, remedy=REMEDY).read()
                    for kind, path in tables.get(part, {}).items()
                }
                for part in ("features", "attributes")
            }
            edges = tables.get("edges")
            if "interactions" in tables:
                edges = edges_of(tables["interactions"], edges)
            built = build_graph(
                tables["nodes"], edges, plan.graph, plan.root / here.graph_path, features["features"],
                features["attributes"], root=plan.root,
            )  # fmt: skip
            _remove_old(context, plan)
        yield _materialized(here, built, previous)

    return graph


def _remove_old(context: dg.AssetExecutionContext, plan: DatasetPlan) -> None:
    """Remove all but the newest ``partitions.keep`` snapshots from disk and from Dagster.

    The step's own snapshot, those of live versions, and those with an unfinished run are kept. Promoted versions are
    complete in themselves, and are not touched.
    """
    partitions = plan.partitions_def
    if plan.snapshots is None or partitions is None or not plan.snapshots.keep:
        return
    known, instance = known_snapshots(context.instance, partitions), context.instance
    unfinished = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING]
    runs = instance.get_runs(dg.RunsFilter(statuses=[*unfinished, dg.DagsterRunStatus.STARTED]))
    spared = {
        *known[-plan.snapshots.keep :],
        context.partition_key,
        *(run.tags.get("dagster/partition") for run in runs),
    }
    folders = [path for path in (plan.root / PROMOTED / plan.dataset).glob("*") if path.is_dir()]
    try:
        live = [Versions(folder).current() for folder in folders]
        gone = [checked_snapshot(name) for name in known if name not in spared]
    except InputError as error:
        context.log.warning(f"no snapshot was removed: {error}")
        return
    gone = [name for name in gone if name not in {version.about["snapshot"] for version in live if version}]
    outputs = plan.root / OUTPUTS / plan.dataset
    for name in gone:
        shutil.rmtree(outputs / SNAPSHOTS / name, ignore_errors=True)
        for suffix in (".json", ".parquet"):
            for path in outputs.glob(f"*/{name}{suffix}"):
                path.unlink(missing_ok=True)
        instance.delete_dynamic_partition(str(partitions.name), name)
        context.log.info(f"removed snapshot {name}: partitions.keep is {plan.snapshots.keep}")


def _materialized(plan: DatasetPlan, graph: TypedGraph, previous: PreviousRun) -> dg.MaterializeResult[Reference]:
    manifest = graph.manifest
    report = manifest["report"]
    figures = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "pairs": graph.num_pairs,
        "node_types": len(graph.node_types),
        "relations": len(graph.relations),
        "isolated_nodes": _total(report["isolated_nodes"]),
        "cold_nodes": _total(report["cold_nodes"]),
        **{name: report[name] for name in _COUNTS},
        "bytes": sum(int(file["bytes"]) for file in manifest["files"].values()),
    }
    return dg.MaterializeResult(
        asset_key=plan.key("graph"),
        value={"path": plan.graph_path, "content_hash": graph.content_hash},
        data_version=dg.DataVersion(graph.content_hash),
        metadata={
            **asset_page(_summary(plan, graph), plotted=PLOTTED, others=figures, previous=previous),
            "directory": dg.MetadataValue.path(plan.graph_path),
            "content_hash": graph.content_hash,
            "split_source": report["split_source"],
            **{name: report[name] for name in ("later_repeats", "valid_from", "test_from") if name in report},
            **({"groups": report["groups"]} if "groups" in report else {}),
            "types": records([_type_row(kind, report) for kind in manifest["node_types"]]),
            "relation_table": records([{n: r[n] for n in _OF_RELATION} | r["split"] for r in manifest["relations"]]),
            **_attributes(graph),
            "how_to_load": snippet(f"""
from graphmill.graph.typed_graph import TypedGraph

graph = TypedGraph.open({plan.graph_path!r})
"""),
        },
        check_results=_check_results(plan, manifest),
    )


PLOTTED = ("nodes", "edges", "pairs", "relations", "cold_nodes", "bytes")
"""What a person follows over rebuilds."""


def _summary(plan: DatasetPlan, graph: TypedGraph) -> str:
    splits = {
        name: sum(int(r["split"][name]) for r in graph.manifest["relations"]) for name in ("train", "valid", "test")
    }
    cold = _total(graph.manifest["report"]["cold_nodes"])
    held_out = f"{splits['valid']:,} edges are held out for validation and {splits['test']:,} for the test."
    types, relations = len(graph.node_types), len(graph.relations)
    return (
        f"The graph of {plan.dataset}: {graph.num_nodes:,} nodes of {types} type{'s' * (types > 1)}, "
        f"{graph.num_edges:,} edges of {relations} relation{'s' * (relations > 1)}. {held_out}"
        + (f" {cold:,} nodes have no training edge, so their vectors mean little." if cold else "")
    )


def _attributes(graph: TypedGraph) -> dict[str, Any]:
    """The attributes by node type with the share of nodes without a value; empty for a graph without attributes."""
    rows = [
        {"type": kind.name, "attribute": each["name"], "kind": each["kind"], "missing": 1 - each["nodes"] / kind.count,
         "frequent": ", ".join(f"{value} ({count:,})" for value, count in each["frequent"]), "features": each["width"]}
        for kind in graph.node_types
        for each in graph.attributes(kind.name)
    ]  # fmt: skip
    return {"attributes": records(rows)} if rows else {}


_OF_RELATION = ("source", "name", "target", "edges", "added_edges", "self_loops")
_COUNTS = ("excluded_nodes", "excluded_edges", "duplicates", "parallel_edges", "self_loops", "added_edges")


def _total(counts: Any) -> int:
    return sum(counts.values()) if isinstance(counts, Mapping) else int(counts)


def _type_row(kind: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    sets = [each for each in (kind["features"], *kind.get("feature_sets", {}).values()) if each]
    return {
        "type": kind["name"],
        "nodes": kind["count"],
        "without_training_edge": report["cold_nodes"].get(kind["name"], 0),
        "features": sum(each["width"] for each in sets),
    }


def _check_results(plan: DatasetPlan, manifest: Mapping[str, Any]) -> list[dg.AssetCheckResult]:
    key, report, relations, kinds = plan.key("graph"), manifest["report"], manifest["relations"], manifest["node_types"]
    untrained = [" | ".join((r["source"], r["name"], r["target"])) for r in relations if not r["split"]["train"]]
    unreached = [kind["name"] for kind in kinds if report["cold_nodes"].get(kind["name"], 0) >= kind["count"]]
    leaks = [overlap for overlap in report["leakage"]["overlaps"] if overlap["leaked_edges"]]
    # The data's own splits are not changed. A leak in them is reported, but does not stop the chain.
    drawn = report["split_source"] in ("drawn", "by_time", "by_group")
    beyond = [
        f"{count} edges {what}: {between}"
        for part, what in (("later", "too new"), ("group_links", "of nodes whose links are held out"))
        for between, count in report["leakage"].get(part, {}).items()
        if count
    ]
    newer = report["leakage"].get("newer_share", 0.0)
    if newer and report["split_source"].startswith("given"):
        beyond.append(
            f"{newer:.0%} of the training edges are newer than the median held-out edge, so that test figures are not those "
            "of a forecast: split by time (graph.split: {given: redraw, method: by_time})"
        )
    # A repeated item is not a leak: the n-th interaction is predicted from those before.
    again = report["split_source"] == "leave_one_out"
    return [
        TRAINED.result(
            key,
            not untrained,
            f"without training edges: {', '.join(untrained)}" if untrained else f"all {len(relations)} relations",
        ),
        REACHED.result(
            key,
            not unreached,
            f"types without a training edge: {', '.join(unreached)}" if unreached else f"all {len(kinds)} node types",
        ),
        SEALED.result(
            key,
            (again or not leaks) and not beyond,
            "; ".join(
                f"{o['leaked_edges']} of {o['edges']} {o['held_out']} edges are seen in {o['seen']}"
                + (", because users take the same item again" if again else "")
                for o in leaks
            )
            + "; ".join(beyond)
            or "no held-out pair occurs in another split",
            severity="error" if drawn else "warn",
            metadata={"split_source": report["split_source"]},
        ),
    ]
