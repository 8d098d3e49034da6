"""A typed graph in memory with what the evaluation reads of one, and random ones."""

from dataclasses import dataclass

import numpy as np
import torch

from graphmill.evaluation.ranking.queries import LinkQueries


@dataclass(frozen=True)
class FakeType:
    name: str
    count: int
    offset: int


@dataclass(frozen=True)
class FakeRelation:
    index: int
    source: str
    name: str
    target: str


@dataclass(frozen=True)
class FakeEdges:
    src: np.ndarray
    dst: np.ndarray
    split: np.ndarray
    pair: np.ndarray

    def relative_weights(self) -> None:
        """There are none."""


class FakeGraph:
    """``relations``: (source, name, target, rows of (src, dst, split))."""

    def __init__(self, types: dict[str, int], relations: list[tuple[str, str, str, np.ndarray]]) -> None:
        offsets = np.concatenate([[0], np.cumsum(list(types.values()))]).tolist()
        self.node_types = tuple(
            FakeType(name, count, offset) for (name, count), offset in zip(types.items(), offsets, strict=False)
        )
        self.num_nodes = sum(types.values())
        self.relations = tuple(FakeRelation(i, s, name, t) for i, (s, name, t, _) in enumerate(relations))
        self._edges = [
            FakeEdges(*rows[:, :2].T.astype(np.int32), rows[:, 2].astype(np.uint8), np.zeros(len(rows), np.int32))
            for *_, rows in relations
        ]

    def edges(self, relation: FakeRelation | int) -> FakeEdges:
        return self._edges[relation if isinstance(relation, int) else relation.index]

    def node_type(self, name: str) -> FakeType:
        return next(each for each in self.node_types if each.name == name)

    def training_edges(self, relation: FakeRelation, *, everywhere: bool = False) -> tuple[np.ndarray, np.ndarray]:
        offset = {t.name: t.offset * everywhere for t in self.node_types}
        edges = self.edges(relation)
        train = edges.split == 0
        return edges.src[train] + offset[relation.source], edges.dst[train] + offset[relation.target]


def random_graph(seed: int, *, duplicates: bool = True) -> FakeGraph:
    """Two types, three relations (one within a type, one of them tiny), popular targets, each pair in one split."""
    rng = np.random.default_rng(seed)
    types = {"drug": 30, "gene": 50}

    def draw(source: str, target: str, count: int) -> np.ndarray:
        popularity = rng.dirichlet(np.full(types[target], 0.3))
        src = rng.integers(0, types[source], count)
        pairs = np.unique(np.stack([src, rng.choice(types[target], count, p=popularity)], axis=1), axis=0)
        rows = np.column_stack([pairs, rng.choice([0, 1, 2], len(pairs), p=[0.6, 0.1, 0.3])])
        rows[0, 2] = 2
        if duplicates:
            rows = np.concatenate([rows, rows[rng.integers(0, len(rows), 5)]])
        return rng.permutation(rows)

    return FakeGraph(
        types,
        [
            ("drug", "binds", "gene", draw("drug", "gene", 250)),
            ("gene", "binds", "drug", draw("gene", "drug", 250)),
            ("gene", "interacts with", "gene", draw("gene", "gene", 12)),
        ],
    )


class ChanceScorer:
    """Random scores of each head, the same in every block."""

    def __init__(self, queries: LinkQueries, seed: int = 0) -> None:
        self.candidates = {each.relation: each.candidates for each in queries.relations}
        self.seed = seed

    def score_targets(self, relation: int, heads: np.ndarray) -> torch.Tensor:
        rows = [np.random.default_rng([self.seed, relation, head]) for head in heads.tolist()]
        return torch.from_numpy(np.stack([each.random(self.candidates[relation]) for each in rows]))
