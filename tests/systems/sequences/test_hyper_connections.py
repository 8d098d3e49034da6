"""mHC in a model: the plain model at the start, streams that part, gradients that arrive, depth that trains."""

import pytest
import torch

from graphmill.systems.sequences.hyper_connections import HyperConnection
from graphmill.systems.sequences.sasrec import SASRec

from .test_sasrec import ITEMS, LENGTH, LONG, SHORT, WIDTH, inputs


def model(kind, blocks=2, streams=4):
    def connection(layer):
        return HyperConnection(WIDTH, streams, kind, 20, 0.01, layer)

    torch.manual_seed(0)
    return SASRec(ITEMS, LENGTH, WIDTH, blocks, 1, 0.0, "pre", 1e-8, connection if kind else None)


def step(m, batch, rate=0.05):
    m.zero_grad()
    loss = torch.nn.functional.cross_entropy(m(batch) @ m.items.weight.T, (batch.items + 1) % ITEMS)
    loss.backward()
    with torch.no_grad():
        for p in m.parameters():
            if p.grad is not None:
                p -= rate * p.grad
    return float(loss.detach())


def streams_of(m, batch):
    seen = []
    hook = m.blocks[-1].register_forward_hook(lambda module, args, out: seen.append(out.detach()))
    m(batch)
    hook.remove()
    return seen[0]


@pytest.mark.parametrize("kind", ["lite", "sinkhorn"])
@pytest.mark.parametrize("streams", [2, 4])
def test_at_the_start_it_is_the_plain_model(kind, streams):
    plain, ours = model(None), model(kind, streams=streams)
    ours.load_state_dict(plain.state_dict(), strict=False)
    batch = inputs(LONG, SHORT)
    torch.testing.assert_close(ours(batch)[:4], plain(batch)[:4], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["lite", "sinkhorn"])
def test_streams_part_after_one_step_and_then_the_mixing_map_learns(kind):
    m, batch = model(kind), inputs(LONG, SHORT)
    equal = streams_of(m, batch)
    torch.testing.assert_close(equal, equal[:, :1].expand_as(equal), rtol=0, atol=1e-5)
    step(m, batch)
    parted = streams_of(m, batch)
    assert float((parted - parted.mean(1, keepdim=True)).abs().max()) > 1e-4
    step(m, batch)
    for block in m.blocks:
        for connection in block.mhc:
            res = connection.phi.grad[:, 2 * connection.streams :]
            assert float(res.abs().max()) > 0.0
            assert float(connection.bias_res.grad.abs().max()) > 0.0


@pytest.mark.parametrize("kind", ["lite", "sinkhorn"])
def test_mixing_stays_doubly_stochastic_so_that_the_mean_over_streams_is_kept(kind):
    torch.manual_seed(1)
    connection = HyperConnection(WIDTH, 4, kind, 20, 1.0, 0)
    torch.nn.init.normal_(connection.phi, std=0.3)
    torch.nn.init.zeros_(connection.bias_res)
    x = torch.randn(9, 4, WIDTH)
    _, _, mixing = connection.maps(x)
    for axis in (1, 2):
        torch.testing.assert_close(mixing.sum(axis), torch.ones(9, 4), rtol=0, atol=1e-3)
    out = connection(x, torch.zeros_like)
    torch.testing.assert_close(out.mean(1), x.mean(1), rtol=0, atol=1e-3)


def test_maps_are_fp32_under_mixed_precision():
    connection = HyperConnection(WIDTH, 4, "sinkhorn", 20, 0.01, 0)
    with torch.autocast("cpu", torch.bfloat16):
        maps = connection.maps(torch.randn(3, 4, WIDTH))
    assert {m.dtype for m in maps} == {torch.float32}


def test_at_logits_of_zero_a_branch_is_written_once():
    connection = HyperConnection(WIDTH, 4, "lite", 20, 0.01, 0)
    h, p, _ = connection.maps(torch.randn(3, 4, WIDTH))
    torch.testing.assert_close(p, torch.ones(3, 4))
    torch.testing.assert_close(h.sum(1), torch.ones(3))
