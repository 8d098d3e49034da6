"""Scores of chosen items for the CPU, compiled: no item vector is ever copied, forward or back."""

from __future__ import annotations

from typing import Any

import numba
import torch
from torch import Tensor

from graphmill.kernels.compiled_math import FAST
from graphmill.kernels.team import in_ranges, over_ranges

_jit = numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)


def scores(states: Tensor, table: Tensor, items: Tensor) -> Tensor:
    """states [N, d], table [I, d], items int64 [N, k], all contiguous, one dtype → state_n · table[items_nk], [N, k]."""
    out = states.new_empty(items.shape)
    arrays = (states.detach().numpy(), table.detach().numpy(), items.numpy(), out.numpy())
    over_ranges(_scores_ranges, arrays, len(states), items.numel() * states.shape[1])
    return out


def states_gradient(gradient: Tensor, table: Tensor, items: Tensor) -> Tensor:
    """[N, d]: Σ_k gradient_nk · table[items_nk]."""
    out = table.new_empty(len(items), table.shape[1])
    arrays = (gradient.detach().numpy(), table.detach().numpy(), items.numpy(), out.numpy())
    over_ranges(_states_ranges, arrays, len(items), items.numel() * table.shape[1])
    return out


def add_table_gradient_(into: Tensor, gradient: Tensor, states: Tensor, items: Tensor) -> None:
    """``into`` [I, d] at items_nk += gradient_nk · state_n, in the order of n and k. A thread owns every t-th item."""
    threads = max(1, min(torch.get_num_threads(), len(into)))
    arrays = (into.detach().numpy(), gradient.detach().numpy(), states.detach().numpy(), items.numpy(), threads)
    over_ranges(_table_ranges, arrays, threads, items.numel() * states.shape[1])


@_jit
def _scores(states: Any, table: Any, items: Any, out: Any, first: int, last: int) -> None:
    width = states.shape[1]
    nothing = states.dtype.type(0)
    for n in range(first, last):
        for k in range(items.shape[1]):
            item, total = items[n, k], nothing
            for j in range(width):
                total += states[n, j] * table[item, j]
            out[n, k] = total


@_jit
def _states(gradient: Any, table: Any, items: Any, out: Any, first: int, last: int) -> None:
    width = table.shape[1]
    for n in range(first, last):
        for j in range(width):
            out[n, j] = 0
        for k in range(items.shape[1]):
            item, slope = items[n, k], gradient[n, k]
            for j in range(width):
                out[n, j] += slope * table[item, j]


@_jit
def _table(into: Any, gradient: Any, states: Any, items: Any, threads: int, first: int, last: int) -> None:
    width = states.shape[1]
    for n in range(items.shape[0]):
        for k in range(items.shape[1]):
            item = items[n, k]
            if first <= item % threads < last:
                slope = gradient[n, k]
                for j in range(width):
                    into[item, j] += slope * states[n, j]


@_jit
def _scores_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_scores, arguments, first, last, team)


@_jit
def _states_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_states, arguments, first, last, team)


@_jit
def _table_ranges(arguments: Any, first: int, last: int, team: Any) -> None:
    in_ranges(_table, arguments, first, last, team)
