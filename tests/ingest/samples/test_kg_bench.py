"""The synthetic triples: their files, their rules, the marked noise, and that no test triple has its mirror in train."""

from pathlib import Path

import numpy as np
import pytest

from graphmill.ingest.samples import write_sample
from graphmill.ingest.triples import read_triples
from tests.samples.kg_bench import NOISE, PREDICATES, KgBench

TARGETS, ASSOCIATED, TREATS, INTERACTS = 0, 1, 2, 3


@pytest.fixture(scope="module")
def tiny() -> KgBench:
    return KgBench("tiny")


class TestTheFiles:
    def test_the_committed_sample_is_what_the_generator_writes(self, tiny: KgBench, repository: Path) -> None:
        folder = repository / "data/01_raw/triples"
        files = dict(tiny.files())
        assert {f.name: f.read_bytes() for f in folder.iterdir()} == files
        assert sum(len(content) for content in files.values()) < 120_000

    def test_the_reader_takes_them_without_a_reject(self, tiny: KgBench, tmp_path: Path) -> None:
        write_sample("kg_bench", tmp_path)
        result = read_triples(tmp_path)
        assert np.bincount(result.edges["split"].to_numpy()).tolist() == [len(part) for part in tiny.splits]
        assert result.rejects.num_rows == 0
        assert result.counts["duplicate_rows"] == 0
        assert result.nodes["id"].to_pylist() == tiny.ids()

    def test_another_seed_gives_other_triples(self, tiny: KgBench) -> None:
        assert dict(KgBench("tiny", seed=1).files())["train.txt"] != dict(tiny.files())["train.txt"]


class TestTheRules:
    def test_every_true_treats_follows_from_a_shared_gene(self, tiny: KgBench) -> None:
        true = np.concatenate([tiny.splits[0][~tiny.noise], tiny.splits[1], tiny.splits[2]])
        targets = {(h, t) for h, r, t in true.tolist() if r == TARGETS}
        genes = {t for _, t in targets}
        associated = {(h, t) for h, r, t in true.tolist() if r == ASSOCIATED}
        treats = [(h, t) for h, r, t in true.tolist() if r == TREATS]
        assert len(treats) > 100
        assert all(any((x, y) in targets and (y, z) in associated for y in genes) for x, z in treats)

    def test_noise_is_the_share_promised_and_is_never_a_true_triple(self, tiny: KgBench) -> None:
        assert tiny.noise.mean() == pytest.approx(NOISE, abs=0.005)
        true = {tuple(t) for t in np.concatenate([tiny.splits[0][~tiny.noise], *tiny.splits[1:]]).tolist()}
        assert not true & {tuple(t) for t in tiny.splits[0][tiny.noise].tolist()}

    def test_no_held_out_triple_of_a_symmetric_relation_has_its_mirror_in_train(self, tiny: KgBench) -> None:
        train = {tuple(t) for t in tiny.splits[0][~tiny.noise].tolist()}
        for part in tiny.splits[1:]:
            assert not any((t, r, h) in train for h, r, t in part.tolist() if r == INTERACTS)

    def test_every_relation_is_asked_for(self, tiny: KgBench) -> None:
        assert set(tiny.splits[2][:, 1].tolist()) == set(range(len(PREDICATES)))
