"""The systems of spectral vectors and kNN: nodes with similar typed neighbourhoods have similar links."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
from torch import Tensor

from graphmill.arrays import array_of
from graphmill.evaluation.baselines.neighbours import (
    SHRINKAGES,
    TUNING_QUERIES,
    NeighbourScorer,
    RowsOf,
    ScoredRows,
    choose,
    of_length,
    rows_of_links,
    setting_of,
    setting_row,
)
from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.evaluation.ranking.queries import LinkQueries
from graphmill.graph.later_nodes import LaterNodes, grown_links, neighbourhoods_of
from graphmill.graph.spectral import Neighbourhoods, SpectralVectors, neighbourhoods, scaled
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.graph.typed_paths import BLOCK_BYTES
from graphmill.systems.base_system import blocks_of
from graphmill.systems.closed_form import ClosedFormSystem
from graphmill.systems.link_export import ExportedScorer
from graphmill.systems.neighbours.settings import KnnSettings, SpectralSettings
from graphmill.training.contract import EmbeddingBlock, OldRows, StepSizes
from graphmill.training.planning import Part, Setup, ranking_part
from graphmill.training.solved import SolvedArrays


class NeighboursSystem(ClosedFormSystem):
    """A candidate's score is the similarity of the query's known targets to it, plus that of its known sources to the
    query, plus log(1 + its training links). Validation links choose the array ``setting`` float32 [5]
    (:func:`~graphmill.evaluation.baselines.neighbours.setting_row`).
    """

    def __init__(self, graph: TypedGraph, settings: SpectralSettings | KnnSettings, batching: str) -> None:
        super().__init__(graph, settings)
        self.edges = TrainEdges(graph)

    def build(self, step_sizes: StepSizes) -> SolvedArrays:
        """The model before it is computed: zeros of the final shapes, since a blend holds it among its weights."""
        model, nodes = super().build(step_sizes), self.graph.num_nodes
        width = self.settings.model.embedding_dim if "left" in self.ARRAYS else 0
        shapes = {"left": (nodes, width), "values": (width,), "setting": (5,)}
        model.put({name: np.zeros(shapes[name], np.float32) for name in self.ARRAYS})
        return model

    @cached_property
    def entries(self) -> Neighbourhoods:
        """The neighbourhoods of the graph's nodes."""
        return neighbourhoods(self.graph)

    @abstractmethod
    def rows_to_choose(self, entries: Neighbourhoods) -> tuple[dict[str, np.ndarray], RowsOf]:
        """Arrays of the model, and the rows to choose from."""

    @abstractmethod
    def rows(self, model: SolvedArrays) -> ScoredRows:
        """The rows that are compared, by the chosen setting."""

    def fitted(
        self,
        poll: Callable[[], None],
        queries: LinkQueries | None = None,
        *,
        macro: bool = True,
    ) -> Mapping[str, np.ndarray]:
        """The arrays, with the setting that ranks ``queries`` best, by default validation links. ``macro``: as in
        :func:`~graphmill.evaluation.baselines.neighbours.choose`."""
        queries = queries or self.ranking_queries("valid", TUNING_QUERIES)
        best: dict[str, np.ndarray] = {}
        highest = 0.0
        for weighted in (False,) if self.entries.strengths is None else (False, True):
            poll()
            arrays, rows_of = self.rows_to_choose(self.entries.by(weighted))
            setting, mrr = choose(self.edges, queries, rows_of, macro=macro, poll=poll)
            if not best or mrr > highest:
                best, highest = {**arrays, "setting": setting_row(replace(setting, weighted=weighted))}, mrr
        return best

    def scorer(self, model: SolvedArrays) -> NeighbourScorer:
        """Scores of the graph's relations, and of the inverses that the graph does not have."""
        return NeighbourScorer(self.edges, self.rows(model), setting_of(model.array("setting")))


class KnnSystem(NeighboursSystem):
    """Compares sparse neighbourhoods, of which the graph is the only model: new nodes and edges count at once."""

    ARRAYS = ("setting",)

    def rows_to_choose(self, entries: Neighbourhoods) -> tuple[dict[str, np.ndarray], RowsOf]:
        """Neighbourhoods with each shrinkage."""
        given = self.settings.model.shrinkage
        return {}, {each: partial(scaled, entries.matrix, each) for each in ((given,) if given else SHRINKAGES)}

    def rows(self, model: SolvedArrays) -> ScoredRows:
        """float32 [nodes, columns], sparse."""
        setting = setting_of(model.array("setting"))
        return scaled(self.entries.by(setting.weighted).matrix, setting.shrinkage)


class SpectralSystem(NeighboursSystem):
    """Compares vectors by a truncated SVD of the neighbourhoods: ``left`` float32 [nodes, d] and ``values`` float32 [d], as
    :class:`~graphmill.graph.spectral.SpectralVectors` has them."""

    ARRAYS = ("left", "values", "setting")
    rotation_keeps_scores = True
    """Similarities are dot products."""

    def rows_to_choose(self, entries: Neighbourhoods) -> tuple[dict[str, np.ndarray], RowsOf]:
        """The vectors, with both kinds of lengths."""
        seed = self.settings.training.seed & 0xFFFF_FFFF
        spectral = SpectralVectors.of(entries, self.settings.model.embedding_dim, seed)
        vectors = spectral.all()
        arrays = {"left": spectral.left.astype(np.float32), "values": spectral.values.astype(np.float32)}
        return arrays, {shrinkage: partial(of_length, vectors, shrinkage) for shrinkage in SHRINKAGES}

    def carried_over(self, arrays: Mapping[str, np.ndarray], old: OldRows) -> tuple[dict[str, np.ndarray], int]:
        """The basis of the nodes that both graphs have; every node's vector is the sum over its neighbours of today."""
        new = old.of_all < 0
        left = np.where(new[:, None], np.float32(0), arrays["left"][old.of_all])
        return {**arrays, "left": left}, int(new.sum())

    def spectral(self, model: SolvedArrays) -> SpectralVectors:
        """The vectors, and the basis for those of new nodes."""
        entries = self.entries.by(setting_of(model.array("setting")).weighted)
        return SpectralVectors(entries, model.array("left"), model.array("values"))

    def rows(self, model: SolvedArrays) -> ScoredRows:
        """float32 [nodes, d]."""
        return of_length(self.spectral(model).all(), setting_of(model.array("setting")).shrinkage)

    def embeddings(self, model: SolvedArrays) -> Iterator[EmbeddingBlock]:
        """The vectors, shorter than 1, and 0 for a node without a neighbour."""
        return blocks_of(self.spectral(model).all())

    def health(self, model: SolvedArrays) -> dict[str, float]:
        """Participation ratio, mean cosine and the smallest within-type rank of the vectors."""
        return self.health_of(self.spectral(model).all())

    def scoring(self, model: SolvedArrays) -> dict[str, np.ndarray]:
        """The arrays for scores besides the exported vectors: ``setting`` and the training links."""
        return {"setting": model.array("setting"), **TrainingLinks.of_graph(self.graph).arrays()}

    def embed_later(self, model: SolvedArrays, later: LaterNodes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """:meth:`graphmill.usage.embed.EmbedsLater.embed_later`: the new nodes' neighbourhoods, projected."""
        spectral = self.spectral(model)
        vectors = spectral.projected(neighbourhoods_of(later, self.graph, spectral.entries))
        links = grown_links(later, TrainingLinks.of_graph(self.graph), self.graph)
        return vectors, {"setting": model.array("setting"), **links.arrays()}


NEIGHBOURHOODS = "neighbourhoods"
"""The name of a part."""


def memory_parts(graph: TypedGraph, settings: SpectralSettings | KnnSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    edges, largest = sum(r.edges for r in graph.relations), max(t.count for t in graph.node_types)
    held_out = max((float(np.count_nonzero(graph.edges(r.index).split)) for r in graph.relations), default=0.0)
    parts = [Part("edges from both ends", "always", edges, 48), ranking_part(held_out, largest)]
    if isinstance(settings, KnnSettings):
        # Sparse neighbourhoods, and blocks of their products.
        compared = 50 * edges + 3 * min(BLOCK_BYTES, 12_000 * largest)
        return [*parts, Part(NEIGHBOURHOODS, "evaluation", compared, 1)]
    # One column for each neighbour in each relation. While the table is made, the two sides of the randomized SVD take
    # as much again as table and columns.
    columns = float(sum(np.count_nonzero(np.diff(graph.edges(r.index).indptr)) for r in graph.relations))
    # Vectors with weights, or confidences, are computed beside those without.
    nodes = 4 + bool({"weight.npy", "confidence.npy"} & graph.manifest["files"].keys())
    width, remedy = settings.model.embedding_dim, "reduce model.embedding_dim"
    return [
        *parts,
        Part("spectral vectors", "always", (2 * columns + nodes * graph.num_nodes) * width, remedy=remedy),
        Part(
            "sums of a relation's neighbours", "evaluation", (graph.num_nodes + 2 * largest) * 2 * width, remedy=remedy
        ),
    ]


class SpectralExport(ExportedScorer):
    """Similarities of the vectors float32 [nodes, d], and the popularity of the target. ``arrays``: ``setting`` float32 [5]
    and the training links."""

    def __init__(self, arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> None:
        super().__init__(vectors, TrainingLinks.read(arrays, len(vectors)))
        setting = setting_of(array_of(arrays, "setting", (5,), "f"))
        self.scorer = NeighbourScorer(self.links, rows_of_links(self.links, setting, self.vectors.numpy()), setting)

    def scores(self, relation: int, heads: Tensor, targets: slice) -> Tensor:
        """:meth:`ExportedScorer.scores`."""
        return self.scorer.score_targets(relation, heads.numpy() - self.links.offsets[relation][0])


scorer_of = SpectralExport
