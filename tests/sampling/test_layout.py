"""How sequences stand side by side: on an accelerator, where a bucket's launches cost most, all of one step in one."""

from __future__ import annotations

import numpy as np

from graphmill.sampling.sequences import LAUNCHED_BUCKET_OVERHEAD, lay_out


def test_launches_that_cost_more_than_padding_put_all_sequences_into_one_bucket() -> None:
    lengths = np.random.default_rng(0).integers(1, 51, 128)
    many, one = lay_out(lengths), lay_out(lengths, LAUNCHED_BUCKET_OVERHEAD)
    assert len(many.buckets) > 1
    assert one.buckets.tolist() == [[0, 128, lengths.max()]]
    for layout in (many, one):
        assert len(set(layout.place.tolist())) == lengths.sum(), "every interaction has a row of its own"
        ends = np.cumsum(lengths) - 1
        np.testing.assert_array_equal(layout.place[ends], layout.last)
