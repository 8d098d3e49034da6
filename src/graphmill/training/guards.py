"""Handles numbers that are not finite: names the tensor, saves the batch, and never applies the step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.errors import TrainingError

if TYPE_CHECKING:
    from graphmill.training.contract import StepBatch, System

REMEDIES = (
    "lower training.learning_rate (half of it is a good first try), set acceleration.clip_norm: 1.0, or use "
    "acceleration.precision: fp32 or bf16"
)


class NonFiniteError(TrainingError):
    """A loss, gradient, parameter or input is not finite. ``culprit`` names the first such tensor."""

    def __init__(self, culprit: str, where: str, saved: Path | None) -> None:
        self.culprit = culprit
        batch = f" The batch is in {saved}." if saved else ""
        super().__init__(f"{culprit} is not finite at {where}; the step was not applied.{batch} Remedies: {REMEDIES}.")


def first_nonfinite(system: System, model: nn.Module, batch: StepBatch, losses: dict[str, float]) -> str:
    """Name the first tensor that is not finite, in the order of the computation: input, parameter, loss term, gradient."""
    constants = [(name, tensor) for key, value in vars(system).items() for name, tensor in _tensors(key, value)]
    parameters = list(model.named_parameters())
    looked_at = chain(
        ((f"input '{n}'", np.isfinite(a).all()) for n, a in batch.arrays().items() if a.dtype.kind == "f"),
        ((f"input '{n}'", _finite(t)) for n, t in [*constants, *model.named_buffers()]),
        ((f"parameter '{n}'", _finite(p)) for n, p in parameters),
        ((f"loss '{n}'", math.isfinite(value)) for n, value in losses.items()),
        ((f"gradient of '{n}'", _finite(p.grad)) for n, p in parameters if p.grad is not None),
    )
    return next((name for name, finite in looked_at if not finite), "the gradient's norm")


def nonfinite_parameter(model: nn.Module) -> str:
    """The first parameter with a value that is not finite, or ""."""
    return next((name for name, parameter in model.named_parameters() if not _finite(parameter)), "")


def _tensors(name: str, value: object) -> Iterator[tuple[str, Tensor]]:
    """Tensors that a system holds (features, constants of the graph), in any container."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(f"{name}[{key}]", item)
    elif isinstance(value, list | tuple):
        for key, item in enumerate(value):
            yield from _tensors(f"{name}[{key}]", item)


def save_batch(directory: Path | None, batch: StepBatch, where: dict[str, int | str]) -> Path | None:
    """Write the batch's arrays to ``directory``, so that the step can be repeated by hand; None without a directory."""
    if directory is None:
        return None
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / ("-".join(f"{key}{value}" for key, value in where.items()) + ".npz")
    np.savez_compressed(path, **batch.arrays())  # type: ignore[arg-type]
    return path


def gradient_norm(parameters: list[nn.Parameter]) -> Tensor:
    """The Euclidean norm of all gradients together (0-d). Clipping and the check for finite values both use it."""
    gradients = [p.grad for p in parameters if p.grad is not None and p.grad.numel()]
    return torch.nn.utils.get_total_norm(gradients) if gradients else torch.zeros(())


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
