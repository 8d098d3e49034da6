"""The asset ``<dataset>/graph``: tables become a typed graph on disk, with held-out pairs and an audit of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.orchestration.checks import Check, PreviousRun, compared, specs
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.home import OUTPUTS
from graphmill.orchestration.metadata import records, scalars, snippet

CODE_VERSION = "1"

TRAINED = Check("relations_have_training_edges", "Every relation keeps edges to train on.", blocking=True)
REACHED = Check("types_are_reached", "Every node type has nodes that a training edge touches.", blocking=True)
SEALED = Check(
    "no_split_leakage",
    "No held-out pair of nodes is joined by an edge of another split, in either direction or any relation.",
    blocking=True,
)
CHECKS = (TRAINED, REACHED, SEALED)

Reference = dict[str, Any]


@dataclass(frozen=True)
class GraphPlan:
    """Names, places and settings that the graph asset needs."""

    dataset: str
    settings: GraphSettings
    root: Path
    owners: tuple[str, ...]
    has_features: bool

    def key(self, name: str) -> dg.AssetKey:
        """``<dataset>/<name>``."""
        return dg.AssetKey([self.dataset, name])

    @property
    def path(self) -> str:
        """The graph's directory, relative to ``root``."""
        return f"{OUTPUTS}/{self.dataset}/graph"


def graph_asset(plan: GraphPlan) -> dg.AssetsDefinition:
    """The graph asset; its value says where the graph is."""
    key = plan.key("graph")
    inputs = ["nodes", "edges", *(["features"] if plan.has_features else [])]

    @dg.asset(
        key=key,
        ins={name: dg.AssetIn(plan.key(name)) for name in inputs},
        group_name=f"{plan.dataset}_graph",
        kinds={"numpy"},
        owners=list(plan.owners),
        description=(
            f"The typed graph of {plan.dataset}: an immutable, memory-mapped directory with reverse edges and held-out "
            "pairs. The same tables and settings give the same bytes."
        ),
        code_version=CODE_VERSION,
        check_specs=specs(key, CHECKS),
    )
    def graph(context: dg.AssetExecutionContext, **tables: Any) -> Iterator[dg.MaterializeResult[Reference]]:
        previous = PreviousRun(context.instance, key)
        with user_errors():
            features = {kind: pq.read_table(plan.root / path) for kind, path in tables.get("features", {}).items()}
            built = build_graph(tables["nodes"], tables["edges"], plan.settings, plan.root / plan.path, features)
        yield _materialized(plan, built, previous)

    return graph


def _materialized(plan: GraphPlan, graph: TypedGraph, previous: PreviousRun) -> dg.MaterializeResult[Reference]:
    manifest = graph.manifest
    report = manifest["report"]
    figures = scalars(
        {
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
    )
    return dg.MaterializeResult(
        asset_key=plan.key("graph"),
        value={"path": plan.path, "content_hash": graph.content_hash},
        data_version=dg.DataVersion(graph.content_hash),
        metadata={
            **figures,
            "directory": dg.MetadataValue.path(plan.path),
            "content_hash": graph.content_hash,
            "split_source": report["split_source"],
            "types": records([_type_row(kind, report) for kind in manifest["node_types"]]),
            "relation_table": records([_relation_row(relation) for relation in manifest["relations"]]),
            "figures": compared(figures, previous),
            "how_to_load": snippet(f"""
from graphmill.graph.typed_graph import TypedGraph

graph = TypedGraph.open({plan.path!r})
data = graph.to_hetero_data()       # PyTorch Geometric
"""),
        },
        check_results=_check_results(plan, manifest),
    )


_COUNTS = ("excluded_nodes", "excluded_edges", "duplicates", "parallel_edges", "self_loops", "added_edges")


def _total(counts: Any) -> int:
    return sum(counts.values()) if isinstance(counts, Mapping) else int(counts)


def _type_row(kind: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    features = kind["features"]
    return {
        "type": kind["name"],
        "nodes": kind["count"],
        "without_training_edge": report["cold_nodes"].get(kind["name"], 0),
        "features": features["width"] if features else 0,
    }


def _relation_row(relation: Mapping[str, Any]) -> dict[str, Any]:
    plain = ("source", "name", "target", "edges", "added_edges", "self_loops")
    return {**{name: relation[name] for name in plain}, **relation["split"]}


def _check_results(plan: GraphPlan, manifest: Mapping[str, Any]) -> list[dg.AssetCheckResult]:
    key, report = plan.key("graph"), manifest["report"]
    untrained = [
        " | ".join((r["source"], r["name"], r["target"])) for r in manifest["relations"] if not r["split"]["train"]
    ]
    unreached = [
        kind["name"] for kind in manifest["node_types"] if report["cold_nodes"].get(kind["name"], 0) >= kind["count"]
    ]
    leaks = [overlap for overlap in report["leakage"]["overlaps"] if overlap["leaked_edges"]]
    # Splits that came with the data are kept as they are: a leak in them is for a person to see, not a reason to stop.
    drawn = report["split_source"] == "drawn"
    return [
        TRAINED.result(
            key,
            not untrained,
            f"without training edges: {', '.join(untrained)}"
            if untrained
            else f"all {len(manifest['relations'])} relations",
        ),
        REACHED.result(
            key,
            not unreached,
            f"no training edge touches: {', '.join(unreached)}"
            if unreached
            else f"all {len(manifest['node_types'])} node types",
        ),
        SEALED.result(
            key,
            not leaks,
            "; ".join(
                f"{o['leaked_edges']} of {o['edges']} {o['held_out']} edges are seen in {o['seen']}" for o in leaks
            )
            or "no held-out pair is seen elsewhere",
            severity="error" if drawn else "warn",
            metadata={"split_source": report["split_source"], "leaking": records(leaks) if leaks else "none"},
        ),
    ]
