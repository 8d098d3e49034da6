"""Figures of an eigenvalue spectrum, which show how many directions an embedding uses.

All functions take the eigenvalues λ of a (co)variance matrix, descending, from :func:`spectrum_of`, and are invariant
to scale. An empty spectrum (no rows, or no variance) gives 0.
"""

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def spectrum_of(gram: Float64) -> Float64:
    """Eigenvalues of a symmetric positive semi-definite matrix (k × k), descending; rounding noise becomes 0."""
    if gram.shape[0] == 0:
        return np.zeros(0)
    values = np.linalg.eigvalsh(gram)[::-1]
    noise = max(float(values[0]), 0.0) * gram.shape[0] * np.finfo(np.float64).eps
    return np.where(values > noise, values, 0.0)


def components_for(spectrum: Float64, share: float) -> int:
    """The smallest k whose k largest eigenvalues hold at least ``share`` of their sum (PCA's explained variance)."""
    total = float(spectrum.sum())
    if total <= 0:
        return 0
    cumulated = np.cumsum(spectrum) / total
    return min(int(np.searchsorted(cumulated, share - 1e-12)) + 1, len(spectrum))


def top1_ratio(spectrum: Float64) -> float:
    """λ₁ / Σ λ: the share of the first principal component."""
    total = float(spectrum.sum())
    return float(spectrum[0]) / total if total > 0 else 0.0


def participation_ratio(spectrum: Float64) -> float:
    """(Σ λ)² / Σ λ²: the number of directions if they all had the same size; between 1 and the dimension."""
    squares = float(np.square(spectrum).sum())
    return float(spectrum.sum()) ** 2 / squares if squares > 0 else 0.0


def effective_rank(spectrum: Float64) -> float:
    """exp(−Σ p log p) with p_k = s_k / Σ s and the singular values s = √λ.

    Roy & Vetterli 2007; as a health figure RankMe (Garrido et al. 2023, arXiv 2210.02885).
    """
    singular = np.sqrt(spectrum)
    total = float(singular.sum())
    if total <= 0:
        return 0.0
    p = singular[singular > 0] / total
    return float(np.exp(-np.sum(p * np.log(p))))
