"""The gradient of one optimizer step, its reduction over ranks and its clipping; the same for every system.

The loss of a step is  Σ_terms coefficient · Σ sums / Σ weights  over the whole batch. Its gradient does not depend on
the number of chunks, groups and ranks. This module knows nothing about epochs, files or time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from graphmill.kernels.devices import wide
from graphmill.sampling.keyed import key_of
from graphmill.training.contract import ENCODING, GRADIENTS, LOSS, Encoded, Phase, StepBatch, StepSizes, System
from graphmill.training.guards import gradient_norm
from graphmill.training.memory import allocation_is_limited, check_allocation
from graphmill.training.precision import Precision
from graphmill.training.processes import Ranks
from graphmill.training.sharding import Shards

READ_EVERY = 8
"""Number of steps whose losses are read from an accelerator at once, some steps later.

A read makes the host wait for the device, and then the device waits for the host's next step. Therefore, on CUDA, the
device itself clips a step and skips it if it is not finite, and the host learns of it a few steps later. This does not
apply where the next step depends on the result: fp16 (its scale does), several processes (they agree after every step),
and Adagrad with weight decay, which cannot skip by itself."""
_SMALL = 1 << 18
"""Parameters of at most this size (numbers) have their gradients accumulated together (:class:`_GradientAccumulator`)."""


class Gradient:
    """The result of one batch's backward pass: the norm (unscaled, before clipping), the loss of each term and the
    total loss.

    ``values`` [1 + terms], on the device: the norm, then the loss of each term of ``coefficients`` (term → coefficient,
    −∞ if the term does not occur on this rank). The first access reads them, which waits for the device.
    :func:`read_together` reads several gradients at once.
    """

    def __init__(self, values: Tensor, coefficients: Mapping[str, float], ranks: Ranks) -> None:
        self.values = values
        self._coefficients, self._ranks = coefficients, ranks
        if ranks.world > 1:
            self.losses  # noqa: B018  # a collective: here, where all ranks come by

    @cached_property
    def read(self) -> list[float]:
        """The values on the host."""
        return self.values.tolist()

    @cached_property
    def norm(self) -> float:
        """The norm of this gradient, over all ranks."""
        return self.read[0]

    @cached_property
    def losses(self) -> dict[str, float]:
        """The loss of each term, and their weighted sum as ``total``."""
        losses = self._ranks.sum_floats(self.read[1:])
        out = dict(zip(self._coefficients, losses, strict=True))
        out["total"] = sum(self.coefficients.get(name, 0.0) * value for name, value in out.items())
        return out

    @cached_property
    def coefficients(self) -> dict[str, float]:
        """The weight in ``total`` of each term that occurs on some rank."""
        result = self._ranks.max_floats(list(self._coefficients.values()))
        return {name: c for name, c in zip(self._coefficients, result, strict=True) if c != -float("inf")}

    @property
    def finite(self) -> bool:
        """Whether the norm and every loss are finite."""
        return math.isfinite(self.norm) and all(math.isfinite(v) for v in self.losses.values())

    @property
    def not_finite(self) -> Tensor:
        """fp32, 0-d, on the device: 1 if one of the values is not finite, else 0. torch's fused optimizers take it as
        ``found_inf``."""
        return (~self.values.isfinite().all()).float()


@dataclass(frozen=True)
class DeferredStep:
    """A computed step whose losses are not read yet: its place, its number in the run, its learning rate and its
    gradient."""

    phase: Phase
    batch: StepBatch
    epoch: int
    index: int
    steps: int
    rate: float
    gradient: Gradient


def read_together(gradients: Sequence[Gradient]) -> None:
    """Read the values of several gradients, waiting for the device once."""
    values = torch.cat([g.values for g in gradients]).tolist()
    for gradient in gradients:
        size = len(gradient.values)
        gradient.read, values = values[:size], values[size:]


class _GradientAccumulator:
    """Accumulates the gradients of small parameters over several backward passes, for all parameters at once.

    Autograd accumulates each parameter separately, with one kernel launch per parameter and pass. Large parameters are
    left to autograd, because this class would hold their gradients twice.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.small = [p for p in parameters if p.numel() <= _SMALL]
        self.sums: dict[nn.Parameter, Tensor] = {}

    def take(self) -> None:
        """Move the gradients of a backward pass from the parameters to the sums."""
        result = [(p, p.grad) for p in self.small if p.grad is not None]
        if existing := [(self.sums[p], grad) for p, grad in result if p in self.sums]:
            torch._foreach_add_([a for a, _ in existing], [b for _, b in existing])
        for parameter, gradient in result:
            self.sums.setdefault(parameter, gradient)
            parameter.grad = None

    def give_back(self) -> None:
        """Give every parameter its whole gradient."""
        self.take()
        for parameter, gradient in self.sums.items():
            parameter.grad = gradient


def compute_gradient(
    system: System,
    model: nn.Module,
    parameters: list[nn.Parameter],
    batch: StepBatch,
    *,
    step_sizes: StepSizes,
    precision: Precision,
    ranks: Ranks,
    seed_parts: tuple[int | str, ...],
    poll: Callable[[], None] = lambda: None,
) -> Gradient:
    """Compute the gradient of ``batch`` into ``parameters``, summed over the ranks and unscaled.

    ``seed_parts`` key the dropout masks, so that a repeated or resumed step draws the same masks. ``poll`` is called
    between chunks and may raise to abandon the step.
    """
    weights = dict(batch.weights)
    local = batch.shard(ranks.rank, ranks.world) if ranks.world > 1 else batch
    # Losses are summed on the device, so that reading them takes one synchronisation a step, not one per term. MPS has
    # no float64. Its sums cover only a few chunks, and the host adds them up in float64.
    dtype = torch.float32 if precision.device.type == "mps" else torch.float64
    sums, coefficients = dict[str, Tensor](), dict.fromkeys(weights, -float("inf"))
    scale = precision.scaler.scale
    # If every rank computes the same encoding and the encoding's gradient is summed over the ranks, then the
    # parameters' gradients are equal on all ranks and must not be summed again. Only a single group can be replicated.
    shards = system.shards
    replicated = ranks.world > 1 and batch.replicated and shards is None
    pending: tuple[Encoded, dict[str, Tensor]] | None = None
    groups = list(local.groups())
    accumulator = _GradientAccumulator(parameters) if precision.device.type != "cpu" and len(groups) > 1 else None
    for number, group in enumerate(groups):
        poll()
        if accumulator is not None:
            accumulator.take()
        step_sizes.at = ENCODING
        _seed(seed_parts, number, ranks, replicated, precision.device.type)
        with precision.autocast():
            encoded = system.encode(model, group)
        detached = _detach(encoded)
        step_sizes.at = LOSS
        for part, chunk in enumerate(group.split(step_sizes.micro_batches)):
            poll()
            if allocation_is_limited():
                check_allocation(sum(array.nbytes for array in chunk.arrays().values()), "a chunk of the loss")
            _seed((*seed_parts, "chunk", part), number, ranks, replicated, precision.device.type)
            with precision.autocast():
                terms = system.terms(model, chunk, detached)
            loss = None
            for term in terms:
                share = wide(term.sum) * (term.coefficient / weights[term.name])
                loss = share if loss is None else loss + share
                value = (term.sum / weights[term.name]).detach().to(dtype)
                sums[term.name] = sums[term.name] + value if term.name in sums else value
                coefficients[term.name] = term.coefficient
            if loss is not None and loss.requires_grad:
                (loss * scale).backward()
        # Release this group's tensors before the next group is encoded.
        terms, loss, chunk = [], None, group
        step_sizes.at = ENCODING
        if encoded is None or detached is None:
            continue
        if replicated:
            pending = (encoded, detached.tensors)
        else:
            # With divided rows, all ranks take part in the backward pass, even one that read nothing.
            _backward_through(encoded, detached.tensors, _filled(detached.tensors) if shards else {})
        encoded = detached = None
    step_sizes.at = GRADIENTS
    if accumulator is not None:
        accumulator.give_back()
    _reduce(parameters, pending, ranks, shards)
    if scale != 1.0:
        torch._foreach_div_([p.grad for p in parameters if p.grad is not None], scale)
    norm = gradient_norm(parameters) if shards is None else _norm(parameters, shards)
    zero = torch.zeros((), dtype=dtype, device=norm.device)
    # One transfer for the norm and all losses.
    values = torch.stack([norm.detach().to(dtype), *(sums.get(name, zero) for name in weights)])
    return Gradient(values, coefficients, ranks)


def clip_(parameters: list[nn.Parameter], norm: float | Tensor, max_norm: float) -> None:
    """Scale the gradients down to ``max_norm`` if ``norm`` is above it (after unscaling; 0 = off).

    A norm on the device (0-d tensor) is not read by the host.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if max_norm <= 0.0 or not gradients:
        return
    if isinstance(norm, Tensor):
        torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0).to(gradients[0].dtype))
    elif norm > max_norm:
        torch._foreach_mul_(gradients, max_norm / (norm + 1e-6))


def _seed(parts: tuple[int | str, ...], group: int, ranks: Ranks, replicated: bool, device: str = "cpu") -> None:
    # Replicated encodings must draw the same mask on all ranks. All else draws a different mask on each rank.
    rank = 0 if replicated and "chunk" not in parts else ranks.rank
    seed = key_of(*parts, "group", group, "rank", rank) & 0x7FFF_FFFF_FFFF_FFFF
    # Not torch.manual_seed: before a device is initialised, it stores each call with its stack for later.
    torch.default_generator.manual_seed(seed)
    if device == "cuda":
        torch.cuda.manual_seed(seed)
    elif device == "mps":
        torch.mps.manual_seed(seed)


def _detach(encoded: Encoded | None) -> Encoded | None:
    if encoded is None:
        return None
    return Encoded({name: t.detach().requires_grad_(t.requires_grad) for name, t in encoded.tensors.items()})


def _backward_through(encoded: Encoded, detached: Mapping[str, Tensor], reduced: Mapping[str, Tensor]) -> None:
    outputs, gradients = [], []
    for name, tensor in encoded.tensors.items():
        gradient = reduced.get(name, detached[name].grad)
        if tensor.requires_grad and gradient is not None:
            outputs.append(tensor)
            gradients.append(gradient)
    if outputs:
        _WithGradients.apply(gradients, *outputs).backward()


class _WithGradients(torch.autograd.Function):
    """A scalar whose gradients with respect to ``outputs`` are these.

    ``torch.autograd.backward`` with gradients does the same, and imports sympy: 0.4 s of each start.
    """

    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *outputs: Tensor) -> Tensor:
        ctx.gradients = gradients
        return outputs[0].new_empty(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.gradients


def _filled(detached: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {n: torch.zeros_like(t) if t.grad is None else t.grad for n, t in detached.items() if t.requires_grad}


def _norm(parameters: list[nn.Parameter], shards: Shards) -> Tensor:
    """The norm of all gradients: divided parameters over all ranks, and replicated parameters once."""
    mine = [p for p in parameters if shards.holds(p) and p.numel()]
    shared = gradient_norm([p for p in parameters if not shards.holds(p)])
    squares = shards.ranks.sum_floats([float(gradient_norm(mine)) ** 2])[0]
    norm = (shared.cpu().double().square() + squares).sqrt()
    device = parameters[0].device
    return norm.float().to(device) if device.type == "mps" else norm.to(device)


def _reduce(
    parameters: list[nn.Parameter],
    pending: tuple[Encoded, dict[str, Tensor]] | None,
    ranks: Ranks,
    shards: Shards | None,
) -> None:
    """Sum the gradients over the ranks, in one all-reduce per dtype. Those of divided rows are already summed.

    ``pending`` is an encoding that every rank has computed. There are two equal ways: sum its gradient and then
    backpropagate, or backpropagate and then sum the parameters' gradients. The one that sends fewer bytes is taken.
    """
    if ranks.world == 1:
        return
    direct = _taking_part(parameters, ranks)
    if pending is None:
        ranks.sum_([p.grad for p in direct if p.grad is not None and not (shards and shards.holds(p))])
        return
    encoded, detached = pending
    gradients = _filled(detached)
    if _bytes([*direct, *gradients.values()]) <= _bytes(parameters):
        ranks.sum_([*(p.grad for p in direct if p.grad is not None), *gradients.values()])
        _backward_through(encoded, detached, gradients)
    else:
        _backward_through(encoded, detached, gradients)
        ranks.sum_([p.grad for p in _taking_part(parameters, ranks) if p.grad is not None])


def _taking_part(parameters: list[nn.Parameter], ranks: Ranks) -> list[nn.Parameter]:
    """Parameters that have a gradient on any rank. A rank without one (an empty shard) gets zeros."""
    present = ranks.sum_floats([float(p.grad is not None) for p in parameters])
    chosen = [p for p, count in zip(parameters, present, strict=True) if count > 0]
    for parameter in chosen:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return chosen


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
