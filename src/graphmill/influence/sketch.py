"""Random projections of per-example gradients: dot products of short vectors that estimate those of the gradients.

Each factor is projected in its own form, never written out: (p · δ)(q · a) for an outer product, p · v for a vector, and
for rows of a table p · v with a random sign for the row. With k independent draws the mean of products is unbiased
and its error falls as 1/√k (Johnson & Lindenstrauss 1984; Pham & Pagh 2013).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from graphmill.errors import SettingsError
from graphmill.influence.tracin import Request, TracedCheckpoint
from graphmill.sampling.keyed import key_of
from graphmill.training.gradients import Dense, Factor, Outer, Traceable


class Projector:
    """Projections to ``dim`` numbers, keyed by ``seed`` and the parameter's name."""

    def __init__(self, dim: int, seed: int) -> None:
        self.dim = dim
        self.seed = seed
        self._made: dict[tuple[str, str, int], Tensor] = {}

    def project(self, factors: Sequence[Factor]) -> Tensor:
        """[n, dim]; dot products of two such rows estimate those of the gradients."""
        total: Tensor | None = None
        for factor in factors:
            part = self._one(factor)
            total = part if total is None else total + part
        assert total is not None
        return total / self.dim**0.5

    def _one(self, factor: Factor) -> Tensor:
        name = factor.parameter
        if isinstance(factor, Dense):
            return factor.values @ self._gaussian(name, "values", factor.values)
        if isinstance(factor, Outer):
            left = factor.left @ self._gaussian(name, "left", factor.left)
            return left * (factor.right @ self._gaussian(name, "right", factor.right))[factor.which]
        if factor.spread is not None:
            raise SettingsError("unit: row has no random projection; use unit: label or variant: exact")
        parts = [
            (values @ self._gaussian(name, "values", values)) * self._signs(name, keys, values)
            for keys, values in zip(factor.keys, factor.values, strict=True)
        ]
        return torch.stack(parts).sum(0)

    def _gaussian(self, name: str, part: str, like: Tensor) -> Tensor:
        key = (name, part, like.shape[1])
        if key not in self._made:
            generator = torch.Generator().manual_seed(key_of(self.seed, name, part) & 0x7FFF_FFFF_FFFF_FFFF)
            drawn = torch.randn(like.shape[1], self.dim, generator=generator, dtype=torch.float32)
            self._made[key] = drawn.to(like)
        return self._made[key]

    def _signs(self, name: str, keys: Tensor, like: Tensor) -> Tensor:
        """±1 [n, dim] by row of the table and projection, from a hash: a table of them would be as large as the model."""
        rng = np.random.default_rng(key_of(self.seed, name, "signs"))
        odd = torch.from_numpy(rng.integers(1, 2**62, self.dim) * 2 + 1).to(keys.device)
        shift = torch.from_numpy(rng.integers(1, 2**62, self.dim)).to(keys.device)
        mixed = (keys[:, None] + 1) * odd + shift
        mixed = (mixed ^ (mixed >> 29)) * odd
        return torch.where((mixed >> 40) & 1 == 1, 1.0, -1.0).to(like.dtype)


def sketches(
    recipe: Traceable,
    checkpoints: Sequence[TracedCheckpoint],
    triples: np.ndarray,
    request: Request,
    projector: Projector,
    *,
    poll: Callable[[], None] = lambda: None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """float32 [T, checkpoints × dim]: √(learning rate) × projected gradient of each triple, all its labels together.

    Dot products of two rows estimate influences, whatever triple is asked for later. ``out`` may be a memory map of that
    shape.
    """
    labels = recipe.traced_labels(triples)
    width = projector.dim
    found = np.zeros((len(triples), width * len(checkpoints)), dtype=np.float32) if out is None else out
    for number, checkpoint in enumerate(checkpoints):
        tracer, _ = checkpoint.open()
        columns = slice(number * width, (number + 1) * width)
        size = max(1, request.batch_size // len(labels))
        for start in range(0, len(triples), size):
            poll()
            part = slice(start, min(start + size, len(triples)))
            total = sum(projector.project(request.choose(tracer.label_gradients(s[part]), tracer)) for s in labels)
            assert isinstance(total, Tensor)
            found[part, columns] = (total * checkpoint.learning_rate**0.5).float().cpu().numpy()
    return found
