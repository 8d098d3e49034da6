"""Sub-layers in compiled passes against the plain composition: values, all gradients, dropout's masks, threads, NaN."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from graphmill.kernels import sequence_attention, sublayers
from graphmill.kernels.layer_norm import LayerNorm
from graphmill.kernels.sequence_attention import Bucket
from graphmill.kernels.sublayers import CausalAttention, attention_output, feed_forward, self_attention

pytest.importorskip("numba")

BUCKETS = [Bucket(0, 3, 7), Bucket(21, 2, 20)]
ROWS, RATE = 61, 0.3
CASES = list(itertools.product((True, False), (True, False), (True, False)))
NORMS = pytest.mark.parametrize(("residual", "before", "after"), CASES)


class Weights(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.projections = nn.Linear(width, 3 * width)
        self.before, self.after = LayerNorm(width, 1e-6), LayerNorm(width, 1e-6)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.4)
        self.double()

    def linear(self, name: str):
        module = getattr(self, name)
        return module.weight, module.bias


def both_ways(monkeypatch, function, weights, x):
    """Result and gradients, compiled and plain, with one seed."""
    found = []
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(sublayers, "_compiled_serves", lambda *_: False)
            monkeypatch.setattr(sequence_attention, "has_numba", lambda: False)
        torch.manual_seed(7)
        own = x.clone().requires_grad_()
        out = function(own)
        scale = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        used = list(weights.parameters())
        gradients = torch.autograd.grad((out * scale).sum(), [own, *used], allow_unused=True)
        found.append([out.detach(), *gradients])
    monkeypatch.undo()
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            tolerance = 1e-10 if a.dtype == torch.float64 else 3e-5
            # A gradient of a weight is a sum over all rows: its rounding goes by the largest of them.
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(b.detach().abs().max())))


def norms(weights, before, after):
    return {"before": weights.before if before else None, "after": weights.after if after else None}


@NORMS
@pytest.mark.parametrize("rate", [0.0, RATE])
@pytest.mark.parametrize("width", [5, 32, 50])
def test_feed_forward(monkeypatch, residual, before, after, rate, width):
    weights = Weights(width)
    x = torch.randn(ROWS, width, dtype=torch.float64)
    first, second, more = weights.linear("first"), weights.linear("second"), norms(weights, before, after)
    both_ways(monkeypatch, lambda y: feed_forward(y, first, second, rate, True, residual=residual, **more), weights, x)


@NORMS
@pytest.mark.parametrize(("width", "heads"), [(6, 1), (6, 3), (50, 1)])
def test_self_attention(monkeypatch, residual, before, after, width, heads):
    weights = Weights(width)
    x = torch.randn(ROWS, width, dtype=torch.float64)
    attention = CausalAttention(BUCKETS, heads, RATE, True)
    inner, output, more = weights.linear("projections"), weights.linear("first"), norms(weights, before, after)
    both_ways(monkeypatch, lambda y: self_attention(y, inner, output, attention, residual=residual, **more), weights, x)


@pytest.mark.parametrize("after", [True, False])
def test_attention_output(monkeypatch, after):
    weights = Weights(9)
    x = torch.randn(ROWS, 9, dtype=torch.float64)
    norm = weights.after if after else None
    both_ways(monkeypatch, lambda y: attention_output(y, y.sin(), weights.linear("first"), norm), weights, x)


def test_single_precision(monkeypatch):
    weights = Weights(50).float()
    x = torch.randn(1000, 50)
    first, second = weights.linear("first"), weights.linear("second")
    both_ways(
        monkeypatch,
        lambda y: feed_forward(y, first, second, RATE, True, residual=True, before=weights.before, after=weights.after),
        weights,
        x,
    )


def test_gradients_are_those_of_finite_differences():
    weights, attention = Weights(3), CausalAttention([Bucket(0, 1, 5)], 1, 0.0, False)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)

    def both(y, *_):
        y = self_attention(
            y, weights.linear("projections"), weights.linear("first"), attention, residual=True, before=weights.before
        )
        return feed_forward(
            y, weights.linear("first"), weights.linear("second"), 0.0, False, residual=True, after=weights.after
        )

    assert torch.autograd.gradcheck(both, (x, *weights.parameters()))


def test_one_result_whatever_the_number_of_threads():
    weights = Weights(50).float()
    x, before, found = torch.randn(3000, 50), torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(3)
        own = x.clone().requires_grad_()
        out = feed_forward(
            own, weights.linear("first"), weights.linear("second"), RATE, True, residual=True, after=weights.after
        )
        found.append([out, *torch.autograd.grad(out.square().sum(), (own, *weights.after.parameters()))])
    torch.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)


def test_compiled_passes_have_one_result_whatever_the_number_of_threads():
    from graphmill.kernels.sequence_attention import cpu as sequence_attention_cpu
    from graphmill.kernels.sublayers import cpu as sublayers_cpu

    buckets = (Bucket(0, 20, 50), Bucket(1000, 40, 25))
    where, keys = sequence_attention_cpu.plan(buckets, 2), [(1, 2), (3, 4)]
    torch.manual_seed(0)
    q, k, v, above = torch.randn(4, 2000, 50)
    line, before, found = torch.rand(50), torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        out, shares = sequence_attention_cpu.forward(q, k, v, where, 2, RATE, keys, None, True)
        back = sequence_attention_cpu.backward(q, k, v, above, shares, where, 2, RATE, keys, None)
        total = q.clone()
        normed, statistics = sublayers_cpu.finish_(total, line, k, line, line, 1e-6, RATE, (5, 6))
        undone = sublayers_cpu.unfinish(v, total, line, statistics, RATE, (5, 6))
        found.append([out, *back[:2], normed, *undone])
    torch.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_not_a_number_is_not_hidden():
    weights = Weights(4)
    x = torch.full((3, 4), torch.nan, dtype=torch.float64)
    first, second = weights.linear("first"), weights.linear("second")
    for rate in (0.0, RATE):
        assert feed_forward(x, first, second, rate, True, residual=False).isnan().any()


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows):
    weights = Weights(4)
    x = torch.randn(rows, 4, dtype=torch.float64, requires_grad=True)
    out = feed_forward(x, weights.linear("first"), weights.linear("second"), 0.0, True, residual=True)
    expected = x + F.linear(F.relu(F.linear(x, *weights.linear("first"))), *weights.linear("second"))
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


def test_low_precision_takes_the_plain_form():
    weights = Weights(4).float()
    x = torch.randn(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        out = feed_forward(x, weights.linear("first"), weights.linear("second"), 0.0, True, residual=False)
    assert out.dtype == torch.bfloat16
