"""Vectors in compiled code: each operation against numpy, in fp32 and float64."""

import numpy as np
import pytest

pytest.importorskip("numba")

import numba

from graphmill.kernels.dropout import words
from graphmill.kernels.runtime.vector_math import (
    above,
    count_bits,
    exceeding,
    exponential,
    first_of,
    highest,
    highest_of_each,
    keep,
    larger,
    lowest_bit,
    positive_bits,
    reaching,
    total,
    unless_finite,
    where_bits,
    where_positive,
)
from graphmill.kernels.runtime.vectors import (
    LANES,
    address,
    hold,
    like,
    load,
    load_first,
    padded,
    spread,
    spread_at,
    store,
    store_first,
)

KINDS = [np.float32, np.float64]


@numba.njit
def _arithmetic(x, out):
    a, to = address(x), address(out)
    one, other = load(a, 1), load(a, 3)
    more = one + other
    more += spread(x[2])
    store(to, 0, one * other + spread_at(a, 5))
    store(to, 16, more - other)
    store(to, 32, larger(one, other))
    store(to, 48, where_positive(one, other, spread(like(x[0], 7))))
    store(to, 64, exponential(one))
    return total(one), highest(one)


@numba.njit
def _bits(x, out):
    a, to = address(x), address(out)
    bits = positive_bits(load(a, 1))
    store(to, 0, where_bits(bits, load(a, 2), load(a, 3)))
    return bits


@numba.njit
def _parts(x, out, count):
    a, to = address(x), address(out)
    store(to, 0, load_first(a, 1, count))
    store_first(to, 16, load(a, 1), count)
    store(to, 32, first_of(load(a, 1), count, load(a, 2)))


@numba.njit
def _four(a, at):
    return load(a, at), load(a, at + LANES), load(a, at + 2 * LANES), load(a, at + 3 * LANES)


@numba.njit
def _highest_of_each(x, out):
    a, rows = address(x), 4 * LANES
    store(address(out), 0, highest_of_each(_four(a, 0) + _four(a, rows) + _four(a, 2 * rows) + _four(a, 3 * rows)))


@numba.njit
def _compared(x, out):
    a, to = address(x), address(out)
    store(to, 0, above(load(a, 0), spread_at(a, 3)))
    store(to, LANES, unless_finite(load(a, 0), spread_at(a, 3)))
    bits = reaching(load(a, 0), x[3])
    return bits, exceeding(load(a, 0), x[3]), count_bits(bits), lowest_bit(bits)


@numba.njit
def _kept(x, out, place, low, high, threshold, scale):
    store(address(out), 0, keep(load(address(x), 0), place, low, high, threshold, scale))


@numba.njit
def _own_memory(count):
    buffer = np.empty(count, np.float64)
    a = address(buffer)
    for i in range(count):
        a[i] = i
    found = 0.0
    for i in range(count):
        found += a[i]
    hold(buffer)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_arithmetic_is_by_element(kind):
    x, out = np.random.default_rng(0).standard_normal(30).astype(kind), np.empty(80, kind)
    sums = _arithmetic(x, out)
    one, other = x[1:17], x[3:19]
    expected = [one * other + x[5], one + x[2], np.maximum(one, other), np.where(one > 0, other, 7), np.exp(one)]
    rtol = 1e-5 if kind == np.float32 else 1e-13
    np.testing.assert_allclose(out.reshape(5, 16), expected, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(sums, (one.sum(), one.max()), rtol=rtol)


@pytest.mark.parametrize("kind", KINDS)
def test_the_highest_of_each_of_sixteen_vectors(kind):
    x, out = np.random.default_rng(0).standard_normal((LANES, LANES)).astype(kind), np.empty(LANES, kind)
    _highest_of_each(x, out)
    assert np.array_equal(out, x.max(1))


@pytest.mark.parametrize("kind", KINDS)
def test_comparisons_as_numbers_and_as_bits(kind):
    largest = np.finfo(kind).max
    x = np.array([0, 1, -2, 2, 2, 3, np.inf, -np.inf, np.nan, largest, -largest, 2, 1, 0, 0, 5], kind)
    out = np.empty(2 * LANES, kind)
    bits, strict, count, lowest = _compared(x, out)
    place = 1 << np.arange(LANES)
    assert (bits, strict) == (place[x >= 2].sum(), place[x > 2].sum())
    assert (count, lowest) == ((x >= 2).sum(), 3)
    assert np.array_equal(out[:LANES], x > 2)
    assert np.array_equal(out[LANES:], np.where(np.isfinite(x), 2, np.nan), equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [-3, 0, 1, 7, 15, 16, 40])
def test_parts_of_a_vector_touch_nothing_else(kind, count):
    x, out = np.arange(1, 31).astype(kind), np.full(48, -1, kind)
    _parts(x, out, count)
    inside = np.arange(LANES) < count
    np.testing.assert_array_equal(out[:16], np.where(inside, x[1:17], 0))
    np.testing.assert_array_equal(out[16:32], np.where(inside, x[1:17], -1))
    np.testing.assert_array_equal(out[32:], np.where(inside, x[1:17], x[2:18]))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_has_the_words_of_the_plain_form(kind):
    x, out, key = np.ones(16, kind), np.empty(16, kind), (123, 456)
    _kept(x, out, 1000, np.uint32(key[0]), np.uint32(key[1]), np.uint32(1 << 31), kind(2))
    expected = np.where(words(1000, 1016, key) >= np.uint32(1 << 31), 2, 0)
    np.testing.assert_array_equal(out, expected)


def test_not_a_number_stays_one():
    x, out = np.full(30, np.nan, np.float32), np.empty(80, np.float32)
    assert all(np.isnan(_arithmetic(x, out)[:1]))
    assert np.isnan(out[:16]).all()
    assert np.isnan(out[64:]).all()


def test_the_exponential_of_minus_infinity_is_zero():
    x, out = np.full(30, -np.inf, np.float32), np.empty(80, np.float32)
    _arithmetic(x, out)
    np.testing.assert_array_equal(out[64:], 0)


def test_memory_is_there_until_it_is_let_go():
    assert _own_memory(1000) == 999 * 500


def test_only_a_contiguous_array_has_an_address():
    with pytest.raises(numba.TypingError, match="contiguous"):
        _kept(np.ones(32, np.float32)[::2], np.empty(16, np.float32), 0, np.uint32(0), np.uint32(0), np.uint32(0), 1.0)


def test_rows_are_padded_to_whole_vectors():
    assert [padded(width) for width in (0, 1, 16, 17, 50)] == [0, 16, 16, 32, 64]


@pytest.mark.parametrize("kind", KINDS)
def test_signs_are_a_bit_each(kind):
    x, out = np.random.default_rng(4).standard_normal(20).astype(kind), np.zeros(LANES, kind)
    x[4], x[5] = 0.0, np.nan
    bits, positive = _bits(x, out), x[1 : 1 + LANES] > 0
    assert bits == sum(1 << n for n in range(LANES) if positive[n])
    np.testing.assert_array_equal(out, np.where(positive, x[2 : 2 + LANES], x[3 : 3 + LANES]))
