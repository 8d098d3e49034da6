"""The ablation of compiled kernels names places that are there."""

from importlib import import_module

import pytest
from benchmarks.kernels import FAMILIES


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_family_can_be_left_out(family: str) -> None:
    places = [(module, name) for module, names in FAMILIES[family].off.items() for name in names]
    assert [place for place in places if not hasattr(import_module(place[0]), place[1])] == []
