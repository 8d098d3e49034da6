"""Layouts of sequences in buckets, scaled times, negatives."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.sampling.ranges import ranges
from graphmill.systems.sequences.data import scaled_times, smallest_gaps
from graphmill.systems.sequences.layout import LAUNCHED_BUCKET_OVERHEAD, lay_out


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=150))
def test_every_interaction_has_a_row_of_its_own_and_sequences_are_consecutive(lengths):
    lengths = np.array(lengths)
    layout = lay_out(lengths)
    assert len(np.unique(layout.place)) == lengths.sum()
    assert layout.place.max() < layout.rows
    ends = np.cumsum(lengths)
    for first, end, last in zip(ends - lengths, ends, layout.last, strict=True):
        assert np.array_equal(layout.place[first:end], layout.place[first] + np.arange(end - first))
        assert layout.place[end - 1] == last
    starts, counts, longest = layout.buckets.T
    assert (counts * longest).sum() == layout.rows
    assert np.array_equal(starts, np.cumsum(counts * longest) - counts * longest)
    # A sequence stays within its slot of one bucket.
    bucket = np.searchsorted(starts, layout.place, side="right") - 1
    slot = (layout.place - starts[bucket]) // longest[bucket]
    owner = np.repeat(np.arange(len(lengths)), lengths)
    assert len({(int(b), int(s)) for b, s in zip(bucket, slot, strict=True)}) == len(np.unique(owner))


def test_buckets_save_most_of_the_padding_of_skewed_lengths():
    lengths = np.random.default_rng(0).geometric(0.02, 128).clip(1, 200)
    dense = len(lengths) * lengths.max()
    assert lay_out(lengths).rows < 0.55 * dense
    assert lay_out(lengths).rows < 1.35 * lengths.sum()


def test_equal_lengths_are_one_bucket():
    assert lay_out(np.full(10, 7)).buckets.tolist() == [[0, 10, 7]]


def test_ranges():
    assert ranges(np.array([3, 9, 5]), np.array([5, 9, 8])).tolist() == [3, 4, 5, 6, 7]


def test_times_are_counted_in_the_users_smallest_gap():
    # TiSASRec's worked example, and a user all of whose interactions share one second.
    times = np.array([100, 160, 160, 400, 7, 7])
    indptr = np.array([0, 4, 6])
    gaps = smallest_gaps(times, indptr, indptr[1:])
    assert gaps.tolist() == [60, 1]
    users = np.array([0, 0, 0, 0, 1, 1])
    assert scaled_times(times, times[indptr[users]], gaps[users]).tolist() == [1, 2, 2, 6, 1, 1]


def test_the_smallest_gap_is_taken_from_training_alone():
    assert smallest_gaps(np.array([0, 50, 100, 101]), np.array([0, 4]), np.array([3])).tolist() == [50]


def test_launches_that_cost_more_than_padding_put_all_sequences_into_one_bucket() -> None:
    lengths = np.random.default_rng(0).integers(1, 51, 128)
    many, one = lay_out(lengths), lay_out(lengths, LAUNCHED_BUCKET_OVERHEAD)
    assert len(many.buckets) > 1
    assert one.buckets.tolist() == [[0, 128, lengths.max()]]
    for layout in (many, one):
        assert len(set(layout.place.tolist())) == lengths.sum(), "every interaction has a row of its own"
        ends = np.cumsum(lengths) - 1
        np.testing.assert_array_equal(layout.place[ends], layout.last)
