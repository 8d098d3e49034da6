"""``input_embedding`` for the CPU, compiled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmill.kernels.dropout.cpu import mask_numbers
from graphmill.kernels.runtime.compiled_math import FAST, owner
from graphmill.kernels.runtime.jit import jit
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.vector_math import keep
from graphmill.kernels.runtime.vectors import LANES, address, load_first, spread, store_first
from graphmill.kernels.runtime.words import Key

_jit = jit(nogil=True, fastmath=FAST, error_model="numpy")


def forward(
    table: Tensor, positions: Tensor, items: Tensor, places: Tensor, scale: float, p: float, key: Key
) -> Tensor:
    """[R, d]. All contiguous; a number of an item or a place that is not there raises IndexError."""
    for rows, within in ((items, table), (places, positions)):
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(within):
            raise IndexError(f"a row from {int(rows.min())} to {int(rows.max())} of a table of {len(within)} rows")
    out = table.new_empty(len(items), table.shape[1])
    flat = [t.detach().view(-1).numpy() for t in (table, positions, out)]
    more = (items.numpy(), places.numpy(), table.shape[1], flat[0].dtype.type(scale))
    over_ranges(_forward, (*flat, *more, *mask_numbers(flat[0], p, key)), len(items), out.numel())
    return out


def add_gradients_(
    gradient: Tensor,
    into_table: Tensor,
    into_positions: Tensor,
    items: Tensor,
    places: Tensor,
    scale: float,
    p: float,
    key: Key,
) -> None:
    """Each table's gradient at its rows, in the order of ``gradient`` [R, d]. A thread owns some rows of a table."""
    threads = max(1, min(torch.get_num_threads(), len(into_table)))
    flat = [t.detach().view(-1).numpy() for t in (gradient, into_table, into_positions)]
    more = (items.numpy(), places.numpy(), gradient.shape[1], flat[0].dtype.type(scale), threads)
    over_ranges(_add, (*flat, *more, *mask_numbers(flat[0], p, key)), threads, gradient.numel())


@_jit
def _forward(arguments: Any, first: int, last: int) -> None:
    table, positions, out, items, places, width, scale, dropping, low, high, threshold, kept = arguments
    vectors, others, to, by = address(table), address(positions), address(out), spread(scale)
    for row in range(first, last):
        own, other, at = items[row] * width, places[row] * width, row * width
        for c in range(0, width, LANES):
            x = load_first(vectors, own + c, width - c) * by + load_first(others, other + c, width - c)
            if dropping:
                x = keep(x, at + c, low, high, threshold, kept)
            store_first(to, at + c, x, width - c)


@_jit
def _add(arguments: Any, first: int, last: int) -> None:
    gradient, into_table, into_positions, items, places, width, scale, threads, dropping, low, high, threshold, kept = (
        arguments
    )
    above, vectors, others, by = address(gradient), address(into_table), address(into_positions), spread(scale)
    for row in range(len(items)):
        mine, too = first <= owner(items[row], threads) < last, first <= owner(places[row], threads) < last
        if mine or too:
            own, other, at = items[row] * width, places[row] * width, row * width
            for c in range(0, width, LANES):
                g = load_first(above, at + c, width - c)
                if dropping:
                    g = keep(g, at + c, low, high, threshold, kept)
                if mine:
                    store_first(vectors, own + c, load_first(vectors, own + c, width - c) + g * by, width - c)
                if too:
                    store_first(others, other + c, load_first(others, other + c, width - c) + g, width - c)
