"""The 1-N loss: golden values, equality with the dense loss for any block, and what it needs of memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.kernels.full_softmax import BLOCK_BYTES
from graphmill.systems.conve.one_to_n import entities_per_block, one_to_n_loss, smoothed_targets
from tests.systems.conve.reference import one_to_n_loss_reference


def problem(batch: int, entities: int, dim: int, positives: int, seed: int, dtype: torch.dtype, *, bias: bool = True):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, dim, generator=generator, dtype=dtype).requires_grad_()
    e = torch.randn(entities, dim, generator=generator, dtype=dtype).requires_grad_()
    b = torch.randn(entities, generator=generator, dtype=dtype).requires_grad_() if bias else None
    flat = torch.randperm(batch * entities, generator=generator)[:positives]
    return x, e, b, flat // entities, flat % entities


def gradients(loss: torch.Tensor, tensors) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, [t for t in tensors if t is not None]))


class TestLabelSmoothing:
    def test_is_pykeens(self) -> None:
        assert smoothed_targets(0.1, 5) == pytest.approx((0.9, 0.025), abs=1e-12)

    def test_none_means_ones_and_zeros(self) -> None:
        assert smoothed_targets(0.0, 5) == (1.0, 0.0)


class TestTheValue:
    @pytest.mark.parametrize("block", [1, 2, 3])
    def test_golden_three_logits_with_uniform_smoothing(self, block) -> None:
        x = torch.ones(1, 1, dtype=torch.float64)
        e = torch.tensor([[2.0], [-1.0], [0.5]], dtype=torch.float64)
        one, zero = 0.9 + 0.1 / 3, 0.1 / 3
        where = torch.tensor([0])
        loss = one_to_n_loss(x, e, None, where, where, one=one, zero=zero, block=block)
        assert float(loss) / 3 == pytest.approx(0.5214222276, abs=1e-10)
        dense = one_to_n_loss_reference(x, e, None, where, where, one=one, zero=zero)
        assert float(dense) / 3 == pytest.approx(0.5214222276, abs=1e-10)

    def test_scores_of_any_size_give_a_finite_loss(self) -> None:
        e = torch.tensor([[500.0], [-500.0]])
        loss = one_to_n_loss(
            torch.ones(1, 1), e, None, torch.tensor([0]), torch.tensor([1]), one=1.0, zero=0.0, block=1
        )
        assert float(loss) == 1000.0


class TestEqualityWithTheDenseLoss:
    @given(
        batch=st.integers(1, 5),
        entities=st.integers(1, 17),
        dim=st.integers(1, 6),
        share=st.floats(0, 1),
        block=st.integers(1, 20),
        bias=st.booleans(),
        seed=st.integers(0, 999),
    )
    @settings(max_examples=60, deadline=None)
    def test_value_and_gradients_in_float64(self, batch, entities, dim, share, block, bias, seed) -> None:
        tensors = problem(batch, entities, dim, int(share * batch * entities), seed, torch.float64, bias=bias)
        x, e, b, rows, columns = tensors
        one, zero = smoothed_targets(0.1, entities)
        fast = one_to_n_loss(x, e, b, rows, columns, one=one, zero=zero, block=block)
        dense = one_to_n_loss_reference(x, e, b, rows, columns, one=one, zero=zero)
        torch.testing.assert_close(fast, dense, rtol=1e-10, atol=1e-10)
        for mine, theirs in zip(gradients(fast * 0.3, (x, e, b)), gradients(dense * 0.3, (x, e, b)), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)

    @pytest.mark.parametrize("block", [64, 100, 1000])
    def test_fp32_is_within_rounding(self, block) -> None:
        x, e, b, rows, columns = problem(32, 700, 24, 200, 1, torch.float32)
        fast = one_to_n_loss(x, e, b, rows, columns, one=0.9, zero=1e-4, block=block)
        dense = one_to_n_loss_reference(x, e, b, rows, columns, one=0.9, zero=1e-4)
        assert fast.item() == pytest.approx(dense.item(), rel=1e-6)
        for mine, theirs in zip(gradients(fast, (x, e, b)), gradients(dense, (x, e, b)), strict=True):
            assert float((mine - theirs).norm() / theirs.norm()) < 1e-5

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_low_precision_products_keep_fp32_sums_and_gradients(self, dtype) -> None:
        x, e, b, rows, columns = problem(32, 700, 24, 200, 2, torch.float32)
        low = one_to_n_loss(x, e, b, rows, columns, one=0.9, zero=1e-4, block=100, dtype=dtype)
        dense = one_to_n_loss_reference(x, e, b, rows, columns, one=0.9, zero=1e-4)
        assert low.dtype == torch.float32
        assert low.item() == pytest.approx(dense.item(), rel=2e-3)
        for mine, theirs in zip(gradients(low, (x, e, b)), gradients(dense, (x, e, b)), strict=True):
            assert mine.dtype == torch.float32
            assert float((mine - theirs).norm() / theirs.norm()) < 2e-2

    @pytest.mark.parametrize("brought", [1.0 / 224, 0.3])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_an_expected_gradient_changes_nothing_whether_it_comes_or_not(self, dtype, brought) -> None:
        x, e, b, rows, columns = problem(32, 7, 4, 20, 4, dtype)
        found = []
        for expected in (1.0, 1.0 / 224):
            loss = one_to_n_loss(x, e, b, rows, columns, one=0.9, zero=0.01, block=3, expected=expected)
            found.append([loss.detach(), *gradients(loss * brought, (x, e, b))])
        for plain, own in zip(*found, strict=True):
            torch.testing.assert_close(own, plain, rtol=1e-5 if dtype == torch.float32 else 1e-12, atol=1e-12)

    def test_only_the_gradients_asked_for_are_made(self) -> None:
        x, e, b, rows, columns = problem(3, 7, 4, 5, 3, torch.float64)
        loss = one_to_n_loss(x.detach(), e, b.detach(), rows, columns, one=1.0, zero=0.0, block=3)
        dense = one_to_n_loss_reference(x.detach(), e, b.detach(), rows, columns, one=1.0, zero=0.0)
        torch.testing.assert_close(gradients(loss, (e,))[0], gradients(dense, (e,))[0])
        assert not one_to_n_loss(x.detach(), e.detach(), None, rows, columns, one=1.0, zero=0.0, block=3).requires_grad

    def test_a_second_backward_is_refused_because_the_first_scaled_in_place(self) -> None:
        x, e, b, rows, columns = problem(3, 7, 4, 5, 3, torch.float64)
        loss = one_to_n_loss(x, e, b, rows, columns, one=1.0, zero=0.0, block=3)
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="once only"):
            loss.backward()


class TestTheSizeRule:
    def test_what_fits_is_one_block_and_what_does_not_is_cut(self) -> None:
        assert entities_per_block(256, 14_541) == 14_541
        assert entities_per_block(512, 14_541) == 7_271  # two, of even size
        assert BLOCK_BYTES // 1024 - 300 < entities_per_block(256, 10**6) <= BLOCK_BYTES // 1024

    def test_more_parts_mean_smaller_blocks_for_the_rungs_of_the_shrink_ladder(self) -> None:
        assert entities_per_block(256, 10_000, parts=4) == 2500
        assert entities_per_block(256, 3, parts=100) == 1
