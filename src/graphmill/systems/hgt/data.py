"""What HGT trains on: the training edges of a typed graph as messages, as supervision and as a filter for negatives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from graphmill.errors import InputError
from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.spectral import Neighbourhoods, neighbourhoods
from graphmill.sampling.keyed import generator
from graphmill.sampling.negatives import pair_keys
from graphmill.systems.base_system import pairs_are_split
from graphmill.systems.hgt.settings import SIMILARITY

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.systems.hgt.settings import HgtObjective
from graphmill.graph.spectral import SHORTENING, SHRINKAGE, SpectralVectors
from graphmill.kernels.hgt.segments import weighted_sums


@dataclass(frozen=True)
class LocalEdges:
    """One relation's training edges, local node numbers, sorted by (dst, src); ``mask``: :attr:`HgtData.masks`."""

    source_type: int
    target_type: int
    src: np.ndarray
    dst: np.ndarray
    mask: np.ndarray
    source_offset: int
    target_offset: int
    num_targets: int

    @cached_property
    def keys(self) -> np.ndarray:
        """Sorted keys of the known training links, for filtering negatives."""
        return pair_keys(self.src, self.dst, self.num_targets)

    @cached_property
    def degree(self) -> np.ndarray:
        """int64 [num_targets]: training edges into each target."""
        return np.bincount(self.dst, minlength=self.num_targets)


@dataclass(frozen=True)
class Similar:
    """Nodes of a type (number ``kind``) that share neighbours: each anchor's positives as CSR, in local numbers;
    ``first``: the offset."""

    kind: int
    first: int
    count: int
    anchors: np.ndarray
    indptr: np.ndarray
    positives: np.ndarray


class HgtData:
    """Training edges per relation and the similarity graph of the contrastive term.

    A step leaves its links out of its messages as the graph leaves its held-out links out. If no pair of nodes with a
    held-out link has a training edge, by any relation, these are all edges of a pair: masks are the graph's pairs. If some
    have, as in files with a split of their own, these are a link and its reverse: other relations of the two nodes are then
    evidence at test, and must be in training. Masks are then pairs by relation, and a relation and its reverse count as one.
    ``masks``: how many there are. ``groups`` int64 [relations]: the same number for a relation and its reverse.
    """

    def __init__(self, graph: TypedGraph, objective: HgtObjective) -> None:
        self.graph = graph
        types = {t.name: number for number, t in enumerate(graph.node_types)}
        self.relations: list[LocalEdges] = []
        for relation in graph.relations:
            edges = graph.edges(relation.index)
            train = np.flatnonzero(np.asarray(edges.split) == 0)
            numbers = types[relation.source], types[relation.target]
            source, target = (graph.node_types[number] for number in numbers)
            src, dst, pair = (np.asarray(array)[train] for array in (edges.src, edges.dst, edges.pair))
            self.relations.append(LocalEdges(*numbers, src, dst, pair, source.offset, target.offset, target.count))
        self.groups = self._groups()
        self.masks = graph.num_pairs
        self.by_relation = pairs_are_split(graph)
        if self.by_relation:
            keys = [self._keys(r.mask, number) for number, r in enumerate(self.relations)]
            self._mask_keys = sorted_unique(np.concatenate(keys))
            self.masks = len(self._mask_keys)
            self.relations = [
                replace(r, mask=np.searchsorted(self._mask_keys, key))
                for r, key in zip(self.relations, keys, strict=True)
            ]
        if not any(len(r.src) for r in self.relations):
            raise InputError(f"{graph.path} has no training edges; reduce graph.split.valid and graph.split.test")
        self.similar = self._similar(graph, types, objective)

    @cached_property
    def entries(self) -> Neighbourhoods:
        """The neighbourhoods of the graph's nodes, with masks in place of pairs."""
        neighbours = neighbourhoods(self.graph)
        if not self.by_relation:
            return neighbours
        relation = neighbours.columns[neighbours.matrix.indices] // max(self.graph.num_nodes, 1) % len(self.relations)
        return replace(neighbours, pair=np.searchsorted(self._mask_keys, self._keys(neighbours.pair, relation)))

    def signs(self, width: int, seed: int) -> tuple[Tensor, Tensor]:
        """fp32 [relations, ``width``], 1 or −1 at random: of each relation, and of its reverse (itself without one)."""
        drawn = generator(seed, "signs").choice(np.array([-1.0, 1.0], np.float32), (len(self.relations), width))
        place = np.arange(len(self.groups))
        reverse = [next((o for o in place[self.groups == g] if o != n), n) for n, g in enumerate(self.groups)]
        return torch.from_numpy(drawn), torch.from_numpy(drawn[reverse])

    def masks_of(self, pairs: np.ndarray) -> np.ndarray:
        """int64: the masks of all edges of some of the graph's pairs."""
        if not self.by_relation:
            return np.asarray(pairs, np.int64)
        return np.flatnonzero(np.isin(self._mask_keys // len(self.relations), pairs))

    def _keys(self, pair: np.ndarray, relation: int | np.ndarray) -> np.ndarray:
        return np.asarray(pair, np.int64) * len(self.relations) + self.groups[relation]

    def _groups(self) -> np.ndarray:
        """int64 [relations]: relations with the same pairs, a relation and its reverse, have the same number."""
        numbers: dict[tuple[frozenset[int], bytes], int] = {}
        ends = ((frozenset((r.source_type, r.target_type)), sorted_unique(r.mask).tobytes()) for r in self.relations)
        return np.array([numbers.setdefault(key, len(numbers)) for key in ends], np.int64)

    def by_type(self, nodes: np.ndarray) -> list[np.ndarray]:
        """Ascending global node numbers, converted to local ones per type."""
        bounds = np.searchsorted(nodes, [t.offset for t in self.graph.node_types] + [self.graph.num_nodes])
        return [nodes[a:b] - t.offset for a, b, t in zip(bounds[:-1], bounds[1:], self.graph.node_types, strict=True)]

    def _similar(self, graph: TypedGraph, types: dict[str, int], objective: HgtObjective) -> Similar | None:
        anchor, via = objective.contrastive_type, objective.contrastive_via
        if objective.contrast == 0.0 or not any({r.source, r.target} == {anchor, via} for r in graph.relations):
            return None
        from graphmill.graph.co_occurrence import shared_neighbour_jaccard

        similarity = shared_neighbour_jaccard(graph, anchor, via, threshold=SIMILARITY)
        indptr, indices = similarity.indptr.astype(np.int64), similarity.indices.astype(np.int32)
        anchors = np.flatnonzero(np.diff(indptr) > 0)
        if not len(anchors):
            return None
        node_type = graph.node_type(anchor)
        return Similar(types[anchor], node_type.offset, node_type.count, anchors, indptr, indices)


_ALMOST_ZERO = 1e-12


class StepVectors:
    """The entries of a graph's neighbourhoods and their columns, on a device."""

    def __init__(self, vectors: SpectralVectors, device: torch.device) -> None:
        entries, matrix = vectors.entries, vectors.entries.matrix
        self.source = vectors
        # An entry equals its column's weight. With one more column of weights the product has the squared lengths.
        basis = torch.cat([torch.from_numpy(vectors.columns), torch.from_numpy(entries.weights)[:, None]], 1)
        self.basis, self.weights = basis.to(device), torch.from_numpy(matrix.data).to(device)
        numbers = (torch.from_numpy(part.astype("int32")) for part in (entries.pair, matrix.indices, matrix.indptr))
        self.pair, self.column, self.bounds = (part.to(device) for part in numbers)

    @torch.no_grad()
    def without(self, masked: Tensor | None = None) -> Tensor:
        """fp32 [nodes, width], shorter than 1 (0 without a neighbour): as ``shortened(vectors.all(masked))``.

        ``masked`` bool [pairs], on the device: the pairs to leave out.
        """
        weights = self.weights if masked is None else self.weights * ~masked.index_select(0, self.pair)
        sums = weighted_sums(self.column, self.bounds, weights, self.basis)
        # Divides by √(squared length + shrinkage), and by √(l (l + shortening)), in few launches.
        rows, scale = sums[:, :-1], (sums[:, -1:] + SHRINKAGE).sqrt()
        length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        return rows * (length * torch.add(length, scale, alpha=SHORTENING) + _ALMOST_ZERO).rsqrt()
