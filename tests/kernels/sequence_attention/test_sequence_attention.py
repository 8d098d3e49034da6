"""Bucketed causal attention and time attention against their plain forms, values and gradients."""

import pytest
import torch

from graphmill.kernels.sequence_attention import Bucket, causal_attention
from graphmill.kernels.sequence_attention.times import Intervals, time_attention
from tests.kernels.sequence_attention.reference import causal_attention_reference, time_attention_reference

LENGTHS = ((37, 20, 35), (17, 16), (9, 8), (5, 4, 5), (2, 1), (1,))
WIDTH, SPAN = 40, 6


def layout():
    buckets, start = [], 0
    for lengths in LENGTHS:
        buckets.append(Bucket(start, len(lengths), max(lengths)))
        start += len(lengths) * max(lengths)
    return buckets, start


def rows_of(buckets):
    """For each sequence the rows that are real."""
    for bucket, lengths in zip(buckets, LENGTHS, strict=True):
        for number, length in enumerate(lengths):
            first = bucket.start + number * bucket.length
            yield slice(first, first + length)


def inputs(seed, count, *shape):
    torch.manual_seed(seed)
    return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for _ in range(count)]


def gradients(outputs, weights, variables):
    return torch.autograd.grad(sum((o * w).sum() for o, w in zip(outputs, weights, strict=True)), variables)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("p", [0.0, 1e-11])  # the fused kernel, and the one with masks (that drop nothing)
def test_attention_in_buckets_equals_one_padded_batch_on_real_rows(heads, p):
    buckets, total = layout()
    q, k, v = inputs(0, 3, total, WIDTH)
    ours = causal_attention(q, k, v, buckets, heads, p, True)
    longest = max(map(max, LENGTHS))
    got, expected = [], []
    for rows in rows_of(buckets):
        length = rows.stop - rows.start
        pad = [torch.cat([torch.randn(longest - length, WIDTH, dtype=torch.float64), x[rows]])[None] for x in (q, k, v)]
        real = (torch.arange(longest) >= longest - length)[None]
        expected.append(causal_attention_reference(*pad, real, heads)[0, longest - length :])
        got.append(ours[rows])
    weights = [torch.randn_like(x) for x in got]
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    for a, b in zip(gradients(got, weights, (q, k, v)), gradients(expected, weights, (q, k, v)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_padding_rows_never_reach_real_ones():
    buckets, total = layout()
    q, k, v = inputs(1, 3, total, WIDTH)
    real = torch.zeros(total, dtype=torch.bool)
    for rows in rows_of(buckets):
        real[rows] = True
    before = causal_attention(q, k, v, buckets, 1, 0.0, False)[real]
    with torch.no_grad():
        k[~real], v[~real] = 1e3, -1e3
    assert torch.equal(before, causal_attention(q, k, v, buckets, 1, 0.0, False)[real])


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("p", [0.0, 1e-11])
def test_time_attention_through_the_table_equals_the_dense_form(heads, p):
    buckets, total = layout()
    q, k, v = inputs(2, 3, total, WIDTH)
    r_key, r_value = inputs(3, 2, SPAN + 1, WIDTH)
    times = torch.randint(0, 12, (total,)).sort().values
    intervals = Intervals(times, buckets, SPAN)
    ours = time_attention(q, k, v, intervals, r_key, r_value, heads, p, True)
    got, expected = [], []
    for rows in rows_of(buckets):
        got.append(ours[rows])
        expected.append(time_attention_reference(q[rows], k[rows], v[rows], times[rows], r_key, r_value, heads))
    weights = [torch.randn_like(x) for x in got]
    variables = (q, k, v, r_key, r_value)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    for a, b in zip(gradients(got, weights, variables), gradients(expected, weights, variables), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_the_largest_tensor_has_no_axis_for_width_beside_two_for_positions():
    length, span, width = 80, 10, 16
    sizes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            sizes.extend(t.numel() for t in (out if isinstance(out, tuple | list) else [out]) if torch.is_tensor(t))
            return out

    bucket = Bucket(0, 2, length)
    q, k, v = (torch.randn(2 * length, width, requires_grad=True) for _ in range(3))
    tables = [torch.randn(span + 1, width, requires_grad=True) for _ in range(2)]
    intervals = Intervals(torch.arange(2 * length), [bucket], span)
    with Watch():
        time_attention(q, k, v, intervals, *tables, 1, 0.2, True).sum().backward()
    assert max(sizes) <= 2 * length * length


def test_intervals_are_clipped_differences():
    # TiSASRec's worked example: t' = [1, 2, 2, 6], span 3.
    (relation,) = Intervals(torch.tensor([1, 2, 2, 6]), [Bucket(0, 1, 4)], 3).relations
    assert relation[0].tolist() == [[0, 1, 1, 3], [1, 0, 0, 3], [1, 0, 0, 3], [3, 3, 3, 0]]
