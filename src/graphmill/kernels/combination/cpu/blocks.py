"""``combination`` for the CPU: products by torch, everything between them compiled, ``_ROWS`` rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmill.kernels.products import add_product_, product
from graphmill.kernels.runtime.compiled_math import FAST
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")
_ROWS = 4096
"""Rows that go through the layer together: their intermediate results stay in the cache."""
_PART = 256
"""Rows whose share of the biases' gradients is one sum, so that these do not depend on the number of threads."""


def forward(tables: Sequence[Tensor], weights: Sequence[Tensor], slope: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The result [n, k], σ(m) [n, w], x̂ [n, d], and uint8 [n, k]: bit 0 the sign of x̂'s ReLU, bit 1 the result's."""
    messages, rows, identity = (t.detach() for t in tables)
    own_weight, own_bias, joint_weight, joint_bias = (w.detach() for w in weights)
    count, width = messages.shape
    first, second = joint_weight[:, :width], joint_weight[:, width:]
    hidden, inner = torch.empty_like(messages), torch.empty_like(identity)
    out = messages.new_empty(count, len(joint_weight))
    signs = torch.zeros(count, max(out.shape[1], inner.shape[1]), dtype=torch.uint8)
    steep, biases = messages.numpy().dtype.type(slope), (own_bias.numpy(), joint_bias.numpy())
    for start, stop in _blocks(count):
        part = slice(start, stop)
        product(rows[part], own_weight.T, out=inner[part])
        arrays = (messages[part].numpy(), hidden[part].numpy(), inner[part].numpy(), identity[part].numpy())
        over_ranges(_enter, (*arrays, signs[part].numpy(), biases[0], steep), stop - start, hidden[part].numel())
        product(hidden[part], first.T, out=out[part])
        if second.numel():
            add_product_(out[part], inner[part], second.T)
        outputs = (out[part].numpy(), inner[part].numpy(), signs[part].numpy(), biases[1], not second.numel(), steep)
        over_ranges(_leave, outputs, stop - start, out[part].numel())
    return out, hidden, inner, signs


def backward(
    gradient: Tensor, kept: Sequence[Tensor], slope: float, needed: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Gradients of messages, rows and identity where ``needed``, then of both weights and biases.

    ``kept``: rows, σ(m), x̂, signs, and the weights of own and joint.
    """
    rows, hidden, inner, signs, own_weight, joint_weight = (t.detach() for t in kept)
    count, width = hidden.shape
    first, second = joint_weight[:, :width], joint_weight[:, width:]
    into_own, into_joint = torch.zeros_like(own_weight), torch.zeros_like(joint_weight)
    parts = -(-count // _PART)
    own_bias, joint_bias = (gradient.new_zeros(parts, len(w)) for w in (own_weight, joint_weight))
    to_messages, to_rows, to_identity = (
        torch.empty_like(t) if wanted else None for t, wanted in zip((hidden, rows, inner), needed, strict=True)
    )
    block = min(count, _ROWS)
    outer, between = gradient.new_empty(block, gradient.shape[1]), gradient.new_empty(block, inner.shape[1])
    steep = gradient.numpy().dtype.type(slope)
    for start, stop in _blocks(count):
        part, size, place = slice(start, stop), stop - start, start // _PART
        given, around = outer[:size], between[:size]
        pieces = -(-size // _PART)
        arrays = (gradient[part].numpy(), signs[part].numpy(), given.numpy(), joint_bias[place:].numpy(), np.uint8(2))
        over_ranges(_slopes, (*arrays, steep), pieces, given.numel())
        add_product_(into_joint[:, :width], given.T, hidden[part])
        if to_messages is not None:
            product(given, first, out=to_messages[part])
            both = (to_messages[part].numpy(), hidden[part].numpy(), steep)
            over_ranges(_signed, both, size, hidden[part].numel())
        towards = given
        if second.numel():
            add_product_(into_joint[:, width:], given.T, inner[part])
            towards = around if to_identity is None else to_identity[part]
            product(given, second, out=towards)
        elif to_identity is not None:
            to_identity[part] = given
        arrays = (towards.numpy(), signs[part].numpy(), around.numpy(), own_bias[place:].numpy(), np.uint8(1))
        over_ranges(_slopes, (*arrays, steep), pieces, around.numel())
        add_product_(into_own, around.T, rows[part])
        if to_rows is not None:
            product(around, own_weight, out=to_rows[part])
    return to_messages, to_rows, to_identity, into_own, own_bias.sum(0), into_joint, joint_bias.sum(0)


def _blocks(count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, _ROWS):
        yield start, min(start + _ROWS, count)


@_jit
def _enter(
    messages: Any,
    hidden: Any,
    inner: Any,
    identity: Any,
    signs: Any,
    bias: Any,
    slope: Any,
    first: int,
    last: int,
) -> None:
    """σ(m), and x̂ from its product."""
    for row in range(first, last):
        source, target, own, added, kept = messages[row], hidden[row], inner[row], identity[row], signs[row]
        for j in range(len(source)):
            target[j] = source[j] if source[j] > 0 else source[j] * slope
        for j in range(len(own)):
            x = own[j] + bias[j]
            own[j] = (x if x > 0 else x * slope) + added[j]
            kept[j] = np.uint8(x > 0)


@_jit
def _leave(out: Any, inner: Any, signs: Any, bias: Any, adds: bool, slope: Any, first: int, last: int) -> None:
    """The result from its products."""
    for row in range(first, last):
        target, own, kept = out[row], inner[row], signs[row]
        if adds:
            for j in range(len(target)):
                target[j] += own[j]
        for j in range(len(target)):
            x = target[j] + bias[j]
            target[j] = x if x > 0 else x * slope
            kept[j] = kept[j] | (np.uint8(x > 0) << np.uint8(1))


@_jit
def _slopes(gradient: Any, signs: Any, out: Any, bias: Any, bit: Any, slope: Any, first: int, last: int) -> None:
    """A gradient times the slope of the ReLU that ``bit`` of the signs tells of, and its sum over each part's rows."""
    for part in range(first, last):
        total = bias[part]
        for row in range(part * _PART, min((part + 1) * _PART, len(out))):
            given, kept, target = gradient[row], signs[row], out[row]
            for j in range(len(target)):
                x = given[j] if kept[j] & bit else given[j] * slope
                target[j] = x
                total[j] += x


@_jit
def _signed(gradient: Any, result: Any, slope: Any, first: int, last: int) -> None:
    """In place: a gradient times the slope of the ReLU that had this result."""
    for row in range(first, last):
        given, known = gradient[row], result[row]
        for j in range(len(given)):
            given[j] = given[j] if known[j] > 0 else given[j] * slope
