"""The audit of splits again, from a finished graph's edges alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphmill.graph.leakage import LeakageReport, Overlap, audit_pairs, later_edges, links_of_held_out
from graphmill.graph.settings import SplitSettings
from graphmill.graph.typed_graph import TypedGraph


def overlap(report: LeakageReport, held_out: str, seen: str = "train") -> Overlap:
    return next(each for each in report.overlaps if (each.held_out, each.seen) == (held_out, seen))


def audit_edges(src, dst, relation, split, names) -> LeakageReport:
    """Audit edges from their ends, which are numbered here as pairs."""
    order = np.argsort(relation, kind="stable")
    ends = np.sort(np.stack([src, dst], axis=1)[order], axis=1)
    distinct, pair = np.unique(ends, axis=0, return_inverse=True)
    bounds = np.searchsorted(relation[order], np.arange(len(names) + 1))
    return audit_pairs(pair.reshape(-1), (distinct[:, 0], distinct[:, 1]), split[order], names, bounds.tolist())


def audit_leakage(graph: TypedGraph) -> LeakageReport:
    """Audit the splits of a typed graph from its edges alone; ``pair`` is not consulted.

    Counts of edges are of the graph's: an undirected edge counts in both directions.
    """
    offset = {node_type.name: node_type.offset for node_type in graph.node_types}
    src, dst, relation, split = [], [], [], []
    for r in graph.relations:
        edges = graph.edges(r)
        src.append(edges.src + np.int32(offset[r.source]))
        dst.append(edges.dst + np.int32(offset[r.target]))
        relation.append(np.full(r.edges, r.index, np.int32))
        split.append(edges.split)
    result = audit_edges(
        np.concatenate(src),
        np.concatenate(dst),
        np.concatenate(relation),
        np.concatenate(split),
        [f"{r.source} | {r.name} | {r.target}" for r in graph.relations],
    )
    if graph.manifest["report"]["split_source"] == "by_group":
        settings = SplitSettings.model_validate(graph.manifest["settings"]["split"])
        heads, tails, relations, splits = (np.concatenate(part) for part in (src, dst, relation, split))
        keys = [r.key for r in graph.relations]
        return replace(
            result, seen_edges={"group_links": links_of_held_out(heads, tails, relations, splits, keys, settings)}
        )
    times = [edges.timestamp for edges in map(graph.edges, graph.relations) if edges.timestamp is not None]
    if graph.manifest["report"]["split_source"] == "by_time" and times:
        return replace(result, seen_edges={"later": later_edges(np.concatenate(times), np.concatenate(split))})
    return result
