"""The synthetic biomedical graph: its format, its planted structure, and that the structure can be learned."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from graphmill.errors import SettingsError
from graphmill.ingest.samples import PLACES, write_sample
from tests.samples.biomed import BACKGROUND, HEADER, LATENT, Biomed, Relation


@pytest.fixture(scope="module")
def tiny() -> bytes:
    return b"".join(Biomed("tiny").csv_chunks())


@pytest.fixture(scope="module")
def rows(tiny: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(tiny.decode())))


@pytest.fixture(scope="module")
def pairs() -> tuple[Biomed, list]:
    sample = Biomed("tiny")
    return sample, list(sample.pairs())


def auc(positives: np.ndarray, negatives: np.ndarray) -> float:
    """The probability that a positive outranks a negative, ties counting half."""
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, "left") + np.searchsorted(ordered, positives, "right")
    return float(below.mean() / 2 / len(ordered))


class TestTheFile:
    def test_the_committed_sample_is_what_the_generator_writes(self, tiny: bytes, repository: Path) -> None:
        assert (repository / "data/01_raw/kg.csv").read_bytes() == tiny

    def test_it_is_small(self, tiny: bytes, rows: list) -> None:
        assert len(tiny) <= 1.4e6
        assert len(rows) == 12_000

    def test_the_columns_are_primekgs(self, tiny: bytes) -> None:
        assert tiny.startswith(HEADER.encode())
        assert HEADER.count(",") == 11

    def test_another_seed_gives_another_graph(self, tiny: bytes) -> None:
        assert b"".join(Biomed("tiny", seed=1).csv_chunks()) != tiny

    def test_every_pair_is_written_in_both_directions_with_one_display_name(self, rows: list) -> None:
        forwards = {(r["relation"], r["display_relation"], r["x_index"], r["y_index"]) for r in rows}
        assert len(forwards) == len(rows)
        assert {(relation, output, y, x) for relation, output, x, y in forwards} == forwards

    def test_indices_have_no_gaps_and_a_node_reads_the_same_everywhere(self, rows: list) -> None:
        nodes: dict[int, set] = {}
        for r in rows:
            for side in "xy":
                text = tuple(r[f"{side}_{c}"] for c in ("id", "type", "name", "source"))
                nodes.setdefault(int(r[f"{side}_index"]), set()).add(text)
        assert sorted(nodes) == list(range(2000))
        assert all(len(texts) == 1 for texts in nodes.values())

    def test_ids_collide_across_types_but_never_within(self, rows: list) -> None:
        by_type: dict[str, dict[str, str]] = {}
        for r in rows:
            assert by_type.setdefault(r["x_type"], {}).setdefault(r["x_id"], r["x_index"]) == r["x_index"]
        assert len(by_type["disease"].keys() & by_type["gene/protein"].keys()) > 50

    def test_it_has_the_awkward_parts_of_primekg(self, rows: list) -> None:
        names = {r["x_name"] for r in rows}
        assert any("," in name for name in names)
        assert any('"' in name for name in names)
        assert any(not name.isascii() for name in names)
        assert "off-label use" in {r["relation"] for r in rows}
        assert "MONDO_grouped" in {r["x_source"] for r in rows}


def intensity(sample: Biomed, relation: Relation, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """The planted score λ of pairs, float64; ``heads`` and ``tails`` are node numbers within their types."""
    x, y = sample.planted[relation.head], sample.planted[relation.tail]
    weights, z_x, z_y = sample.weights[relation.name], x.memberships(), y.memberships()
    total = float(weights @ ((x.popularity @ z_x) * (y.popularity @ z_y)))
    same = ((z_x[heads] * z_y[tails]) * weights).sum(axis=1)
    background = BACKGROUND / (x.popularity.sum() * y.popularity.sum())
    return x.popularity[heads] * y.popularity[tails] * ((1 - BACKGROUND) * same / total + background)


class TestThePlantedStructure:
    def test_it_has_64_dimensions(self, pairs: tuple) -> None:
        z = pairs[0].planted["gene/protein"].memberships()
        assert np.linalg.matrix_rank(z) == LATENT == 64

    def test_the_planted_scores_rank_the_pairs(self, pairs: tuple) -> None:
        """The oracle that the docstring states."""
        sample, graph = pairs
        rng = np.random.default_rng(0)
        by_truth, by_popularity = [], []
        for r, heads, tails in graph:
            x, y = (rng.integers(0, sample.counts[t], 5 * len(heads)) for t in (r.head, r.tail))
            by_truth.append(auc(intensity(sample, r, heads, tails), intensity(sample, r, x, y)))
            p, q = sample.planted[r.head].popularity, sample.planted[r.tail].popularity
            by_popularity.append(auc(p[heads] * q[tails], p[x] * q[y]))
        assert np.mean(by_truth) == pytest.approx(0.976, abs=0.006)
        assert np.mean(by_popularity) == pytest.approx(0.67, abs=0.02)

    def test_held_out_pairs_can_be_predicted_from_the_others(self, pairs: tuple) -> None:
        """A spectral embedding, which knows neither types nor relations, clears what a link model should reach."""
        sample, graph = pairs
        x = np.concatenate([heads + sample.first_index[r.head] for r, heads, _ in graph])
        y = np.concatenate([tails + sample.first_index[r.tail] for r, _, tails in graph])
        rng = np.random.default_rng(0)
        order = rng.permutation(len(x))
        held_out, known = order[: len(x) // 10], order[len(x) // 10 :]
        adjacency = np.zeros((2000, 2000), dtype=np.float32)
        adjacency[x[known], y[known]] = adjacency[y[known], x[known]] = 1
        degree = adjacency.sum(1)
        scale = 1 / np.sqrt(degree + degree.mean())
        smooth = adjacency * scale[:, None] * scale
        basis = rng.standard_normal((2000, 96), dtype=np.float32)
        for _ in range(12):  # subspace iteration on (A + I) / 2: the largest eigenvalues, not the most negative
            basis, _ = np.linalg.qr((smooth @ basis + basis) / 2)
        values, rotation = np.linalg.eigh(basis.T @ smooth @ basis)
        vectors = (basis @ rotation[:, -64:]) * np.sqrt(np.maximum(values[-64:], 0)) / scale[:, None]
        same_types = rng.permutation(y[held_out])
        result = auc(
            (vectors[x[held_out]] * vectors[y[held_out]]).sum(1), (vectors[x[held_out]] * vectors[same_types]).sum(1)
        )
        assert result > 0.85

    def test_many_diseases_share_genes(self, pairs: tuple) -> None:
        sample, graph = pairs
        heads, tails = next((h, t) for r, h, t in graph if r.name == "disease_protein")
        member = np.zeros((sample.counts["disease"], sample.counts["gene/protein"]))
        member[heads, tails] = 1
        shared = member @ member.T
        union = member.sum(1)[:, None] + member.sum(1) - shared
        similar = np.triu(shared / np.maximum(union, 1) > 0.1, 1)
        assert similar.sum() > 400

    def test_degrees_are_skewed(self, pairs: tuple) -> None:
        sample, graph = pairs
        degree = np.bincount(
            np.concatenate([n + sample.first_index[t] for r, h, u in graph for n, t in ((h, r.head), (u, r.tail))])
        )
        assert degree.min() >= 1
        assert degree.max() >= 5 * np.median(degree)


class TestWriteSample:
    def test_a_directory_gets_kg_csv(self, tmp_path: Path, tiny: bytes) -> None:
        assert write_sample("biomed", tmp_path / "new").read_bytes() == tiny
        assert [p.name for p in (tmp_path / "new").iterdir()] == ["kg.csv"]

    def test_a_csv_path_is_the_file(self, tmp_path: Path) -> None:
        assert write_sample("biomed", tmp_path / "mine.csv") == tmp_path / "mine.csv"

    def test_a_chain_that_does_not_exist_is_refused_with_those_that_do(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="choose one of biomed, "):
            write_sample("chemistry", tmp_path)

    @pytest.mark.parametrize("chain", ["biomed", "kg_bench", "music", "watch"])
    def test_the_shipped_sample_is_the_committed_one(self, tmp_path: Path, repository: Path, chain: str) -> None:
        committed = repository / "data/01_raw" / PLACES[chain]
        written = write_sample(chain, tmp_path / PLACES[chain])
        files = {p.name: p.read_bytes() for p in (committed.iterdir() if committed.is_dir() else [committed])}
        assert {p.name: p.read_bytes() for p in (written.iterdir() if written.is_dir() else [written])} == files
