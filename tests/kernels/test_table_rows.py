"""Rows of a table: the lookup's values and gradient, whatever the table's gradient was before."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from graphmill.kernels.table_rows import add_rows_, table_rows


def problem() -> tuple[nn.Parameter, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    table = nn.Parameter(torch.randn(9, 4, dtype=torch.float64, generator=generator))
    rows = torch.tensor([3, 0, 3, 8, 3])
    return table, rows, torch.randn(5, 4, dtype=torch.float64, generator=generator)


def gradient(lookup, before: torch.Tensor | None) -> torch.Tensor:
    table, rows, weights = problem()
    table.grad = None if before is None else before.clone()
    result = lookup(table, rows)
    torch.testing.assert_close(result, table.detach()[rows])
    (result * weights).sum().backward()
    assert table.grad is not None
    return table.grad


@pytest.mark.parametrize("before", [None, torch.ones(9, 4, dtype=torch.float64)], ids=["none", "dense"])
def test_repeated_rows_are_added_to_what_is_there(before: torch.Tensor | None) -> None:
    mine = gradient(table_rows, before)
    theirs = gradient(lambda table, rows: F.embedding(rows, table), before)
    torch.testing.assert_close(mine.to_dense(), theirs)


def test_two_lookups_before_any_other_gradient() -> None:
    table, rows, weights = problem()
    both = (table_rows(table, rows) * weights).sum() + (table_rows(table, rows[:2]) * weights[2:4]).sum()
    both.backward()
    assert table.grad is not None
    row_gradient = table.grad.to_dense()
    table.grad = None
    ((F.embedding(rows, table) * weights).sum() + (F.embedding(rows[:2], table) * weights[2:4]).sum()).backward()
    torch.testing.assert_close(row_gradient, table.grad)


def test_a_table_that_is_computed_passes_its_gradient_on() -> None:
    table, rows, weights = problem()
    (table_rows(table * 2.0, rows) * weights).sum().backward()
    assert table.grad is not None
    row_gradient = table.grad
    table.grad = None
    (F.embedding(rows, table * 2.0) * weights).sum().backward()
    torch.testing.assert_close(row_gradient, table.grad)


def test_no_row_at_all() -> None:
    table, rows, weights = problem()
    table.grad = torch.ones_like(table)
    (table_rows(table, rows[:0]) * weights[:0]).sum().backward()
    torch.testing.assert_close(table.grad, torch.ones_like(table))


def test_many_repeated_rows_are_added_in_their_order_by_any_number_of_threads() -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, 40, (3000,), generator=generator)
    values, before, result = torch.randn(3000, 17, generator=generator), torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        result.append(torch.ones(40, 17))
        add_rows_(result[-1], rows, values)
    torch.set_num_threads(before)
    assert torch.equal(result[0], result[1])
    assert torch.equal(result[0], result[2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_half_precision_are_added_in_fp32(dtype: torch.dtype) -> None:
    """In bf16 a sum of ones ends at 256, in fp16 at 2048."""
    table = torch.ones(3, 4, dtype=dtype, requires_grad=True)
    table_rows(table, torch.full((4000,), 1)).sum().backward()
    assert table.grad is not None
    assert table.grad.dtype == dtype
    torch.testing.assert_close(table.grad[1].float(), torch.full((4,), 4000.0), rtol=0.01, atol=0.0)
