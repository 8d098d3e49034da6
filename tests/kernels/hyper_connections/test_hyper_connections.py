"""Sinkhorn, the permutation form and stream mixing against their definitions."""

import math

import pytest
import torch

from graphmill.kernels.hyper_connections import (
    connect,
    connect_serves,
    expand_streams,
    project_streams,
    read_streams,
    reduce_streams,
    write_streams,
)
from graphmill.kernels.hyper_connections.reference import (
    read_streams_reference,
    scaled_projection_reference,
    write_streams_reference,
)
from graphmill.kernels.hyper_connections.sinkhorn import permutation_matrices, permutation_mixture, sinkhorn
from graphmill.kernels.hyper_connections.sinkhorn_reference import sinkhorn_reference


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


def connection(kind, streams, rows, width, dtype=torch.float64, held=None):
    """Streams and parameters, in ``connect``'s order, and the number of iterations."""
    torch.manual_seed(streams)
    n, m = streams, streams**2 if kind == "sinkhorn" else math.factorial(streams)
    x, phi, alpha, *biases = (
        torch.randn(*s, dtype=torch.float64).to(dtype)
        for s in ((rows, held or n, width), (n * width, 2 * n + m), (3,), (n,), (n,), (m,))
    )
    variables = [x, 0.3 * phi, alpha, *biases]
    return [v.requires_grad_() for v in variables], 20 if kind == "sinkhorn" else 0


def plainly(variables, iterations, branch):
    x, phi, alpha, pre, post, res = variables
    n = len(pre)
    x = expand_streams(x, n)
    u = scaled_projection_reference(x, phi, 1e-6).split([n, n, len(res)], dim=1)
    h, p = torch.sigmoid(alpha[0] * u[0] + pre), 2 * torch.sigmoid(alpha[1] * u[1] + post)
    logits = alpha[2] * u[2] + res
    if iterations:
        mixing = sinkhorn_reference(logits.view(-1, n, n), iterations)
    else:
        mixing = permutation_mixture(logits, permutation_matrices(n))
    return write_streams_reference(x, mixing, p, branch(read_streams_reference(x, h)))


def ours(variables, iterations, branch):
    x, phi, alpha, *biases = variables
    return connect(x, phi, alpha, biases, iterations, 1e-6, branch)


def with_gradients(run, variables, iterations, end=torch.sin):
    out = run(variables, iterations, torch.tanh)
    return [out.detach(), *torch.autograd.grad(end(out).sum(), variables)]


KINDS = pytest.mark.parametrize("kind", ["lite", "sinkhorn"])
STREAMS = pytest.mark.parametrize("streams", [1, 2, 3, 4, 5])


@KINDS
@STREAMS
@pytest.mark.parametrize("held", ["all", "one"])
# About a group of rows and, at this width, a block of them.
@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 150, 300])
def test_a_connection_in_one_function_equals_its_parts(kind, streams, held, rows, monkeypatch):
    numba_form = pytest.importorskip("graphmill.kernels.hyper_connections.cpu.connection")
    monkeypatch.setattr(numba_form, "_BLOCK", 128 * streams * 37 * 8)
    variables, iterations = connection(kind, streams, rows, 37, held=1 if held == "one" else None)
    assert connect_serves(*variables[:2])
    found, expected = (with_gradients(run, variables, iterations) for run in (ours, plainly))
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@KINDS
@STREAMS
@pytest.mark.parametrize("held", ["all", "one"])
@pytest.mark.parametrize(("width", "kept"), [(32, torch.float64), (48, torch.float32)])
def test_streams_written_past_the_caches_are_the_same(kind, streams, held, width, kept, monkeypatch):
    numba_form = pytest.importorskip("graphmill.kernels.hyper_connections.cpu.connection")
    variables, iterations = connection(kind, streams, 150, width, kept, held=1 if held == "one" else None)
    found = []
    for large in (1 << 60, 0):
        monkeypatch.setattr(numba_form, "_LARGE", large)
        monkeypatch.setattr(numba_form, "_BLOCK", 64 * streams * width * 8)
        found.append(with_gradients(ours, variables, iterations))
    tolerance = 1e-9 if kept == torch.float64 else 1e-4
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@KINDS
@STREAMS
def test_a_connection_in_single_precision(kind, streams):
    pytest.importorskip("numba")
    variables, iterations = connection(kind, streams, 300, 33, torch.float32)
    found = with_gradients(ours, variables, iterations)
    doubled = [v.detach().double().requires_grad_() for v in variables]
    for a, b in zip(found, with_gradients(plainly, doubled, iterations), strict=True):
        assert a.dtype == torch.float32
        # All that n = 1 has to choose from is one matrix.
        assert float((a - b).norm()) <= 1e-4 * float(b.norm()) + 1e-6


@KINDS
def test_a_connections_gradient_is_that_of_finite_differences(kind):
    pytest.importorskip("numba")
    variables, iterations = connection(kind, 3, 4, 5)
    assert torch.autograd.gradcheck(lambda *v: ours(v, iterations and 3, torch.tanh), variables)


@KINDS
def test_a_chain_of_connections_ends_in_the_mean_of_its_streams(kind):
    """A gradient that is one for all streams comes out of a mean; streams that are all the same stand at the start."""
    pytest.importorskip("numba")
    variables, iterations = connection(kind, 4, 70, 9, held=1)
    found = []
    for run in (ours, plainly):
        x = run([run(variables, iterations, torch.tanh), *variables[1:]], iterations, torch.sin)
        end = reduce_streams(x) if run is ours else x.mean(1)
        found.append([end, *torch.autograd.grad((end**2).sum(), variables)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@KINDS
def test_a_gradient_that_others_have_too_is_left_alone(kind):
    pytest.importorskip("numba")
    variables, iterations = connection(kind, 4, 40, 9)
    out = ours(variables, iterations, torch.tanh)
    given = torch.randn_like(out)
    before = given.clone()
    torch.autograd.grad(out, variables, given)
    assert torch.equal(given, before)


@KINDS
@pytest.mark.parametrize("width", [50, 512])
def test_a_connection_does_not_depend_on_the_number_of_threads(kind, width):
    pytest.importorskip("numba")
    variables, iterations = connection(kind, 4, 1100, width, torch.float32)
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            found.append(with_gradients(ours, variables, iterations))
    finally:
        torch.set_num_threads(threads)
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_other_precisions_and_autocast_have_the_plain_form():
    x, phi = torch.randn(3, 4, 5), torch.randn(20, 32)
    assert not connect_serves(x.bfloat16(), phi)
    assert not connect_serves(x.double(), phi)
    with torch.autocast("cpu", torch.bfloat16):
        assert not connect_serves(x, phi)
