"""Manifold-constrained hyper-connections (mHC, arXiv 2512.24880): a residual connection with several streams through
all layers.

For one branch F, per row, with streams X [n, C] and u = RMSNorm(vec X):

    h = σ(α_pre u Φ_pre + b_pre)    p = 2 σ(α_post u Φ_post + b_post)    H = D(α_res u Φ_res + b_res)
    X' = H X + p ⊗ F(Σ_s h_s X_s)

D makes H doubly stochastic: by Sinkhorn iterations, or exactly as a mean of permutations ("lite", arXiv 2601.05732). So
the mean over streams is preserved, and no product over layers grows.

At the start Φ = 0, p = 1, Σ h = 1 and the streams are equal, so that the model is exactly the plain residual model.
b_pre prefers one stream, a different one in each layer: so the streams can diverge from the first step on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations

import torch
from torch import Tensor, nn

from graphmill.kernels.devices import wide

SINKHORN = "sinkhorn"
STREAMS = 4
"""Residual streams: the expansion rate n of the paper."""
INITIAL_GATE = 0.01
"""α of the maps that depend on the input, at the start."""
SINKHORN_ITERATIONS = 20
_PREFERRED = 0.7
_OFF_DIAGONAL = -8.0
_EPS = 1e-6


class HyperConnection(nn.Module):
    """One mHC residual. ``layer`` chooses the preferred stream. Maps are computed outside autocast."""

    def __init__(self, dim: int, streams: int, kind: str, iterations: int, gate: float, layer: int) -> None:
        super().__init__()
        self.streams, self.kind, self.iterations = streams, kind, iterations
        mixing = streams * streams if kind == SINKHORN else math.factorial(streams)
        self.phi = nn.Parameter(torch.zeros(streams * dim, 2 * streams + mixing))
        self.alpha = nn.Parameter(torch.full((3,), gate))
        others = (1.0 - _PREFERRED) / max(streams - 1, 1)
        shares = torch.full((streams,), others if streams > 1 else 1.0 - 1e-6)
        if streams > 1:
            shares[layer % streams] = _PREFERRED
        self.bias_pre = nn.Parameter(torch.logit(shares))
        self.bias_post = nn.Parameter(torch.zeros(streams))
        if kind == SINKHORN:
            self.bias_res = nn.Parameter(_OFF_DIAGONAL * (1.0 - torch.eye(streams)).flatten())
        else:
            identity_first = torch.full((mixing,), _OFF_DIAGONAL)
            identity_first[0] = 0.0
            self.bias_res = nn.Parameter(identity_first)
            self.register_buffer("matrices", permutation_matrices(streams), persistent=False)

    def maps(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Streams [R, n, C] → h [R, n], p [R, n], H [R, n, n], all at least fp32."""
        with torch.autocast(x.device.type, enabled=False):
            x = wide(x)
            projected = wide(project_streams(x, self.phi.to(x.dtype), _EPS))
        n = self.streams
        pre, post, res = projected.split([n, n, projected.shape[1] - 2 * n], dim=1)
        h = torch.sigmoid(self.alpha[0] * pre + self.bias_pre)
        p = 2.0 * torch.sigmoid(self.alpha[1] * post + self.bias_post)
        logits = self.alpha[2] * res + self.bias_res
        with torch.autocast(projected.device.type, enabled=False):
            if self.kind == SINKHORN:
                return h, p, sinkhorn(logits.view(-1, n, n), self.iterations)
            return h, p, permutation_mixture(logits, self.matrices)  # type: ignore[arg-type]

    def forward(self, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """Streams [R, n, C], or [R, 1, C] if all are equal → [R, n, C].

        ``branch`` [R, C] → [R, C] has no residual connection itself.
        """
        x = x if x.shape[1] == self.streams else x.expand(-1, self.streams, -1).contiguous()
        h, p, mixing = self.maps(x)
        return write_streams(x, mixing, p, branch(read_streams(x, h)))


def project_streams(streams: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm(vec X) Φ, with the scale applied after the product: [N, n, C], [n · C, m] → [N, m].

    vec X · Φ / √(mean(vec X²) + eps) equals normalising first, and reads the streams one time less.
    """
    flat = streams.flatten(1)
    scale = torch.rsqrt(flat.square().mean(1, keepdim=True) + eps)
    return (flat @ weight) * scale


def read_streams(streams: Tensor, weights: Tensor) -> Tensor:
    """``streams`` [N, n, C] and ``weights`` [N, n] → [N, C], the weighted sum."""
    return torch.bmm(weights.to(streams.dtype)[:, None, :], streams).squeeze(1)


def write_streams(streams: Tensor, mixing: Tensor, weights: Tensor, update: Tensor) -> Tensor:
    """H X + p ⊗ y: ``mixing`` [N, n, n], ``weights`` [N, n], ``update`` [N, C] → [N, n, C]."""
    mixed = torch.bmm(mixing.to(streams.dtype), streams)
    return torch.addcmul(mixed, weights.to(mixed.dtype)[:, :, None], update.to(mixed.dtype)[:, None, :])


def reduce_streams(x: Tensor) -> Tensor:
    """[R, n, C] → [R, C]: the mean over streams."""
    # Divide after the sum: then the gradient is divided as [R, C].
    return x.sum(dim=1) / x.shape[1]


def sinkhorn(logits: Tensor, iterations: int = 20) -> Tensor:
    """[N, n, n] → [N, n, n]: exp(logits), then ``iterations`` times: divide rows, then columns, by their sums.

    Columns are divided last and sum to 1 exactly, rows nearly. Computed as H = diag(u) P diag(v), so that the iteration
    runs over vectors. The batch is the last axis, so that every operation runs over long rows.
    """
    logits = wide(logits)
    kernel = (logits - logits.detach().amax(dim=-1, keepdim=True)).exp().permute(1, 2, 0).contiguous()
    v = torch.ones_like(kernel[0])
    for _ in range(iterations):
        u = (kernel * v[None]).sum(1).reciprocal()
        v = (kernel * u[:, None]).sum(0).reciprocal()
    return (kernel * u[:, None] * v[None]).permute(2, 0, 1).contiguous()


def permutation_matrices(n: int) -> Tensor:
    """[n!, n, n] fp32: all permutation matrices; the first is the identity."""
    return torch.stack([torch.eye(n)[list(order)] for order in permutations(range(n))])


def permutation_mixture(logits: Tensor, matrices: Tensor) -> Tensor:
    """[N, n!] → [N, n, n]: Σ_k softmax(logits)_k P_k, doubly stochastic exactly (mHC-lite, arXiv 2601.05732).

    By Birkhoff's theorem every doubly stochastic matrix is such a mean.
    """
    shares = torch.softmax(wide(logits), dim=-1)
    n = matrices.shape[-1]
    return (shares @ matrices.to(shares.dtype).view(-1, n * n)).view(-1, n, n)
