"""The part of HGT's vectors that needs no training: spectral vectors, and sums of them over a relation's neighbours.

All is computed by numpy and scipy on the host, without gradients; :mod:`graphmill.systems.hgt.softmax_ends` has the
version for accelerators. A step's vectors and sums leave out its masked pairs, which hold its links. The basis stays the
same.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from graphmill.graph.spectral import SHRINKAGE, Neighbourhoods, factors, scaled
from graphmill.graph.training_links import TrainingLinks
from graphmill.sampling.sequences import ranges
from graphmill.systems.hgt.data import HgtData

SHORTENING = 0.3
"""Keeps vectors shorter than 1, most of all those of small neighbourhoods: length l becomes √(l / (l + this))."""
_ALMOST_ZERO = 1e-4
"""Share of the largest singular value below which a direction is rounding error."""
_MOST_OF_A_ROW = 0.5
"""If more than this share of a row's squared length is left out, the rest is summed anew."""


class SpectralTable(nn.Module):
    """The basis of the vectors, as buffers. A checkpoint holds it, so that a resumed run keeps its basis.

    ``vectors`` float32 [nodes, width]: left singular vectors times singular values; ``values`` [width].
    """

    def __init__(self, nodes: int, width: int) -> None:
        super().__init__()
        self.vectors: Tensor
        self.values: Tensor
        self.register_buffer("vectors", torch.zeros(nodes, width))
        self.register_buffer("values", torch.zeros(width))

    def fill(self, entries: Neighbourhoods, seed: int) -> None:
        """Compute the factors of a graph's neighbourhoods."""
        vectors, values = factors(scaled(entries.matrix), self.vectors.shape[1], seed)
        self.vectors.copy_(torch.from_numpy(vectors))
        self.values.copy_(torch.from_numpy(values))


class SpectralVectors:
    """Vectors of all nodes, with or without some pairs.

    A node's vector is the sum of its neighbours' columns (right singular vectors). A pair is left out by leaving out its
    two entries. The columns follow from the table.
    """

    def __init__(self, entries: Neighbourhoods, table: SpectralTable) -> None:
        self.entries = entries
        left, values = table.vectors.cpu().float().numpy(), table.values.cpu().double().numpy()
        self.columns = _columns(scaled(entries.matrix), left, values)

    def all(self, masked: np.ndarray | None = None) -> np.ndarray:
        """float32 [nodes, width], shorter than 1 (0 without a neighbour). ``masked`` bool [pairs]: pairs to leave out.

        Their entries are subtracted from the sums of all entries. Where they are most of a row, the difference would be
        mostly rounding error: such rows are summed anew.
        """
        sums, squares = self._whole
        sums, squares = sums.copy(), squares.copy()
        if masked is not None:
            self._leave_out(masked, sums, squares)
        sums /= np.sqrt(squares + SHRINKAGE, dtype=np.float32)[:, None]
        return _shortened(sums)

    @cached_property
    def _whole(self) -> tuple[np.ndarray, np.ndarray]:
        """Σ of the columns over each row's entries, float32 [nodes, width], and the rows' squared lengths, float64."""
        matrix = self.entries.matrix
        return np.asarray(matrix @ self.columns, dtype=np.float32), _squares(matrix)

    def _leave_out(self, masked: np.ndarray, sums: np.ndarray, squares: np.ndarray) -> None:
        """Change the rows' sums and squared lengths in place to those without the pairs ``masked``."""
        matrix = self.entries.matrix
        entries = np.flatnonzero(masked[self.entries.pair])
        of = np.searchsorted(matrix.indptr, entries, side="right") - 1
        rows, counts = np.unique(of, return_counts=True)
        if not len(rows):
            return
        bounds = np.concatenate(([0], np.cumsum(counts)))
        gone = sp.csr_matrix((matrix.data[entries], matrix.indices[entries], bounds), (len(rows), matrix.shape[1]))
        lost = _squares(gone)
        most = lost > _MOST_OF_A_ROW * squares[rows]
        some = rows[~most]
        sums[some] -= gone[~most] @ self.columns
        squares[some] -= lost[~most]
        rows = rows[most]
        start, stop = matrix.indptr[rows], matrix.indptr[rows + 1]
        entries = ranges(start, stop)
        entries = entries[~masked[self.entries.pair[entries]]]
        bounds = np.concatenate(([0], np.searchsorted(entries, stop)))
        left = sp.csr_matrix((matrix.data[entries], matrix.indices[entries], bounds), (len(rows), matrix.shape[1]))
        sums[rows], squares[rows] = left @ self.columns, _squares(left)

    def projected(self, matrix: sp.csr_matrix) -> np.ndarray:
        """float32 [rows, width]: vectors of nodes outside the basis, from their neighbourhoods [rows, columns].

        A basis keeps more of the rows that it was made from than of other rows. Scores compare the two, so the other rows
        are multiplied by the mean ratio.
        """
        return _shortened(np.asarray(scaled(matrix) @ self.columns, dtype=np.float32) * self._lost_by_others)

    @cached_property
    def _lost_by_others(self) -> np.float32:
        """Ratio of the share of length that rows of a basis keep to that of other rows, by a basis of nine rows in ten."""
        rows = scaled(self.entries.matrix)
        rows = rows[np.diff(rows.indptr) > 0]
        others = np.arange(rows.shape[0]) % 10 == 9
        basis = _columns(rows[~others], *factors(rows[~others], self.columns.shape[1], seed=0))
        kept = [_kept(rows[part], basis) for part in (~others, others)]
        return np.float32(kept[0] / kept[1] if min(kept) > 0 else 1.0)


def _squares(matrix: sp.csr_matrix) -> np.ndarray:
    """float64 [rows]: squared lengths."""
    sums = np.concatenate(([0.0], np.cumsum(matrix.data.astype(np.float64) ** 2)))
    return np.diff(sums[matrix.indptr])


def _columns(rows: sp.csr_matrix, left: np.ndarray, values: np.ndarray) -> np.ndarray:
    """float32 [columns, width]: right singular vectors, from left ones times ``values``; 0 for rounding errors."""
    kept = values > _ALMOST_ZERO * max(float(values.max(initial=0.0)), 1e-30)
    inverse = np.where(kept, 1.0 / np.where(kept, values, 1.0) ** 2, 0.0).astype(np.float32)
    return np.asarray(rows.T.tocsr() @ (left * inverse), dtype=np.float32)


def _kept(rows: sp.csr_matrix, columns: np.ndarray) -> float:
    """Mean share of a row's length that its vector keeps."""
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    return float(np.mean(np.linalg.norm(np.asarray(rows @ columns), axis=1) / length)) if len(length) else 0.0


def _shortened(vectors: np.ndarray) -> np.ndarray:
    """Rows of length √(l / (l + :data:`SHORTENING`)) instead of l; changes ``vectors``."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.maximum(np.sqrt(length * (length + SHORTENING)), 1e-6)
    return vectors


class NeighbourSums(TrainingLinks):
    """Per relation the training edges as CSR from either end, and sums of vectors along them.

    An edge's entry in ``outgoing`` is its pair + 1 (or 1, where no pair is ever left out).
    """

    def __init__(self, outgoing: list[sp.csr_matrix], offsets: list[tuple[int, int]]) -> None:
        super().__init__(outgoing, offsets)
        self.incoming = [matrix.T.tocsr() for matrix in outgoing]

    @classmethod
    def of_data(cls, data: HgtData) -> NeighbourSums:
        """Those of a graph's training edges."""
        outgoing = []
        for r, relation in zip(data.relations, data.graph.relations, strict=True):
            shape = (data.graph.node_type(relation.source).count, r.num_targets)
            _, first = np.unique(r.src.astype(np.int64) * r.num_targets + r.dst, return_index=True)
            # Stored pairs start at 1: an entry of 0 would be none to scipy.
            entries = (r.pair[first].astype(np.int64) + 1, (r.src[first], r.dst[first]))
            outgoing.append(sp.csr_matrix(entries, shape))
        return cls(outgoing, [(r.source_offset, r.target_offset) for r in data.relations])

    def without(self, masked: np.ndarray) -> NeighbourSums:
        """The same edges without the pairs ``masked``, bool [pairs]."""
        kept = []
        for matrix in self.outgoing:
            entries = matrix.tocoo()
            keep = ~masked[entries.data - 1]
            kept.append(sp.csr_matrix((entries.data[keep], (entries.row[keep], entries.col[keep])), matrix.shape))
        return NeighbourSums(kept, self.offsets)

    def of(
        self,
        relation: int,
        nodes: np.ndarray,
        vectors: np.ndarray,
        masked: np.ndarray | None = None,
        *,
        sources: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the targets' vectors over each head's links [n, width], and numbers of these links [n], float32.

        ``nodes``: local numbers; ``vectors`` [nodes of the graph, width]; ``sources``: sums of sources at targets instead.
        """
        matrix = (self.incoming if sources else self.outgoing)[relation][nodes]
        first = self.offsets[relation][0 if sources else 1]
        keep = (
            np.ones(len(matrix.data), np.float32) if masked is None else (~masked[matrix.data - 1]).astype(np.float32)
        )
        weights = sp.csr_matrix((keep, matrix.indices, matrix.indptr), matrix.shape)
        sums = weights @ vectors[first : first + matrix.shape[1]]
        return np.asarray(sums, dtype=np.float32), np.asarray(weights.sum(1), dtype=np.float32).ravel()
