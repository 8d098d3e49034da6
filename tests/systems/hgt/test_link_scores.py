"""Scores of links against the textbook form in float64."""

from __future__ import annotations

import pytest
import torch

from graphmill.systems.hgt.decoder import link_scores

NODES, RELATIONS, LINKS, TAILS = 60, 4, 300, 3


def links(seed: int = 0, count: int = LINKS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return (
        torch.randint(NODES, (count,), generator=draw),
        torch.randint(RELATIONS, (count,), generator=draw),
        torch.randint(NODES, (count, TAILS), generator=draw),
    )


def tables(width: int, kind: torch.dtype) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    nodes = torch.randn(NODES, width, generator=draw, dtype=torch.float64)
    relation = torch.randn(RELATIONS, width, generator=draw, dtype=torch.float64)
    return [nodes.to(kind).requires_grad_(), relation.to(kind).requires_grad_()]


def textbook(nodes, relation, heads, relations, tails):
    """SimplE: each half of a head with the other half of a tail."""
    half = nodes.shape[1] // 2
    left, right = nodes[heads] * relation[relations], nodes[tails]
    result = torch.einsum("bc,btc->bt", left[:, :half], right[..., half:])
    return result + torch.einsum("bc,btc->bt", left[:, half:], right[..., :half])


def scored(function, given, chosen):
    out = function(*given, *chosen)
    slopes = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
    (out * slopes).sum().backward()
    return [out.detach(), *(t.grad for t in given if t is not None)]


@pytest.mark.parametrize("width", [2, 6, 64])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_values_and_gradients_are_the_textbooks(width, kind):
    result = scored(link_scores, tables(width, kind), links())
    wanted = scored(textbook, tables(width, torch.float64), links())
    for a, b in zip(result, wanted, strict=True):
        assert a.dtype == kind
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_rows_of_half_precision_are_multiplied_in_fp32(kind):
    """As under autocast: the relations' vectors are weights in fp32."""
    nodes, relation = tables(64, kind)
    given = [nodes, relation.detach().float().requires_grad_()]
    result = scored(link_scores, given, links())
    wanted = scored(textbook, [t.detach().float().requires_grad_() for t in given], links())
    assert [t.dtype for t in result] == [torch.float32, kind, torch.float32]
    for a, b in zip(result, wanted, strict=True):
        close = {"rtol": 1e-4, "atol": 1e-4} if a.dtype == torch.float32 else {"rtol": 0.02, "atol": 0.3}
        torch.testing.assert_close(a.float(), b, **close)


def test_thousands_of_links_to_one_tail_add_up_in_fp32():
    """In bf16 a sum of equal addends ends at 256 of them."""
    nodes = torch.ones(3, 4, dtype=torch.bfloat16, requires_grad=True)
    heads, tails = torch.zeros(4000, dtype=torch.int64), torch.full((4000, 1), 2)
    link_scores(nodes, torch.ones(1, 4), heads, heads, tails).sum().backward()
    torch.testing.assert_close(nodes.grad.float()[[0, 2]], torch.full((2, 4), 4000.0), rtol=0.01, atol=0.0)


def test_the_gradient_is_added_to_one_that_is_there():
    nodes, relation = tables(64, torch.float32)
    once = scored(link_scores, (nodes, relation), links())[1].clone()
    room = nodes.grad
    scored(link_scores, (nodes, relation), links())
    assert nodes.grad is room
    torch.testing.assert_close(room, 2 * once, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("trained", [(True, False), (False, True)])
def test_only_what_is_trained_gets_a_gradient(trained):
    given = [t.detach().requires_grad_(flag) for t, flag in zip(tables(64, torch.float32), trained, strict=True)]
    link_scores(*given, *links()).sum().backward()
    wanted = tables(64, torch.float64)
    textbook(*wanted, *links()).sum().backward()
    for flag, table, other in zip(trained, given, wanted, strict=True):
        assert (table.grad is not None) == flag
        if flag:
            torch.testing.assert_close(table.grad.double(), other.grad, rtol=1e-4, atol=1e-4)


def test_through_something_else_than_a_parameter():
    nodes, relation = tables(64, torch.float32)
    link_scores(nodes * 2, relation, *links()).sum().backward()
    wanted = tables(64, torch.float64)
    textbook(wanted[0] * 2, wanted[1], *links()).sum().backward()
    torch.testing.assert_close(nodes.grad.double(), wanted[0].grad, rtol=1e-4, atol=1e-4)


def test_no_links():
    out = link_scores(*tables(64, torch.float32), *links(count=0))
    assert out.shape == (0, TAILS)
    out.sum().backward()


def test_a_table_that_is_used_twice_gets_both_gradients():
    nodes, relation = tables(64, torch.float32)
    wanted = tables(64, torch.float64)
    for function, (table, vectors) in ((link_scores, (nodes, relation)), (textbook, wanted)):
        (function(table, vectors, *links()).sum() + function(table, vectors, *links(5)).sum() + table.sum()).backward()
    torch.testing.assert_close(nodes.grad.double(), wanted[0].grad, rtol=1e-4, atol=1e-3)


def test_compiled_by_torch_it_is_the_plain_form():
    given = tables(64, torch.float32)
    result = torch.compile(link_scores, fullgraph=True, backend="eager")(*given, *links())
    torch.testing.assert_close(result, textbook(*given, *links()), rtol=1e-4, atol=1e-4)
