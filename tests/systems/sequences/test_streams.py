"""Sinkhorn, the permutation form and stream mixing against their definitions."""

import pytest
import torch

from graphmill.systems.sequences.hyper_connections import (
    HyperConnection,
    permutation_matrices,
    permutation_mixture,
    project_streams,
    read_streams,
    reduce_streams,
    sinkhorn,
    write_streams,
)
from tests.systems.sequences.streams_reference import (
    read_streams_reference,
    scaled_projection_reference,
    sinkhorn_reference,
    write_streams_reference,
)


def test_a_case_worked_by_hand():
    got = sinkhorn(torch.tensor([[[0.0, 1.0], [2.0, 0.0]]], dtype=torch.float64), 20)
    # 2 × 2 in closed form: a = r / (1 + r), r = √(m11 m22 / (m12 m21)) = e^(-3/2).
    a = 0.18242552380635635
    torch.testing.assert_close(got[0], torch.tensor([[a, 1 - a], [1 - a, a]], dtype=torch.float64), rtol=1e-7, atol=0)


@pytest.mark.parametrize("iterations", [1, 3, 20])
def test_sinkhorn_equals_its_definition_in_value_and_gradient(iterations):
    torch.manual_seed(0)
    logits = (torch.randn(7, 4, 4, dtype=torch.float64) * 2).requires_grad_()
    weight = torch.randn(7, 4, 4, dtype=torch.float64)
    ours, plain = sinkhorn(logits, iterations), sinkhorn_reference(logits, iterations)
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-13)
    (a,), (b,) = (torch.autograd.grad((x * weight).sum(), logits) for x in (ours, plain))
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x: sinkhorn(x, 3), logits[:2].detach().requires_grad_())


def test_rows_and_columns_add_up_to_one_and_large_logits_stay_finite():
    torch.manual_seed(0)
    h = sinkhorn(torch.randn(50, 4, 4), 20)
    torch.testing.assert_close(h.sum(1), torch.ones(50, 4), rtol=0, atol=1e-5)
    torch.testing.assert_close(h.sum(2), torch.ones(50, 4), rtol=0, atol=1e-3)
    half = (torch.randn(5, 4, 4) * 40).half()
    assert sinkhorn(half).dtype == torch.float32
    assert torch.isfinite(sinkhorn(half)).all()


def test_the_permutation_form_is_exact():
    matrices = permutation_matrices(4)
    assert matrices.shape == (24, 4, 4)
    assert torch.equal(matrices[0], torch.eye(4))
    torch.testing.assert_close(permutation_mixture(torch.zeros(1, 24), matrices), torch.full((1, 4, 4), 0.25))
    h = permutation_mixture(torch.randn(20, 24) * 5, matrices)
    for axis in (1, 2):
        torch.testing.assert_close(h.sum(axis), torch.ones(20, 4), rtol=0, atol=1e-6)
    assert torch.autograd.gradcheck(
        lambda x: permutation_mixture(x, matrices), torch.randn(3, 24, dtype=torch.float64, requires_grad=True)
    )


@pytest.mark.parametrize("rows", [0, 1, 6])
@pytest.mark.parametrize("streams", [1, 2, 3, 4, 6])
def test_streams_are_read_and_written_as_defined(streams, rows):
    torch.manual_seed(0)
    n, width = streams, 5
    x, h, p, y, w = (
        torch.randn(*s, dtype=torch.float64, requires_grad=True)
        for s in ((rows, n, width), (rows, n, n), (rows, n), (rows, width), (n * width, 7))
    )
    pairs = [
        (read_streams(x, p), read_streams_reference(x, p), (x, p)),
        (write_streams(x, h, p, y), write_streams_reference(x, h, p, y), (x, h, p, y)),
        (project_streams(x, w, 1e-6), scaled_projection_reference(x, w, 1e-6), (x, w)),
        (reduce_streams(x), x.mean(1), (x,)),
    ]
    for ours, plain, variables in pairs:
        same(ours, plain, variables)


def same(ours, plain, variables):
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)
    weight = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad((ours * weight).sum(), variables),
        torch.autograd.grad((plain * weight).sum(), variables),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def plainly(connection, x, branch):
    n, alpha = connection.streams, connection.alpha
    x = x.expand(-1, n, -1)
    u = scaled_projection_reference(x, connection.phi, 1e-6).split([n, n, len(connection.bias_res)], dim=1)
    h = torch.sigmoid(alpha[0] * u[0] + connection.bias_pre)
    p = 2 * torch.sigmoid(alpha[1] * u[1] + connection.bias_post)
    logits = alpha[2] * u[2] + connection.bias_res
    if connection.kind == "sinkhorn":
        mixing = sinkhorn_reference(logits.view(-1, n, n), 20)
    else:
        mixing = permutation_mixture(logits, permutation_matrices(n))
    return write_streams_reference(x, mixing, p, branch(read_streams_reference(x, h)))


@pytest.mark.parametrize("kind", ["lite", "sinkhorn"])
@pytest.mark.parametrize("streams", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("held", ["all", "one"])
def test_a_connection_equals_its_parts(kind, streams, held):
    """Streams that are all the same may be given as one."""
    torch.manual_seed(streams)
    connection = HyperConnection(7, streams, kind, 20, 1.0, 0).double()
    for parameter in connection.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(6, 1 if held == "one" else streams, 7, dtype=torch.float64, requires_grad=True)
    variables = (x, *connection.parameters())
    same(connection(x, torch.tanh), plainly(connection, x, torch.tanh), variables)
