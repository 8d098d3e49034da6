"""The 1-N loss of ConvE (Dettmers et al. 2018) without storing batch × entities: each query against every entity.

BCE(s, y) = softplus(s) − y·s, so a row's loss is Σ softplus(s_n) − zero · Σ s_n − (one − zero) · Σ_{n positive} s_n,
and its gradient in s is σ(s) − y. The loss is a scalar, so its gradient can be computed from a block of scores at once,
up to a factor that arrives later. One pass over blocks of entities computes the loss *and* all gradients without
recomputation. A block's scores are freed before the next block: memory is batch × block, whatever the number of
entities.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from graphmill.kernels.devices import part_bytes, sum_dtype
from graphmill.kernels.full_softmax import BLOCK_BYTES
from graphmill.kernels.products import add_product_, product

_CPU = torch.device("cpu")


def smoothed_targets(epsilon: float, entities: int) -> tuple[float, float]:
    """(target of a known tail, target of another entity): 1 − ε and ε/(N − 1), as in PyKEEN."""
    return 1.0 - epsilon, epsilon / max(entities - 1, 1)


def entities_per_block(batch: int, entities: int, *, parts: int = 1, device: torch.device = _CPU) -> int:
    """Entities scored at a time: as many as fit :data:`BLOCK_BYTES`, more on an accelerator, in at least ``parts`` even
    blocks."""
    size = max(1, part_bytes(device, BLOCK_BYTES) // (4 * max(batch, 1)))
    size = max(1, min(size, -(-entities // max(parts, 1))))
    return -(-entities // -(-entities // size))


def one_to_n_loss(
    x: Tensor,
    entities: Tensor,
    bias: Tensor | None,
    rows: Tensor,
    columns: Tensor,
    *,
    one: float,
    zero: float,
    block: int,
    dtype: torch.dtype | None = None,
    expected: float = 1.0,
) -> Tensor:
    """Σ_b Σ_n BCE(σ(x_b · e_n + b_n), y_bn) as a 0-d tensor, at least fp32.

    Args:
        x: [B, d] queries. entities: [N, d]. bias: [N] or None. rows, columns: int64 [P], distinct pairs for which y is
        ``one``; elsewhere it is ``zero``. block: entities scored at a time (:func:`entities_per_block`); it changes no
        result beyond rounding. dtype: dtype of the matrix products (bf16, fp16), or None for the dtype of ``entities``.
        Logistic function, logarithm and sums are always at least fp32. expected: the incoming gradient of the loss, if
        known (1 over the loss's divisor): then scaling the tables' gradients costs nothing. Another gradient gives the
        same result.

    The gradients are already computed when this returns; backward may be called once.
    """
    return _OneToN.apply(x, entities, bias, rows, columns, one, zero, block, dtype, expected)


class _OneToN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *given):  # type: ignore[no-untyped-def]
        x, entities, bias, rows, columns, one, zero, block, dtype, expected = given
        need_x, need_e, need_b = ctx.needs_input_grad[:3]
        wide = torch.float64 if entities.dtype == torch.float64 else torch.float32
        low = dtype or entities.dtype
        queries = x.to(low)
        across = queries.T.contiguous()  # the products are a tenth faster with tall results than with wide ones
        # Products in low precision are not scaled: a number divided by millions underflows in fp16.
        scale = expected if low == wide else 1.0
        scaled = queries if scale == 1.0 else queries * scale
        count, batch = len(entities), len(x)
        block = min(block, count)
        total = torch.zeros((), dtype=sum_dtype(x.device, wide), device=x.device)
        dx = torch.zeros(x.shape[::-1], dtype=wide, device=x.device) if need_x else None
        de = torch.empty(entities.shape, dtype=wide, device=x.device) if need_e else None
        db = torch.empty(count, dtype=wide, device=x.device) if need_b else None
        if block < count:
            columns, order = torch.sort(columns)
            rows = rows[order]
        edges = torch.arange(0, count + block, block, device=columns.device)
        bounds = torch.searchsorted(columns, edges).tolist() if block < count else [0, len(columns)]
        # All blocks use the same memory: new pages cost as much as the computation.
        memory = torch.empty(block, batch, dtype=wide, device=x.device)
        for number, low_end in enumerate(range(0, count, block)):
            high_end = min(low_end + block, count)
            part = slice(low_end, high_end)
            keys = entities[part].to(low)
            scores = memory[: high_end - low_end]
            if low == wide:
                product(keys, across, out=scores)
            else:
                scores.copy_(keys @ across)
            mine = slice(bounds[number], bounds[number + 1])
            row, column = rows[mine], columns[mine] - low_end
            place = column * batch + row
            known = scores.view(-1)[place]
            if bias is not None:
                known += bias[part][column]
            below = None if db is None else db[part]
            total += _slopes(scores, None if bias is None else bias[part], zero, below).to(total.dtype).sum()
            total -= (one - zero) * known.to(total.dtype).sum()
            if not (need_x or need_e or need_b):
                continue
            # The pairs are distinct, so no two writes meet and their order does not matter.
            scores.view(-1).index_add_(0, place, scores.new_full(row.shape, zero - one))
            if below is not None:
                below.index_add_(0, column, below.new_full(column.shape, zero - one))
            slope = scores.to(low)
            if dx is not None:
                if low == wide:
                    add_product_(dx, keys.T, slope)
                else:
                    dx += keys.T @ slope
            if de is not None:
                if low == wide:
                    product(slope, scaled, out=de[part])
                else:
                    de[part] = slope @ queries
        for gradient in (dx, db):
            if gradient is not None and scale != 1.0:
                gradient *= scale
        ctx.scale = scale
        ctx.gradients = (None if dx is None else dx.T.contiguous(), de, db)
        ctx.dtypes = (x.dtype, entities.dtype, None if bias is None else bias.dtype)
        return total.to(wide)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        if ctx.gradients is None:
            raise RuntimeError("the 1-N loss scales its gradients in place: backward can be called once only")
        factor = gradient / ctx.scale
        # Reading a number is free on the CPU; elsewhere it would wait for the device.
        as_expected = factor.device.type == "cpu" and abs(factor.item() - 1.0) < torch.finfo(factor.dtype).eps * 2
        gradients = [
            None if g is None else (g if as_expected else g.mul_(factor.to(g.dtype))).to(dtype)
            for g, dtype in zip(ctx.gradients, ctx.dtypes, strict=True)
        ]
        ctx.gradients = None  # so that the parameter can take the memory instead of copying it
        return (*gradients, None, None, None, None, None, None, None)


def _slopes(scores: Tensor, bias: Tensor | None, zero: float, entity_sums: Tensor | None) -> Tensor:
    """Overwrites ``scores`` [n, B] with σ(s) − zero, where s = scores + bias of the row. Returns parts of Σ softplus(s)
    − zero · s.

    Overwrites ``entity_sums`` [n] with the sums of the slopes over each row.
    """
    if bias is not None:
        scores += bias[:, None]
    sums = F.softplus(scores).sum(1)
    if zero:
        sums -= zero * scores.sum(1)
    scores.sigmoid_()
    if zero:
        scores -= zero
    if entity_sums is not None:
        torch.sum(scores, 1, out=entity_sums)
    return sums
