"""Products of operands rounded to bfloat16: our own pairs of terms beside float64, and torch's where there are none."""

from __future__ import annotations

import itertools

import pytest
import torch

from graphmill.kernels import products
from graphmill.kernels.products import own_pairs, product, rounded_product

LOW, FULL = torch.bfloat16, torch.float32
PAIRS = pytest.mark.skipif(not own_pairs(), reason="this processor's products of bfloat16 are torch's")
# Whole blocks, parts of all of them, odd terms, rows that are one block, and sums of more terms than go at once.
SHAPES = [(96, 64, 64), (100, 33, 70), (7, 8, 130), (98, 62, 16), (1, 1, 1), (13, 3001, 40)]


def _operand(rows: int, columns: int, turned: bool, kind: torch.dtype) -> torch.Tensor:
    return (torch.randn(columns, rows).T if turned else torch.randn(rows, columns)).to(kind)


@PAIRS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("turned", list(itertools.product([False, True], repeat=2)), ids=str)
@pytest.mark.parametrize("kinds", list(itertools.product([LOW, FULL], repeat=3)), ids=str)
def test_beside_float64(shape, turned, kinds):
    from graphmill.kernels import bfloat16_products_numba as own

    rows, terms, columns = shape
    left, right = _operand(rows, terms, turned[0], kinds[0]), _operand(terms, columns, turned[1], kinds[1])
    bias = torch.randn(columns)
    plain = left.to(LOW).double() @ right.to(LOW).double()
    for added in (None, bias):
        found = rounded_product(left, right, added, kinds[2])
        assert found.dtype == kinds[2]
        _close(found, plain if added is None else plain + bias.double())
    if kinds[2] == FULL:
        out = torch.randn(rows, columns)
        want = out.double() + plain
        own.product_(out, left, right, None, True)
        _close(out, want)


def _close(found, want):
    # Sums are fp32; a result of bfloat16 is rounded once.
    error = (found.double() - want).abs()
    of_rounding = 2**-8 * want.abs() if found.dtype == LOW else 0.0
    assert (error - of_rounding).max() <= 1e-5 * want.abs().max()


@PAIRS
def test_writes_its_columns_alone():
    wide = torch.full((50, 100), 7.0)
    narrow = wide.to(LOW)
    left, right = torch.randn(50, 40), torch.randn(40, 33)
    want = left.to(LOW).float() @ right.to(LOW).float()
    for out in (wide, narrow):
        rounded_product(left, right, None, out.dtype, out=out[:, 10:43])
        assert torch.equal(out[:, :10], torch.full_like(out[:, :10], 7.0))
        assert torch.equal(out[:, 43:], torch.full_like(out[:, 43:], 7.0))
        torch.testing.assert_close(out[:, 10:43].float(), want, rtol=1e-2, atol=1e-3)


@PAIRS
def test_rows_that_are_far_apart_and_words_that_begin_at_an_odd_number():
    table = torch.randn(300, 131).to(LOW)
    weight = torch.randn(64, 131).to(LOW)
    for first, last in ((0, 64), (1, 65), (3, 70)):
        left, right = table[::2, first:last], weight[:, first:last]
        want = left.double() @ right.double().T
        _close(rounded_product(left, right.T, None, LOW), want)
        _close(rounded_product(left, right.T, None, FULL), want)


@PAIRS
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_bits_at_any_number_of_threads(threads):
    torch.manual_seed(3)
    x, gradient, weight = torch.randn(1000, 100), torch.randn(1000, 80), torch.randn(80, 100).to(LOW)
    before = torch.get_num_threads()

    def found(count):
        torch.set_num_threads(count)
        try:
            return rounded_product(x, weight.T, None, LOW), rounded_product(gradient.T, x, None, FULL)
        finally:
            torch.set_num_threads(before)

    for one, other in zip(found(1), found(threads), strict=True):
        assert torch.equal(one, other)


@PAIRS
def test_a_number_that_is_none_stays_in_its_row_and_column():
    left, right = torch.randn(100, 40), torch.randn(40, 70)
    left[17, 5] = float("nan")
    right[3, 66] = float("inf")
    found = rounded_product(left, right, None, LOW)
    broken = torch.zeros(100, 70, dtype=torch.bool)
    broken[17], broken[:, 66] = True, True
    assert torch.equal(~found.isfinite(), broken)


@PAIRS
def test_serves_products_of_bfloat16(monkeypatch):
    called = []
    plain = products.rounded_product
    monkeypatch.setattr(products, "rounded_product", lambda *a, **k: called.append(a) or plain(*a, **k))
    left, right = torch.randn(200, 64).to(LOW), torch.randn(64, 64).to(LOW)
    product(left, right)
    product(left, right, torch.randn(64).to(LOW), out=torch.empty(200, 64, dtype=LOW))
    assert len(called) == 2
    # A small one, one with a gradient, and a batch are torch's.
    product(left[:2], right)
    product(left.requires_grad_(), right)
    product(right[None], right[None])
    assert len(called) == 2


def test_where_pairs_are_not_multiplied_torch_does_it(monkeypatch):
    monkeypatch.setattr(products, "own_pairs", lambda: False)
    left, right, bias = torch.randn(50, 40), torch.randn(40, 70), torch.randn(70)
    want = left.to(LOW).double() @ right.to(LOW).double() + bias.double()
    for kind in (LOW, FULL):
        out = torch.empty(50, 70, dtype=kind)
        for found in (rounded_product(left, right, bias, kind), rounded_product(left, right, bias, kind, out=out)):
            assert found.dtype == kind
            torch.testing.assert_close(found.double(), want, rtol=2e-2, atol=5e-2)


@pytest.mark.parametrize("shape", [(0, 8, 5), (4, 0, 5)], ids=str)
def test_of_nothing(shape):
    rows, terms, columns = shape
    bias = torch.arange(float(columns))
    found = rounded_product(torch.empty(rows, terms), torch.empty(terms, columns), bias, LOW)
    assert torch.equal(found, bias.to(LOW).expand(rows, columns))
