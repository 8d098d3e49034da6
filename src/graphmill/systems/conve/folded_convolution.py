"""Convolution of a one-channel picture, batch norm, ReLU, dropout of whole maps and the next linear layer, fused.

The statistics of a batch norm after a linear map can be computed before the map: with windows u (and a last entry 1) of
mean μ and covariance Σ, channel w · u has mean w · μ and variance wᵀΣw. So the norm's scale and shift, and the
dropout's factor of 0 or 1/(1 − p), are multiplied into the filters. One product writes the maps (batch × channels ×
positions, by far the largest tensor here), ReLU changes them in place, and the linear layer reads them. In the backward
pass their gradient overwrites them. Separate operations would read or write memory of this size about twenty times.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.devices import part_bytes, sum_dtype
from graphmill.kernels.products import product
from graphmill.kernels.runtime.processor import onednn_is_faster

_ROWS = 128


def windows(picture: Tensor, kernel: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """[B, H, W] → the inputs of each filter entry, with a last row of ones, and their moments.

    Windows u: [B, K + 1, P] for K = kh · kw and P = (H − kh + 1)(W − kw + 1). Moments: Σ u uᵀ over rows and positions,
    float64 where the device has it, [K + 1, K + 1]; the last column is Σ u and its last entry the number of windows.
    Moments of several batches (or processes) can be added.
    """
    cells, total = _Windows.apply(picture, *kernel)
    return cells, total


def channel_statistics(total: Tensor, filters: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of :func:`windows` [K + 1, K + 1], filters [C, K] → mean and (biased) variance [C] of filters · u."""
    count = total[-1, -1].detach().clamp(min=1.0)
    mean = total[:-1, -1] / count
    covariance = total[:-1, :-1] / count - mean[:, None] * mean
    wide = filters.to(total.dtype)
    return wide @ mean, ((wide @ covariance) * wide).sum(1).clamp(min=0.0)


def folded_filters(filters: Tensor, scale: Tensor, shift: Tensor, keep: Tensor | None, rows: int) -> Tensor:
    """The filters for :func:`rectified_linear`: [rows, C, K + 1] with scale · filters and shift, times ``keep`` [rows, C].

    filters [C, K], scale and shift [C]. ``keep`` is not negative, so it can be applied before the ReLU.
    """
    one = torch.cat([scale[:, None] * filters, shift[:, None]], dim=1)
    return one.expand(rows, -1, -1) if keep is None else keep[:, :, None] * one


def rectified_linear(filters: Tensor, cells: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """ReLU(filters · cells) flattened, through the linear layer: [B, C, K + 1], [B, K + 1, P], [d, C · P], [d] → [B, d].

    All have one dtype, that of the products. Backward may be called once: the maps' gradient overwrites the maps.
    """
    return _RectifiedLinear.apply(filters, cells, weight, bias)


class _Windows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, picture, height, width):  # type: ignore[no-untyped-def]
        ctx.shape, ctx.kernel = picture.shape, (height, width)
        batch, tall, wide = picture.shape
        rows, columns = tall - height + 1, wide - width + 1
        windows = picture.new_empty(batch, height * width + 1, rows, columns)
        # One launch for all entries; torch's F.unfold needs one launch per picture.
        seen = picture.unfold(1, height, 1).unfold(2, width, 1).permute(0, 3, 4, 1, 2)
        windows[:, :-1].unflatten(1, (height, width)).copy_(seen)
        windows[:, -1] = 1.0
        cells = windows.flatten(2)
        ctx.save_for_backward(cells)
        total = torch.bmm(cells, cells.transpose(1, 2)).sum(0)
        return cells, total.to(sum_dtype(total.device, total.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient, into_total):  # type: ignore[no-untyped-def]
        (batch, tall, wide), (height, width) = ctx.shape, ctx.kernel
        (cells,) = ctx.saved_tensors
        both = (into_total + into_total.T).to(cells.dtype)
        shape = (batch, height * width + 1, tall - height + 1, wide - width + 1)
        parts = torch.baddbmm(gradient, both.expand(batch, -1, -1), cells)
        if parts.device.type == "cuda":
            return F.fold(parts[:, :-1], (tall, wide), (height, width)).squeeze(1), None, None
        into, parts = gradient.new_zeros(batch, tall, wide), parts.view(shape)
        rows, columns = shape[2:]
        for entry in range(height * width):
            i, j = divmod(entry, width)
            into[:, i : i + rows, j : j + columns] += parts[:, entry]
        return into, None, None


class _RectifiedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, filters, cells, weight, bias):  # type: ignore[no-untyped-def]
        maps = torch.bmm(filters, cells).relu_().flatten(1)
        ctx.save_for_backward(filters, cells, weight, maps)
        ctx.spent = False
        if maps.device.type == "cpu" and maps.dtype == torch.float32 and onednn_is_faster():
            return product(maps, weight.T, bias)
        # Torch's product is a tenth faster with a tall result than with a wide one.
        return torch.addmm(bias[:, None], weight, maps.T).T.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        if ctx.spent:
            raise RuntimeError("the maps were overwritten by their gradient: backward can be called once only")
        ctx.spent = True
        filters, cells, weight, maps = ctx.saved_tensors
        into_weight = product(gradient.T.contiguous(), maps)
        # In parts, so that no second buffer of this size is needed.
        size = max(part_bytes(maps.device, _ROWS * maps[0].nbytes) // max(maps[0].nbytes, 1), 1) if len(maps) else 1
        for low in range(0, len(maps), size):
            part = maps[low : low + size]
            into_part = product(gradient[low : low + size], weight)
            torch.ops.aten.threshold_backward.grad_input(into_part, part, 0, grad_input=part)
        into_maps = maps.view(len(maps), filters.shape[1], cells.shape[2])
        into_filters = torch.bmm(into_maps, cells.transpose(1, 2))
        into_cells = torch.bmm(filters.transpose(1, 2), into_maps) if ctx.needs_input_grad[1] else None
        return into_filters, into_cells, into_weight, gradient.sum(0)
