"""How a model follows a change of its data: what the next run takes from the live version, and why."""

from itertools import takewhile
from pathlib import Path
from typing import Literal

import numpy as np

from graphmill.graph.sorted_unique import in_sorted
from graphmill.graph.summary import GraphSummary, NodeHashes, summarise
from graphmill.graph.typed_graph import TypedGraph
from graphmill.promotion.departures import nodes_of
from graphmill.promotion.versions import Version, Versions
from graphmill.settings import Settings, setting
from graphmill.systems.registry import entry
from graphmill.verified_files import read_json_file

Way = Literal["fresh", "warm_start", "embed_only"]
LEAST_KNOWN = 0.5
"""``auto``: with a smaller share of known nodes it trains afresh."""


class FollowSettings(Settings):
    """What a run takes from the live version."""

    way: Literal["fresh", "warm_start", "embed_only", "auto"] = setting(
        "fresh",
        "fresh: nothing. warm_start: its vectors, matched by node id, from which a training starts. embed_only: the whole "
        "model; new nodes are folded in, and nothing is trained. auto: by what changed",
    )
    epochs: int = setting(8, "Epochs of a warm start", ge=1)
    changed_max: float = setting(
        0.05,
        "auto: largest share of node pairs that may have come between known nodes, or gone, since the last training for "
        "embed_only; above it, warm_start",
        ge=0,
        le=1,
    )


def decide(settings: FollowSettings, system: str, versions: Versions, path: Path) -> tuple[Way, str]:
    """The way for a run on the graph in ``path``, and the reason as a sentence, "" if there is nothing to say. ``auto``
    decides by how the graph differs from that of the version that was last trained.

    Raises:
        InputError: a version is damaged.
    """
    live = versions.current()
    if settings.way == "fresh" or live is None:
        return "fresh", "" if settings.way == "fresh" else "nothing is live yet"
    if settings.way != "auto":
        return settings.way, f"as the defs.yaml says, from {live.name}"
    if live.about["system"] != system:
        return "fresh", f"{live.name} is of {live.about['system']}"
    trained, graph = _last_trained(versions, live), TypedGraph.open(path)
    before, now = GraphSummary.load(trained.path), summarise(graph)
    was, table = nodes_of(trained), graph.node_table()
    old = set(zip((was.type_names[code] for code in was.types), was.ids, strict=True))
    known = np.array([node in old for node in zip(table["type"].to_pylist(), table["id"].to_pylist(), strict=True)])
    if known.mean() < LEAST_KNOWN:
        return "fresh", f"{trained.name} knows {known.mean():.0%} of the nodes"
    others = sorted((before.node_types.keys() ^ now.node_types) | (before.relations.keys() ^ now.relations))
    if others:
        return "warm_start", f"{others[0]} has come or gone since {trained.name} was trained"
    changed = _changed(graph, known, before, now)
    sentence = f"{changed:.1%} of the pairs of known nodes came or went since {trained.name} was trained"
    if changed > settings.changed_max:
        return "warm_start", f"{sentence}, more than {settings.changed_max:.1%}"
    if not entry(system).folds_in:
        return "warm_start", f"{sentence}, but {system} cannot fold in new nodes"
    return "embed_only", f"{sentence}, at most {settings.changed_max:.1%}"


def _last_trained(versions: Versions, live: Version) -> Version:
    """The newest version up to the live one whose run was trained; the oldest that is left if all embed only."""
    older = sorted((each for each in versions.all() if each.number <= live.number), key=lambda each: -each.number)
    embedded = list(takewhile(lambda each: not _epochs(each), older))
    return (older[len(embedded) :] or embedded[-1:])[0]


def _epochs(version: Version) -> int:
    path = version.path / "report.json"
    return int(read_json_file(path, f"{path} is missing")["epochs_done"])


def _changed(graph: TypedGraph, known: np.ndarray, before: GraphSummary, now: GraphSummary) -> float:
    """Node pairs that are new between ``known`` nodes (bool [nodes]), and those that are gone, per pair of ``before``."""
    hashes, came = NodeHashes(graph), [np.zeros(0, np.uint64)]
    for relation in graph.relations:
        src, dst = graph.ends(relation)
        both = known[src] & known[dst]
        pairs = hashes.pairs(src[both], dst[both])
        came.append(pairs[~in_sorted(pairs, before.pairs)])
    gone = int((~in_sorted(before.pairs, now.pairs)).sum())
    return (len(np.unique(np.concatenate(came))) + gone) / max(len(before.pairs), 1)
