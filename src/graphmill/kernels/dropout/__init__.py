"""Dropout whose masks are cheap on a CPU and never stored: each element's fate is a hash of its place and of a key.

``torch.nn.functional.dropout`` draws one Bernoulli number an element from a slow serial generator, which is a third to a
half of a small transformer's step on a CPU, and keeps the mask until backward. Here a step draws one key from torch's
generator, so that masks follow ``torch.manual_seed`` and are restored with its state: a repeated, resumed or recomputed
step draws the same ones. An element's word of 32 bits is mixed from key and place (multiplications and shifts in the manner
of MurmurHash3's finaliser, Appleby 2011, with the constants of Wellons' lowbias32), so that any thread can make any part of
it, and backward makes it again. The masks do not depend on the number of threads, nor on whether numba is installed.

On other devices torch's own dropout is fast, and is used.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.runtime.threads import has_numba
from graphmill.kernels.runtime.words import Key as Key
from graphmill.kernels.runtime.words import threshold_and_scale as threshold_and_scale
from graphmill.kernels.runtime.words import words as words


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """``x`` with each element zeroed with probability p and the others divided by 1 - p; ``x`` where not training.

    p is rounded to a multiple of 2⁻³², and the scale is that of the rounded p: the mean is exact.
    """
    if not training or p <= 0.0:
        return x
    if _by_torch(x):
        return F.dropout(x, p, True)
    found: Tensor = _Dropout.apply(x, p, draw_key())
    return found


def relu_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout of ReLU(x), which is ReLU of its dropout, in one pass. Backward needs the result alone, not ``x``."""
    if _by_torch(x) or not (training and p > 0.0):
        return dropout(torch.relu(x), p, training)
    found: Tensor = _ReluDropout.apply(x, p, draw_key())
    return found


def add_dropout(x: Tensor, branch: Tensor, p: float, training: bool) -> Tensor:
    """``x`` + dropout(``branch``) of one shape and dtype, in one pass."""
    if _by_torch(x) or not (training and p > 0.0) or x.dtype != branch.dtype:
        return x + dropout(branch, p, training)
    found: Tensor = _AddDropout.apply(x, branch, p, draw_key())
    return found


def dropout_mask(shape: tuple[int, ...], p: float, dtype: torch.dtype) -> Tensor:
    """0 with probability p, else 1 / (1 - p), on the CPU; keyed by torch's default generator, which advances by one."""
    return _mask(shape, p, draw_key(), dtype)


def draw_key() -> Key:
    """One number of torch's default generator, in two halves."""
    drawn = int(torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64).item()) & 0xFFFF_FFFF_FFFF_FFFF
    return drawn & 0xFFFF_FFFF, drawn >> 32


def _mask(shape: torch.Size | tuple[int, ...], p: float, key: Key, dtype: torch.dtype) -> Tensor:
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    threshold, scale = threshold_and_scale(p)
    mask = torch.empty(shape, dtype=wide)
    if has_numba():
        from graphmill.kernels.dropout import cpu as dropout_cpu

        dropout_cpu.mask(mask, key, threshold, scale)
    else:
        kept = words(mask.numel(), key) >= np.uint32(threshold)
        np.multiply(kept, mask.numpy().dtype.type(scale), out=mask.view(-1).numpy())
    return mask.to(dtype)


def _by_torch(x: Tensor) -> bool:
    """Whether torch's own dropout serves: on other devices, and where torch compiles what it finds."""
    return x.device.type != "cpu" or torch.compiler.is_compiling()


def _in_one_pass(*tensors: Tensor) -> bool:
    return has_numba() and all(t.dtype in (torch.float32, torch.float64) and t.is_contiguous() for t in tensors)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, key):  # type: ignore[no-untyped-def]
        ctx.p, ctx.key = p, key
        return _dropped(x, p, key)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return _dropped(gradient.contiguous(), ctx.p, ctx.key), None, None


class _AddDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, branch, p, key):  # type: ignore[no-untyped-def]
        ctx.p, ctx.key = p, key
        if not _in_one_pass(x, branch):
            return x + _dropped(branch, p, key)
        from graphmill.kernels.dropout import cpu as dropout_cpu

        out = torch.empty_like(x)
        dropout_cpu.add_drop(x, branch, out, key, *threshold_and_scale(p))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return gradient, _dropped(gradient.contiguous(), ctx.p, ctx.key), None, None


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, key):  # type: ignore[no-untyped-def]
        ctx.p = p
        if _in_one_pass(x):
            from graphmill.kernels.dropout import cpu as dropout_cpu

            out = torch.empty_like(x)
            dropout_cpu.relu_drop(x, out, key, *threshold_and_scale(p))
        else:
            out = _dropped(torch.relu(x), p, key)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        (out,) = ctx.saved_tensors
        _, scale = threshold_and_scale(ctx.p)
        if _in_one_pass(gradient, out):
            from graphmill.kernels.dropout import cpu as dropout_cpu

            found = torch.empty_like(gradient)
            dropout_cpu.relu_drop_gradient(gradient, out, found, scale)
            return found, None, None
        return torch.where(out > 0, gradient * scale, 0.0), None, None


def _dropped(x: Tensor, p: float, key: Key) -> Tensor:
    if not _in_one_pass(x):
        return x * _mask(x.shape, p, key, x.dtype)
    from graphmill.kernels.dropout import cpu as dropout_cpu

    out = torch.empty_like(x)
    dropout_cpu.drop(x, out, key, *threshold_and_scale(p))
    return out
