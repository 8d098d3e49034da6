"""Spectral vectors of a step: those of all nodes without the step's own links, which must not be evidence for themselves."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmill.graph.spectral import SHORTENING, SHRINKAGE, SpectralVectors
from graphmill.kernels.hgt.segments import weighted_sums

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
