"""Counts of scores above and equal to a target: by hand, with ties, infinities and NaN, with and without compiled code."""

import pytest
import torch

from graphmill.kernels import rank_counts as module
from graphmill.kernels.rank_counts import rank_counts


@pytest.fixture(params=["compiled", "torch"], autouse=True)
def backend(request, monkeypatch) -> None:
    if request.param == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(module, "has_numba", lambda: False)


def test_a_case_worked_by_hand() -> None:
    scores = torch.tensor([[1.0, 2.0, 2.0, 3.0], [0.0, float("nan"), float("inf"), -1.0]])
    above, tied, bad = rank_counts(scores, torch.tensor([2.0, 0.0]))
    assert above.tolist() == [1, 1]
    assert tied.tolist() == [2, 1]
    assert bad.tolist() == [0, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (1, 1), (70, 1003)])
def test_counts_are_those_of_comparisons(shape, dtype) -> None:
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(0)).mul(4).round().to(dtype)
    target = torch.zeros(shape[0], dtype=dtype)
    above, tied, bad = rank_counts(scores, target)
    assert torch.equal(above, (scores > 0).sum(1))
    assert torch.equal(tied, (scores == 0).sum(1))
    assert not bad.any()
