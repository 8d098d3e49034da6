"""The folded convolution against convolution, batch norm, ReLU, map dropout and linear layer one after the other."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from graphmill.systems.conve.folded_convolution import channel_statistics, rectified_linear, windows
from graphmill.systems.conve.model import ConvE, ConvEConfig
from tests.systems.conve.reference import plain_feature_map

CONFIG = ConvEConfig(
    num_entities=9,
    num_relations=4,
    embedding_dim=20,
    embedding_height=4,
    embedding_width=5,
    output_channels=3,
    kernel_height=2,
    kernel_width=3,
    input_dropout=0.0,
)


def model_of(dtype: torch.dtype, *, dropout: float = 0.3) -> ConvE:
    torch.manual_seed(0)
    model = ConvE(replace(CONFIG, feature_map_dropout=dropout)).to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.normal_(0.3, 0.5, generator=generator)
        for norm in (model.input_norm, model.feature_norm, model.output_norm):
            norm.running_var.abs_().add_(0.5)
    return model


def plainly(model: ConvE, picture: torch.Tensor) -> torch.Tensor:
    maps = plain_feature_map(
        model.input_norm(picture),
        model.convolution,
        model.feature_norm,
        model.config.feature_map_dropout,
        model.training,
    )
    return model.projection(maps)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 5, 300])
def test_value_gradients_and_running_statistics_in_float64(training: bool, rows: int) -> None:
    picture = torch.randn(rows, 1, 8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    weights = torch.randn(rows, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    result = []
    for plain in (False, True):
        model = model_of(torch.float64).train(training)
        x = picture.clone().requires_grad_()
        torch.manual_seed(4)
        hidden = plainly(model, x) if plain else model.hidden(x)
        (hidden * weights).sum().backward()
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        result.append((hidden.detach(), x.grad, gradients, dict(model.named_buffers())))
    mine, theirs = result
    torch.testing.assert_close(mine[0], theirs[0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(mine[1], theirs[1], rtol=1e-8, atol=1e-9)
    for name, gradient in theirs[2].items():
        # A shift before a batch norm has no effect in training: there is no gradient here, and rounding there.
        folded = mine[2].get(name, torch.zeros_like(gradient))
        torch.testing.assert_close(folded, gradient, rtol=1e-8, atol=1e-9, msg=name)
    for name, buffer in theirs[3].items() if rows else ():  # statistics of nothing at all mean nothing
        torch.testing.assert_close(mine[3][name], buffer, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_statistics_stay_wide_and_products_are_low(dtype: torch.dtype) -> None:
    model, picture = model_of(torch.float32, dropout=0.0).train(), torch.randn(300, 1, 8, 5)
    wide = model.hidden(picture)
    means = model.feature_norm.running_mean.clone()
    again = model_of(torch.float32, dropout=0.0).train()
    with torch.autocast("cpu", dtype):
        low = again.hidden(picture)
    assert low.dtype == dtype
    torch.testing.assert_close(again.feature_norm.running_mean, means, rtol=0, atol=0)
    assert float(((low.float() - wide).norm() / wide.norm()).detach()) < 2e-2


def test_moments_tell_mean_and_variance_of_every_channel() -> None:
    picture = torch.randn(6, 8, 5, dtype=torch.float64)
    filters = torch.randn(3, 6, dtype=torch.float64)
    cells, total = windows(picture, (2, 3))
    maps = torch.einsum("ck,bkp->cbp", filters, cells[:, :-1]).flatten(1)
    mean, variance = channel_statistics(total, filters)
    torch.testing.assert_close(mean, maps.mean(1))
    torch.testing.assert_close(variance, maps.var(1, unbiased=False))
    torch.testing.assert_close(cells[:, :-1], F.unfold(picture[:, None], (2, 3)))
    assert float(total[-1, -1]) == 6 * 7 * 3
    halves = [windows(part, (2, 3))[1] for part in (picture[:2], picture[2:])]
    torch.testing.assert_close(halves[0] + halves[1], total)


def test_windows_and_moments_have_the_gradients_of_their_definition() -> None:
    picture = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p: windows(p, (2, 3)), picture)


def test_a_second_backward_is_refused_because_the_first_wrote_over_the_maps() -> None:
    filters, cells = torch.randn(2, 3, 5, requires_grad=True), torch.randn(2, 5, 4)
    hidden = rectified_linear(filters, cells, torch.randn(6, 12), torch.randn(6))
    hidden.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once only"):
        hidden.sum().backward()


def test_a_batch_norm_that_sees_one_entry_gives_its_shift() -> None:
    config = ConvEConfig(
        3, 2, embedding_dim=4, embedding_height=1, embedding_width=4, kernel_height=2, kernel_width=4, output_channels=2
    )
    model = ConvE(config).train()
    with torch.no_grad():
        model.feature_norm.bias.fill_(0.5)
    hidden = ConvE.hidden(model, torch.zeros(1, 1, 2, 4))
    assert torch.isfinite(hidden).all()


@pytest.mark.parametrize("training", [True, False])
def test_what_torch_compile_gets_is_the_same_function(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = torch.randn(5, 1, 8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    torch.manual_seed(4)
    folded = model_of(torch.float64).train(training).hidden(picture)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.manual_seed(4)
    plain = model_of(torch.float64).train(training).hidden(picture)
    torch.testing.assert_close(folded, plain, rtol=1e-9, atol=1e-9)
