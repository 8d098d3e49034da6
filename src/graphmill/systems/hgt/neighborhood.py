"""``neighbor_sampled``: divides the seeds of a micro-batch, and makes message graphs of the sampled neighbourhood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from graphmill.errors import SettingsError
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges
from graphmill.sampling.keyed import Key, key_of
from graphmill.sampling.neighbor_picks import InEdges, pick
from graphmill.sampling.neighbors import NeighborSample
from graphmill.systems.hgt.data import HgtData
from graphmill.systems.hgt.settings import HgtSettings

_LEAST_POSITIVES = 4


class SeedPlan(NamedTuple):
    """How the ``node_batch_size`` seeds of a micro-batch are divided.

    ``links`` [relations]: links per *step*, each with a head, a tail and its negatives. ``anchors``: at most, per step.
    ``positives``: at most, per anchor (0: there is no contrastive term). ``candidates``: wrong targets of the softmax, at
    most, per type that links end in (0: there is no softmax).
    """

    links: list[int]
    anchors: int
    positives: int
    candidates: int = 0


def links_per_step(settings: HgtSettings, edges: int) -> int:
    """Links of a relation: at most ``edge_sample_size``, at most ``supervision_fraction`` of the edges, at least one."""
    sampling = settings.sampling
    return min(sampling.edge_sample_size, max(int(edges * sampling.supervision_fraction), 1), edges)


def plan_seeds(settings: HgtSettings, wanted: Sequence[int], anchors: int, target_types: int = 1) -> SeedPlan:
    """Divide the seeds of a step. The contrastive weight is the share for anchors and their positives.

    ``wanted`` [relations]: links per step as in the other modes; each relation with links keeps at least one.
    ``anchors``: number of nodes with a positive. ``target_types``: number of types that links end in; up to half of the
    seeds are their candidates in a softmax. If the seeds suffice, the step has the links and anchors of a full one.
    """
    sampling, objective = settings.sampling, settings.objective
    micros = sampling.accumulation_steps
    share = int(sampling.node_batch_size * objective.contrast) if anchors else 0
    candidates = min(objective.drawn_candidates, max(sampling.node_batch_size // (2 * target_types), 1))
    room = (sampling.node_batch_size - share - candidates * target_types) * micros // (2 + objective.negatives_a_link)
    total = sum(wanted)
    links = list(wanted) if total <= room else [max(n * room // total, min(n, 1)) for n in wanted]
    if not anchors:
        return SeedPlan(links, 0, 0, candidates)
    most = min(objective.contrastive_anchors, anchors)
    per_micro = max(min(-(-most // micros), share // (1 + _LEAST_POSITIVES)), 1)
    return SeedPlan(links, min(most, per_micro * micros), max(share // per_micro - 1, 1), candidates)


def fanouts_of(settings: HgtSettings, relations: Sequence[tuple[str, str, str]]) -> list[list[int]]:
    """Fan-outs [layers][relations]: ``num_neighbors``, or a relation's own from ``relation_neighbors``.

    Raises:
        SettingsError: an entry names a relation that the graph does not have.
    """
    layers = settings.model.num_layers
    hops = settings.sampling.num_neighbors[:layers]
    own = dict(settings.sampling.own_fanouts())
    names = {name for key in relations for name in ("|".join(key), key[1])}
    if unknown := sorted(set(own) - names):
        raise SettingsError(
            f"sampling.relation_neighbors names '{unknown[0]}', which is not a relation of the graph "
            f"(there are {', '.join(sorted({key[1] for key in relations}))})"
        )
    rows = [own.get("|".join(key), own.get(key[1], hops)) for key in relations]
    return [[row[hop] for row in rows] for hop in range(layers)]


def some_positives(
    indptr: np.ndarray, positives: np.ndarray, anchors: np.ndarray, most: int, *key: Key
) -> tuple[np.ndarray, np.ndarray]:
    """Draw at most ``most`` positives of each anchor, uniformly without replacement: their counts [A], and the positives."""
    usable = np.zeros(len(positives), np.uint8)
    edges = InEdges(0, 0, indptr, positives, usable, usable)
    found, rows = pick(edges, anchors, most, key_of(*key), np.zeros(0, bool))
    return np.bincount(rows, minlength=len(anchors)), positives[found]


def message_blocks(sample: NeighborSample, data: HgtData) -> list[MessageGraph]:
    """The message graph of each layer, first layer first, on the host."""
    blocks = []
    for layer in range(len(sample.counts) - 1):
        edges = []
        for number, r in enumerate(data.relations):
            source, target = sample.layer_edges(layer, number, r.target_type)
            # The masked pairs are not in the sample, so the edges need no pair numbers.
            edges.append(TypedEdges(r.source_type, r.target_type, source, target, np.zeros_like(target)))
        senders, receivers = sample.counts[layer].tolist(), sample.counts[layer + 1].tolist()
        blocks.append(MessageGraph.build(senders, edges, receivers))
    return blocks
