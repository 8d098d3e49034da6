"""Matrix products by the library that is faster on this processor: the same numbers by either."""

import pytest
import torch

from graphmill.kernels import products
from graphmill.kernels.products import Linear, add_product_, linear, product
from graphmill.kernels.runtime import processor

has_onednn = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
LIBRARIES = [pytest.param(True, marks=pytest.mark.skipif(not has_onednn, reason="torch without oneDNN")), False]
SHAPES = [(6, 5000, 64), (700, 65, 33), (257, 40, 130), (50, 5300, 50), (100, 300, 1100)]


@pytest.fixture(params=LIBRARIES, ids=["oneDNN", "MKL"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "onednn_is_faster", lambda: request.param)
    monkeypatch.setattr(products, "_ONEDNN_WORK", 1 << 15)


def expected(left, right, bias=None, before=None):
    out = left.double() @ right.double()
    for more in (bias, before):
        out = out if more is None else out + more.double()
    return out


def close(result, wanted, terms):
    torch.testing.assert_close(result.double(), wanted, rtol=1e-5, atol=1e-6 * (terms + 10))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_reference_whatever_the_strides(shape):
    rows, terms, columns = shape
    left, right, bias = torch.randn(rows, terms), torch.randn(terms, columns), torch.randn(columns)
    for a in (left, left.T.contiguous().T):
        for b in (right, right.T.contiguous().T):
            close(product(a, b), expected(a, b), terms)
            close(product(a, b, bias), expected(a, b, bias), terms)
            out = torch.full((rows, columns), 7.0)
            assert product(a, b, out=out) is out
            close(out, expected(a, b), terms)
            before = out.clone()
            assert add_product_(out, a, b) is out
            close(out, expected(a, b, before=before), terms)


@pytest.mark.usefixtures("library")
def test_writes_its_own_columns_only():
    left, right = torch.randn(200, 300), torch.randn(300, 21)
    table = torch.full((202, 40), 3.0)
    product(left, right, out=table[1:201, 9:30])
    close(table[1:201, 9:30], expected(left, right), 300)
    add_product_(table[1:201, 9:30], left, right)
    close(table[1:201, 9:30], 2 * expected(left, right), 600)
    table[1:201, 9:30] = 3.0
    assert bool((table == 3.0).all())


@pytest.mark.usefixtures("library")
def test_what_is_not_finite_stays_in_its_rows_and_columns():
    left, right = torch.randn(200, 70), torch.randn(70, 50)
    left[3, 5], right[8, 2] = float("inf"), float("nan")
    bad = ~torch.isfinite(product(left, right))
    assert bool(bad[3].all())
    assert bool(bad[:, 2].all())
    bad[3], bad[:, 2] = False, False
    assert not bool(bad.any())


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "trained", [(True, True, True), (True, False, False), (False, True, True), (False, False, True)]
)
def test_linear_has_the_gradients_of_torchs(trained):
    values, result = (torch.randn(300, 70), torch.randn(60, 70), torch.randn(60)), []
    for function in (linear, torch.nn.functional.linear):
        inputs = [v.clone().requires_grad_(t) for v, t in zip(values, trained, strict=True)]
        out = function(*inputs)
        out.square().sum().backward()
        result.append([out.detach(), *(i.grad for i in inputs)])
    for a, b in zip(*result, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("library")
def test_the_layer_is_torchs_by_its_numbers():
    layer, x = Linear(70, 60), torch.randn(300, 70)
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias), rtol=1e-5, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
        assert product(x, layer.weight.detach().T).dtype == torch.bfloat16


@pytest.mark.usefixtures("library")
def test_what_does_not_fit_is_refused_as_torch_refuses_it():
    with pytest.raises(RuntimeError):
        product(torch.randn(100, 90), torch.randn(64, 80))
    with pytest.raises(RuntimeError):
        linear(torch.randn(100, 90), torch.randn(80, 64))


@pytest.mark.usefixtures("library")
def test_a_bias_of_any_kind_is_added():
    left, right, bias = torch.randn(100, 90), torch.randn(90, 80), torch.randn(160)[::2]
    close(product(left, right, bias), expected(left, right, bias), 90)
    assert product(left, right, bias.clone().requires_grad_()).requires_grad


@pytest.mark.usefixtures("library")
def test_what_onednn_does_not_serve_is_torchs_own_product():
    big = torch.randn(200, 200)
    for left, right in (
        (big.double(), big.double()),
        (big.bfloat16(), big.bfloat16()),
        (big[:3], big),
        (big, big[:, :2]),
        (big[:20, :20], big[:20, :20]),
    ):
        assert torch.equal(product(left, right), left @ right)
    leaf = big.clone().requires_grad_()
    assert product(leaf, big).requires_grad


@pytest.mark.skipif(not has_onednn, reason="torch without oneDNN")
@pytest.mark.parametrize(
    ("about", "faster"),
    [
        ({"cpu_name": "AMD EPYC 9554", "avx512_f": True}, True),
        ({"cpu_name": "AMD EPYC 7763", "avx512_f": False}, False),
        ({"cpu_name": "Intel Xeon", "avx512_f": True}, False),
        ({}, False),
    ],
)
def test_onednn_is_for_amds_cores_with_wide_registers(about, faster, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: about, raising=False)
    assert processor.onednn_is_faster.__wrapped__() == faster
