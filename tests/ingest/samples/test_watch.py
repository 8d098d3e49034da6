"""The watch sample: committed as generated, with the time dependence that it promises."""

import numpy as np

from graphmill.ingest.interactions_csv import read_sequence
from graphmill.ingest.samples import write_sample
from tests.samples.watch import Watch


def test_the_committed_file_is_what_the_generator_writes(tmp_path, repository):
    written = write_sample("watch", tmp_path)
    assert written.read_bytes() == (repository / "data" / "01_raw" / "watch" / "views.tsv").read_bytes()


def test_reading_the_shuffled_file_gives_the_histories_back(repository):
    sample = Watch("tiny")
    result = read_sequence(repository / "data" / "01_raw" / "watch" / "views.tsv")
    ids = np.array(result.nodes["id"].to_pylist())
    edges = result.edges.sort_by([("head", "ascending"), ("position", "ascending")])
    heads, tails = ids[edges["head"].to_numpy()].astype(int) - 1, ids[edges["tail"].to_numpy()].astype(int) - 1
    order = np.lexsort((np.arange(len(heads)), heads))
    assert np.array_equal(heads[order], sample.user)
    assert np.array_equal(tails[order], sample.item)
    assert result.counts["same_time"] > 0


def test_the_gap_before_a_view_decides_what_follows_it():
    sample = Watch("tiny")
    inner = sample.user[2:] == sample.user[:-2]
    gap = (sample.timestamp[1:-1] - sample.timestamp[:-2])[inner]
    here, following = sample.item[1:-1][inner], sample.item[2:][inner]
    output = np.where(gap <= 90, sample.next_short[here], sample.next_long[here])
    # With the time: 1 - noise and a little by chance. Without it: the better of two equally likely followers.
    assert np.mean(output == following) > 0.88
    assert np.mean(sample.next_short[here] == following) < 0.55
