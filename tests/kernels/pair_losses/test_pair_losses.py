"""BPR, sampled softmax and norms of pairs: the compiled pass is the tensor operations, in values and gradients."""

from __future__ import annotations

import pytest
import torch

from graphmill.kernels import pair_losses as module
from graphmill.kernels.pair_losses import pair_losses


@pytest.fixture(params=["compiled", "torch"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(module, "has_numba", lambda: False)


def problem(pairs: int, negatives: int, width: int, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    users = torch.randn(pairs, width, dtype=torch.float64, generator=generator) * scale
    items = torch.randn(pairs, 1 + negatives, width, dtype=torch.float64, generator=generator)
    return users.requires_grad_(), items.requires_grad_()


@pytest.mark.parametrize(("pairs", "negatives"), [(1, 1), (7, 1), (300, 4)])
def test_values_and_gradients_are_the_formulas(pairs: int, negatives: int) -> None:
    users, items = problem(pairs, negatives, 33)
    loss, norm = pair_losses(users, items)
    gap = (users[:, None] * items[:, :1]).sum(2) - (users[:, None] * items[:, 1:]).sum(2)
    wanted = torch.logaddexp(torch.zeros_like(gap), -gap).mean(1).sum()  # softplus of torch is linear from 20 on
    squares = users.square().sum() + items[:, 0].square().sum() + items[:, 1:].square().sum() / negatives
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(norm, squares / 2)
    mine = torch.autograd.grad(3.0 * loss + 0.25 * norm, (users, items))
    theirs = torch.autograd.grad(3.0 * wanted + 0.25 * squares / 2, (users, items))
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize(("pairs", "negatives"), [(1, 1), (7, 1), (300, 4)])
def test_the_sampled_softmax_is_a_cross_entropy(pairs: int, negatives: int) -> None:
    users, items = problem(pairs, negatives, 33)
    loss, norm = pair_losses(users, items, together=True)
    scores = (users[:, None] * items).sum(2)
    wanted = torch.nn.functional.cross_entropy(scores, torch.zeros(pairs, dtype=torch.int64), reduction="sum")
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(norm, pair_losses(users, items)[1])
    mine = torch.autograd.grad(loss, (users, items), retain_graph=True)
    torch.testing.assert_close(mine, torch.autograd.grad(wanted, (users, items)), rtol=1e-10, atol=1e-8)
    if negatives == 1:
        bpr = pair_losses(users, items)[0]
        torch.testing.assert_close(loss, bpr)
        torch.testing.assert_close(mine, torch.autograd.grad(bpr, (users, items)), rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize("together", [False, True])
def test_one_of_the_two_sums_alone(together: bool) -> None:
    users, items = problem(5, 2, 3)
    for place in (0, 1):
        assert torch.autograd.gradcheck(
            lambda u, i, place=place: pair_losses(u, i, together=together)[place], (users, items)
        )


@pytest.mark.parametrize("together", [False, True])
def test_extreme_scores_stay_finite(together: bool) -> None:
    users, items = problem(6, 2, 4, scale=1e4)
    loss, _ = pair_losses(users.float(), items.float(), together=together)
    loss.backward()
    assert torch.isfinite(loss)
    assert users.grad is not None
    assert torch.isfinite(users.grad).all()
    assert users.grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_fp32(dtype: torch.dtype) -> None:
    users, items = problem(20, 1, 8)
    low = pair_losses(users.to(dtype), items.to(dtype))
    for mine, exact in zip(low, pair_losses(users, items), strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine.double(), exact, rtol=0.02, atol=0.02)


def tables(users: int, items: int, width: int, pairs: int, negatives: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    user_table = torch.randn(users, width, dtype=torch.float64, generator=generator).requires_grad_()
    item_table = torch.randn(items, width, dtype=torch.float64, generator=generator).requires_grad_()
    user_rows = torch.randint(users, (pairs,), generator=generator)
    item_rows = torch.randint(items, (pairs, 1 + negatives), generator=generator)
    return user_table, item_table, user_rows, item_rows


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("width", "negatives"), [(5, 1), (33, 3), (64, 64)])
def test_rows_of_tables_are_those_rows_side_by_side(width: int, negatives: int, together: bool) -> None:
    users, items, user_rows, item_rows = tables(9, 11, width, 40, negatives)  # most rows more than once
    result = pair_losses(users, items, user_rows, item_rows, together=together)
    wanted = pair_losses(users[user_rows], items[item_rows], together=together)
    torch.testing.assert_close(result, wanted)
    mine = torch.autograd.grad(2.0 * result[0] + 0.5 * result[1], (users, items))
    theirs = torch.autograd.grad(2.0 * wanted[0] + 0.5 * wanted[1], (users, items))
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-9)


def test_gradients_are_added_to_those_that_are_there() -> None:
    users, items, user_rows, item_rows = tables(9, 11, 8, 40, 2)
    sum(pair_losses(users, items, user_rows, item_rows)).backward()  # type: ignore[union-attr]
    assert users.grad is not None
    assert items.grad is not None
    once = users.grad.clone(), items.grad.clone()
    sum(pair_losses(users, items, user_rows, item_rows)).backward()  # type: ignore[union-attr]
    torch.testing.assert_close((users.grad, items.grad), (2 * once[0], 2 * once[1]))


def test_a_leaf_that_is_both_tables_gets_both_gradients_in_place() -> None:
    nodes, _, user_rows, item_rows = tables(9, 9, 20, 30, 2)
    for _ in range(2):
        sum(pair_losses(nodes, nodes, user_rows, item_rows)).backward()  # type: ignore[union-attr]
    other = nodes.detach().clone().requires_grad_()
    (wanted,) = torch.autograd.grad(sum(pair_losses(other[user_rows], other[item_rows])), (other,))
    torch.testing.assert_close(nodes.grad, 2 * wanted)


def test_tables_that_do_not_lie_in_one_piece() -> None:
    users, items, user_rows, item_rows = tables(9, 11, 8, 30, 2)
    result = torch.autograd.grad(sum(pair_losses(users[:, ::2], items[:, ::2], user_rows, item_rows)), (users, items))
    apart = users[:, ::2].contiguous(), items[:, ::2].contiguous()
    wanted = torch.autograd.grad(sum(pair_losses(*apart, user_rows, item_rows)), (users, items))
    torch.testing.assert_close(result, wanted)


@pytest.mark.parametrize("wanted", ["users", "items"])
def test_one_table_alone_is_trained(wanted: str) -> None:
    users, items, user_rows, item_rows = tables(9, 11, 20, 40, 2)
    both = torch.autograd.grad(sum(pair_losses(users, items, user_rows, item_rows)), (users, items))
    (users if wanted == "items" else items).requires_grad_(False)
    alone = {"users": users, "items": items}[wanted]
    (result,) = torch.autograd.grad(sum(pair_losses(users, items, user_rows, item_rows)), (alone,))
    torch.testing.assert_close(result, both[wanted == "items"])


@pytest.mark.parametrize("together", [False, True])
def test_one_table_of_both(together: bool) -> None:
    nodes, _, user_rows, item_rows = tables(9, 9, 6, 12, 3)
    assert torch.autograd.gradcheck(lambda x: pair_losses(x, x, user_rows, item_rows, together=together), (nodes,))


def test_the_same_bits_at_any_number_of_threads() -> None:
    users, items, user_rows, item_rows = tables(300, 400, 70, 5000, 8)
    result, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            loss, norm = pair_losses(users.float(), items.float(), user_rows, item_rows, together=True)
            result.append((loss, norm, *torch.autograd.grad(loss + 0.1 * norm, (users, items))))
    finally:
        torch.set_num_threads(threads)
    if module.has_numba():  # torch's own sums may be divided up
        for other in result[1:]:
            assert all(torch.equal(a, b) for a, b in zip(result[0], other, strict=True))


def test_rows_that_do_not_fit_are_refused() -> None:
    users, items, user_rows, item_rows = tables(9, 11, 8, 4, 2)
    with pytest.raises(ValueError, match="go together"):
        pair_losses(users, items, user_rows)
    with pytest.raises(ValueError, match=r"\[9, 8\] and \[11, 7\] are not"):
        pair_losses(users, items[:, :7], user_rows, item_rows)
    with pytest.raises(ValueError, match="at least one negative"):
        pair_losses(users, items, user_rows, item_rows[:, :1])
    with pytest.raises(ValueError, match="int64"):
        pair_losses(users, items, user_rows.int(), item_rows)
    with pytest.raises(IndexError):
        pair_losses(users, items, user_rows, item_rows + 11)
    with pytest.raises(IndexError):
        pair_losses(users, items, user_rows - 9, item_rows)
