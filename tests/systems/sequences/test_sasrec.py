"""SASRec and TiSASRec: padding, position, order, and equality with the dense form of every residual arrangement."""

import math

import pytest
import torch
from torch.nn import functional as F

from graphmill.kernels.sequence_attention import Bucket
from graphmill.systems.sequences.layers import SequenceInputs
from graphmill.systems.sequences.sasrec import SASRec, TiSASRec
from tests.kernels.sequence_attention.reference import causal_attention_reference, time_attention_reference

ITEMS, LENGTH, WIDTH = 11, 6, 8


def sasrec(norm="pre", rate=0.0, heads=2):
    torch.manual_seed(0)
    return SASRec(ITEMS, LENGTH, WIDTH, 2, heads, rate, norm, 1e-8).double()


def tisasrec(norm="original", rate=0.0):
    torch.manual_seed(0)
    return TiSASRec(ITEMS, LENGTH, WIDTH, 2, 2, rate, norm, 1e-8, 5).double()


def inputs(*sequences, pad=0):
    """One bucket of right-padded sequences of (item, time)."""
    longest = max(map(len, sequences))
    rows = [list(s) + [(pad, pad)] * (longest - len(s)) for s in sequences]
    items, times = torch.tensor(rows).permute(2, 0, 1)
    positions = torch.stack([torch.arange(longest) + LENGTH - len(s) for s in sequences]).clamp(0, LENGTH - 1)
    bucket = Bucket(0, len(sequences), longest)
    return SequenceInputs(items.flatten(), positions.flatten(), times.flatten(), [bucket])


LONG, SHORT = [(3, 1), (1, 2), (4, 2), (1, 9)], [(5, 1), (9, 7)]


@pytest.mark.parametrize("make", [sasrec, tisasrec])
@pytest.mark.parametrize("norm", ["pre", "post", "original"])
def test_padding_and_neighbours_in_the_batch_change_nothing(make, norm):
    model = make(norm).eval()
    alone = model(inputs(SHORT))
    together = model(inputs(LONG, SHORT, pad=7))[4:6]
    torch.testing.assert_close(alone, together, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", [sasrec, tisasrec])
def test_a_state_depends_on_the_past_alone(make):
    model = make().eval()
    before = model(inputs(LONG))
    changed = model(inputs([*LONG[:3], (8, 30)]))
    torch.testing.assert_close(before[:3], changed[:3], rtol=1e-10, atol=1e-12)
    assert not torch.allclose(before[3], changed[3])


def dense(model, pairs):
    """The model written out for one sequence, without buckets, from the papers' formulas."""
    items = torch.tensor([item for item, _ in pairs])
    positions = torch.arange(len(pairs)) + LENGTH - len(pairs)
    x = model.items.weight[items] * math.sqrt(WIDTH)
    timed = isinstance(model, TiSASRec)
    if not timed:
        x = x + model.positions.weight[positions]
    for block in model.blocks:

        def attend(q_in, kv_in, block=block):
            w, b = block.projections.weight, block.projections.bias
            q = q_in @ w[:WIDTH].T + b[:WIDTH]
            k = kv_in @ w[WIDTH : 2 * WIDTH].T + b[WIDTH : 2 * WIDTH]
            v = kv_in @ w[2 * WIDTH :].T + b[2 * WIDTH :]
            if timed:
                k, v = k + model.position_keys.weight[positions], v + model.position_values.weight[positions]
                tables = model.time_keys.weight, model.time_values.weight
                out = time_attention_reference(q, k, v, torch.tensor([t for _, t in pairs]), *tables, model.heads)
            else:
                out = causal_attention_reference(
                    q[None], k[None], v[None], torch.ones(1, len(pairs)).bool(), model.heads
                )[0]
            return out if block.projections.output is None else block.projections.output(out)

        def feed(z, block=block):
            return block.feed_forward.second(F.relu(block.feed_forward.first(z)))

        one, two = block.norm_attention, block.norm_feed_forward
        if block.norm == "pre":
            x = x + attend(one(x), one(x))
            x = x + feed(two(x))
        elif block.norm == "post":
            x = one(x + attend(x, x))
            x = two(x + feed(x))
        else:
            query = one(x)
            z = two(query + attend(query, x))
            x = z + feed(z)
    return model.final_norm(x)


@pytest.mark.parametrize("make", [sasrec, tisasrec])
@pytest.mark.parametrize("norm", ["pre", "post", "original"])
def test_each_arrangement_is_the_formula(make, norm):
    model = make(norm).eval()
    torch.testing.assert_close(model(inputs(LONG)), dense(model, LONG), rtol=1e-10, atol=1e-12)


def test_only_time_tells_tisasrec_apart_what_sasrec_cannot():
    fast, slow = [(3, 1), (1, 2)], [(3, 1), (1, 6)]
    timed, untimed = tisasrec().eval(), sasrec().eval()
    assert not torch.allclose(timed(inputs(fast)), timed(inputs(slow)))
    assert torch.equal(untimed(inputs(fast)), untimed(inputs(slow)))


@pytest.mark.parametrize("make", [sasrec, tisasrec])
def test_every_parameter_has_a_gradient(make):
    model = make(rate=0.2).train()
    model(inputs(LONG, SHORT)).square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
