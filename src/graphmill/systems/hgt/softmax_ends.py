"""The ends of a step's links: spectral vectors without the step's pairs, and sums of them over neighbours.

For the CPU, scipy computes both on the host (:mod:`graphmill.systems.hgt.spectral`). An accelerator keeps the basis. It
computes the vectors in one product and the sums of a block of relations in another; a step copies only node numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.spectral import SHRINKAGE
from graphmill.kernels.devices import to_device
from graphmill.kernels.hgt.segments import weighted_sums
from graphmill.sampling.sequences import ranges
from graphmill.systems.hgt.data import HgtData
from graphmill.systems.hgt.softmax_links import Asked, padded
from graphmill.systems.hgt.spectral import SHORTENING, NeighbourSums, SpectralVectors
from graphmill.training.contract import Encoded


class LinkEnds:
    """For the CPU. ``pairs``: the graph's number of pairs; ``with_sums``: whether the score has sums over neighbours."""

    def __init__(
        self, data: HgtData, sums: NeighbourSums, pairs: int, device: torch.device, *, with_sums: bool
    ) -> None:
        self.data, self.sums, self.pairs, self.device, self.with_sums = data, sums, pairs, device, with_sums

    def left_out(self, masked: np.ndarray) -> np.ndarray:
        """bool [pairs]: True for the pairs in ``masked``."""
        out = np.zeros(self.pairs, dtype=bool)
        out[masked] = True
        return out

    def vectors(self, spectral: SpectralVectors, masked: np.ndarray) -> Tensor:
        """Spectral vectors fp32 [nodes, width] without the pairs ``masked`` (int64)."""
        return torch.from_numpy(spectral.all(self.left_out(masked)))

    def arrays(
        self, group: Sequence[Asked], sizes: tuple[int, int], encoded: Encoded, masked: np.ndarray
    ) -> list[np.ndarray]:
        """The arrays on the host from which :meth:`tensors` makes the ends of R relations.

        ``sizes`` (L, C): each relation is padded to L heads, L tails and C candidates. ``masked``: bool [pairs].
        """
        pieces = [self._of(a, encoded, masked) for a in group]
        parts = (sizes[0], sizes[0], sizes[1])
        return [
            np.concatenate([padded([p[n][k] for p in pieces], size) for k, size in enumerate(parts)], 1)
            for n in range(len(pieces[0]))
        ]

    def tensors(self, arrays: list[Tensor], encoded: Encoded) -> list[Tensor]:
        """Spectral vectors [R, 2L + C, width], rows of z [R, 2L + C], sums [R, 2L + C, width] and counts [R, 2L + C]."""
        return arrays

    def _of(self, asked: Asked, encoded: Encoded, masked: np.ndarray) -> list[list[np.ndarray]]:
        """Spectral vectors, rows of z, sums over neighbours and their counts, each for heads, tails and candidates."""
        r, spectral = self.data.relations[asked.relation], encoded.tensors["spectral"].numpy()
        nodes = [asked.heads + r.source_offset, *(n + r.target_offset for n in (asked.tails, asked.candidates))]
        lookup = encoded.tensors.get("lookup")
        rows = nodes if lookup is None else [lookup.numpy()[n] for n in nodes]
        vectors = [spectral[n] for n in nodes]
        if not self.with_sums:
            return [vectors, rows, [v[:, :0] for v in vectors], [np.zeros(len(n), np.float32) for n in nodes]]
        outgoing = self.sums.of(asked.relation, asked.heads, spectral, masked)
        targets = np.concatenate([asked.tails, asked.candidates])
        incoming = self.sums.of(asked.relation, targets, spectral, masked, sources=True)
        links = len(asked.links)
        sums, counts = ([out, into[:links], into[links:]] for out, into in zip(outgoing, incoming, strict=True))
        return [vectors, rows, sums, counts]


class LinkEndsOnDevice(LinkEnds):
    """For an accelerator. Arrays on the host hold the edges of all relations, from both ends, as one CSR."""

    def __init__(
        self, data: HgtData, sums: NeighbourSums, pairs: int, device: torch.device, *, with_sums: bool
    ) -> None:
        super().__init__(data, sums, pairs, device, with_sums=with_sums)
        self._placed: tuple[SpectralVectors, list[Tensor]] | None = None
        indptr, other, pair, self.first = [], [], [], list[int]()
        edges = rows = 0
        for number, r in enumerate(data.relations):
            for matrix, offset in (
                (sums.outgoing[number], r.target_offset),
                (sums.incoming[number], r.source_offset),
            ):
                self.first.append(rows)
                indptr.append(matrix.indptr[:-1].astype(np.int64) + edges)
                other.append(matrix.indices.astype(np.int32) + np.int32(offset))
                pair.append(matrix.data.astype(np.int64) - 1)
                rows, edges = rows + matrix.shape[0], edges + matrix.nnz
        self.indptr = np.concatenate([*indptr, [edges]]).astype(np.int64)
        self.other = np.concatenate([*other, np.zeros(0, np.int32)])
        self.pair = np.concatenate([*pair, np.zeros(0, np.int64)])

    def vectors(self, spectral: SpectralVectors, masked: np.ndarray) -> Tensor:
        """Spectral vectors fp32 [nodes, width] without the pairs ``masked``, on the device."""
        basis, values, pair, column, bounds, almost_zero = self._basis(spectral)
        keep = to_device(torch.from_numpy(~self.left_out(masked)), self.device)
        found = weighted_sums(column, bounds, values * keep.index_select(0, pair), basis)
        # Divides by √(squared length + shrinkage), and by √(l (l + shortening)) as spectral.py, in few launches.
        vectors, scale = found[:, :-1], (found[:, -1:] + SHRINKAGE).sqrt()
        length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        return vectors * torch.addcmul(almost_zero, length, torch.add(length, scale, alpha=SHORTENING)).rsqrt()

    def _basis(self, spectral: SpectralVectors) -> list[Tensor]:
        """The basis and the graph's entries on the device, copied once per table."""
        if self._placed is None or self._placed[0] is not spectral:
            entries = spectral.entries
            matrix = entries.matrix
            # An entry equals its column's weight. With one more column of weights the product has the squared lengths.
            basis = np.concatenate([spectral.columns, entries.weights[:, None]], 1, dtype=np.float32)
            numbers = entries.pair, matrix.indices, matrix.indptr
            arrays = [basis, matrix.data, *(n.astype(np.int32) for n in numbers), np.full(1, 1e-12, np.float32)]
            self._placed = spectral, [torch.from_numpy(array).to(self.device) for array in arrays]
        return self._placed[1]

    def arrays(
        self, group: Sequence[Asked], sizes: tuple[int, int], encoded: Encoded, masked: np.ndarray
    ) -> list[np.ndarray]:
        """Rows of z and node numbers, int64 [R, 2L + C]; counts of neighbours, float32 [R, 2L + C]. With sums also the
        offsets of each node's neighbours, int32 [R · (2L + C) + 1], and the neighbours, int32.
        """
        links, candidates = sizes
        shape = len(group), 2 * links + candidates
        nodes, row = np.zeros(shape, np.int64), np.full(shape, -1, np.int64)  # −1: padding
        for n, a in enumerate(group):
            r, (out, into) = self.data.relations[a.relation], self.first[2 * a.relation : 2 * a.relation + 2]
            ends = (
                (a.heads, r.source_offset, out),
                (a.tails, r.target_offset, into),
                (a.candidates, r.target_offset, into),
            )
            for place, (local, offset, first) in zip((0, links, 2 * links), ends, strict=True):
                nodes[n, place : place + len(local)] = local + offset
                row[n, place : place + len(local)] = local + first
        lookup = encoded.tensors.get("lookup")
        rows = nodes if lookup is None else np.where(row < 0, 0, lookup.numpy()[nodes])
        if not self.with_sums:
            return [rows, nodes, np.zeros(shape, np.float32)]
        of = row.ravel()
        start, stop = self.indptr[of], self.indptr[of + 1]
        stop[of < 0] = start[of < 0]
        edges = ranges(start, stop)
        keep = ~masked[self.pair[edges]]
        before = np.concatenate(([0], np.cumsum(keep)))
        bounds = before[np.concatenate(([0], np.cumsum(stop - start)))]
        counts = np.diff(bounds).astype(np.float32).reshape(shape)
        return [rows, nodes, counts, bounds.astype(np.int32), self.other[edges[keep]]]

    def tensors(self, arrays: list[Tensor], encoded: Encoded) -> list[Tensor]:
        """As on the CPU, from arrays on the device."""
        rows, nodes, counts, *neighbours = arrays
        spectral = encoded.tensors["spectral"]
        vectors = spectral.index_select(0, nodes.flatten()).view(*nodes.shape, -1)
        if not neighbours:
            return [vectors, rows, vectors[..., :0], counts]
        bounds, others = neighbours
        return [vectors, rows, weighted_sums(others, bounds, None, spectral).view(vectors.shape), counts]
