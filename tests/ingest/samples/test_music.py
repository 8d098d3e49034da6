"""The music sample: the same bytes, and a taste that the oracle, the features and the facts show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphmill.errors import InputError
from graphmill.evaluation.ranking.items import rank_items
from graphmill.evaluation.ranking.recommendation import KnownItems
from graphmill.ingest.interactions import with_knowledge
from graphmill.ingest.kgat_files import KgatFilesSettings, read_kgat
from graphmill.ingest.mmrec import MmrecSettings, read_mmrec
from graphmill.ingest.node_features import NodeFeatureSettings, with_features
from graphmill.ingest.samples import write_sample
from tests.samples.music import Music


@pytest.fixture(scope="module")
def sample() -> Music:
    return Music("tiny")


def rows(sample: Music, split: int) -> KnownItems:
    mine = sample.split == split
    order = np.lexsort((sample.item[mine], sample.user[mine]))
    counts = np.bincount(sample.user[mine], minlength=sample.users)
    return KnownItems(np.concatenate(([0], np.cumsum(counts))), sample.item[mine][order])


def recall(sample: Music, scores: np.ndarray) -> float:
    held_out = rows(sample, 2)
    table = torch.from_numpy(scores.astype(np.float32))
    lists = rank_items(lambda u: table[torch.from_numpy(u)], sample.items, rows(sample, 0), held_out, 20)
    return lists.metrics(["recall"], [20])["recall@20"]


def test_the_same_seed_gives_the_same_bytes_and_the_committed_sample_is_tiny(tmp_path: Path, repository: Path) -> None:
    write_sample("music", tmp_path / "a")
    committed = repository / "data" / "01_raw" / "music"
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert names == sorted(p.name for p in committed.iterdir())
    assert all((tmp_path / "a" / n).read_bytes() == (committed / n).read_bytes() for n in names)


def test_the_planted_taste_ranks_far_better_than_popularity(sample: Music) -> None:
    oracle = recall(sample, sample.affinity(np.arange(sample.users)))
    counts = np.bincount(rows(sample, 0).items, minlength=sample.items)
    popular = recall(sample, np.broadcast_to(counts, (sample.users, sample.items)))
    assert oracle > 0.6
    assert oracle > 1.8 * popular


def test_the_features_show_the_taste_of_tracks_that_nobody_has_heard(sample: Music) -> None:
    """A ridge from features of half of the tracks to the listeners' affinities says those of the other half."""
    features = np.concatenate([*sample.features.values()], axis=1)
    affinity = (sample.affinity(np.arange(sample.users)) - np.log(sample.popularity)).T
    seen = np.arange(sample.items) % 2 == 0
    gram = features[seen].T @ features[seen] + 0.1 * np.eye(features.shape[1])
    guess = features[~seen] @ np.linalg.solve(gram, features[seen].T @ affinity[seen])
    assert np.corrcoef(guess.ravel(), affinity[~seen].ravel())[0, 1] > 0.8
    shuffled = features[np.random.default_rng(0).permutation(sample.items)]
    blind = shuffled[~seen] @ np.linalg.solve(gram, shuffled[seen].T @ affinity[seen])
    assert abs(np.corrcoef(blind.ravel(), affinity[~seen].ravel())[0, 1]) < 0.3


def test_the_facts_are_complete_for_rare_tracks_and_missing_for_half_of_the_popular_ones(sample: Music) -> None:
    with_genre = np.zeros(sample.items, bool)
    of_items = sample.facts[(sample.facts[:, 1] == 0) & (sample.facts[:, 0] < sample.items)]
    with_genre[of_items[:, 0]] = True
    popular = sample.popularity >= np.median(sample.popularity)
    assert with_genre[~popular].all()
    assert 0.35 < with_genre[popular].mean() < 0.65


def test_popularity_is_skewed_and_every_listener_can_be_trained_and_tested_on(sample: Music) -> None:
    counts = np.sort(np.bincount(sample.item, minlength=sample.items))[::-1]
    assert counts[: sample.items // 10].sum() > 0.25 * counts.sum()
    for split, fewest in ((0, 3), (1, 1), (2, 1)):
        assert np.bincount(sample.user[sample.split == split], minlength=sample.users).min() >= fewest
    pairs = sample.user * sample.items + sample.item
    assert len(np.unique(pairs)) == len(pairs)


def test_the_readers_take_it(tmp_path: Path) -> None:
    folder = write_sample("music", tmp_path / "music")
    result = with_knowledge(read_mmrec(folder), read_kgat(folder, KgatFilesSettings(part="knowledge")))
    assert set(result.features) == {"item::audio", "item::text"}
    assert result.edges["relation"].unique().to_pylist() == ["interacted", "genre", "artist", "label"]
    assert result.nodes["name"].to_pylist()[400:402] == ["Glass_Song_0", "River_Song_0"]
    assert result.rejects.num_rows == 0


def test_features_by_id_are_those_by_row(tmp_path: Path) -> None:
    folder = write_sample("music", tmp_path / "music")
    by_row = read_mmrec(folder)
    result = read_mmrec(folder, MmrecSettings(features=["none"]))
    for name in ("audio", "text"):
        settings = NodeFeatureSettings(node_type="item", name=name)
        result = with_features(result, folder / f"{name}_feat.npy", settings)
    assert result.features == by_row.features
    with pytest.raises(InputError, match="named 'text'"):
        with_features(result, folder / "text_feat.npy", settings)
