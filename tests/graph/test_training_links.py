"""What an export keeps of the training links: the same links when read, of either form, and few bytes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors.numpy import save

from graphmill.errors import InputError
from graphmill.graph.training_links import TrainingLinks
from graphmill.systems.factor.model import FactorTables
from graphmill.systems.factor.system import scoring_arrays as factor_arrays
from graphmill.systems.hgt import decoder as exported
from graphmill.systems.hgt.decoder import LinkDecoder

NODES, RELATIONS, TRIPLES = 14_541, 237, 272_115
"""FB15k-237's training triples."""


def some(seed: int = 0) -> TrainingLinks:
    rng = np.random.default_rng(seed)
    shapes = [(5, 4), (4, 5), (3, 3), (1, 4)]
    matrices = [sp.csr_matrix(rng.random(shape) < 0.4, dtype=np.int64) for shape in shapes]
    matrices[2] = sp.csr_matrix(shapes[2], dtype=np.int64)  # a relation without a link
    return TrainingLinks(matrices, [(0, 5), (5, 0), (9, 9), (3, 5)])


def same(one: TrainingLinks, other: TrainingLinks) -> None:
    assert one.offsets == other.offsets
    for left, right in zip(one.outgoing, other.outgoing, strict=True):
        assert left.shape == right.shape
        assert (left.indptr == right.indptr).all()
        assert (left.indices == right.indices).all()
        assert (right.data == 1).all()


def test_links_are_read_as_they_were_written() -> None:
    same(some(), TrainingLinks.read(some().arrays(), 12))
    assert all(array.flags.c_contiguous for array in some().arrays().values())


def test_weights_are_read_as_they_were_written_and_must_be_numbers_of_0_or_more() -> None:
    links = some()
    links.weights[1] = np.arange(links.outgoing[1].nnz, dtype=np.float32)
    arrays = links.arrays(weighted=True)
    result = TrainingLinks.read(arrays, 12)
    same(links, result)
    for matrix, given, read in zip(links.outgoing, links.weights, result.weights, strict=True):
        np.testing.assert_array_equal(read, np.ones(matrix.nnz) if given is None else given)
    for wrong in (np.nan, -1.0, np.inf):
        arrays["edges.weights"][2] = wrong
        with pytest.raises(InputError, match="weight of its links"):
            TrainingLinks.read(arrays, 12)
    with pytest.raises(InputError):
        TrainingLinks.read(arrays | {"edges.weights": arrays["edges.weights"][1:]}, 12)


def test_no_relations_are_read_as_none() -> None:
    assert TrainingLinks.read(TrainingLinks([], []).arrays(), 12).outgoing == []


def many_relations() -> TrainingLinks:
    """Made-up triples of FB15k-237's size, nodes and relations drawn with a skew, and the reverse of each relation."""
    rng = np.random.default_rng(0)
    often = [1 / np.arange(1, count + 1) ** 0.6 for count in (RELATIONS, NODES, NODES)]
    number, head, tail = (rng.choice(len(weight), 2 * TRIPLES, p=weight / weight.sum()) for weight in often)
    keys = rng.permutation(np.unique((number * NODES + head) * NODES + tail))[:TRIPLES]
    number, head, tail = keys // NODES**2, keys // NODES % NODES, keys % NODES
    forth, back = [], []
    for relation in range(RELATIONS):
        here = number == relation
        ends = head[here], tail[here]
        matrix = sp.csr_matrix((np.ones(len(ends[0]), np.int64), ends), (NODES, NODES))
        forth.append(matrix)
        back.append(matrix.T.tocsr())
    return TrainingLinks(forth + back, [(0, 0)] * (2 * RELATIONS))


@pytest.mark.parametrize("width", [64, 128, 512])
def test_an_export_of_many_relations_has_at_most_three_times_the_bytes_of_its_vectors(width: int) -> None:
    links, relations = many_relations(), 2 * RELATIONS
    kinds = {
        "HGT": exported.scoring_arrays(LinkDecoder(relations, width), links),
        "ComplEx": factor_arrays(FactorTables(NODES, relations, width, "complex"), links),
    }
    vectors = 4 * NODES * width
    assert {
        kind: len(save(arrays)) / vectors for kind, arrays in kinds.items() if len(save(arrays)) > 3 * vectors
    } == {}


def test_degrees_of_hgt_follow_from_the_links() -> None:
    links = some()
    degrees = [np.log1p(np.asarray(matrix.sum(0)).ravel()).astype(np.float32) for matrix in links.outgoing]
    arrays = exported.scoring_arrays(LinkDecoder(4, 8), links)
    scorer = exported.DecoderExport(arrays, np.zeros((12, 8), np.float32))
    for result, degree in zip(scorer.log_degree, degrees, strict=True):
        assert torch.equal(result, torch.from_numpy(degree))
