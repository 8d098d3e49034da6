"""Large batches are trained for as many steps, and looked at as often, whatever their size."""

from __future__ import annotations

import pytest
from benchmarks.parts.multimodal import LARGE, WIDE, large_settings


@pytest.mark.parametrize("system", LARGE)
def test_four_times_the_batch_has_four_times_the_epochs_between_looks_and_in_all(system: str) -> None:
    one, four = large_settings(system, WIDE), large_settings(system, 4 * WIDE)
    for part, name in (("training", "epochs"), ("training", "patience_epochs"), ("evaluation", "eval_every")):
        assert four[part][name] == 4 * one[part][name] == 4 * LARGE[system][part][name]
    assert [s["acceleration"] for s in (one, four)] == [
        {"batch_size": size, "lr_scaling": "sqrt"} for size in (16384, 65536)
    ]
    same = {"epochs": 0, "patience_epochs": 0}
    assert one["training"] | same == four["training"] | same
