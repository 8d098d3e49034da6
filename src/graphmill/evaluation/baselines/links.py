"""The baseline by degree, and a scorer of plain vectors, both with the Scorer protocol."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.evaluation.ranking.queries import LinkQueries

if TYPE_CHECKING:
    import torch

    from graphmill.graph.typed_graph import TypedGraph


class DegreeScorer:
    """Scores by popularity: a candidate's score is its number of training links in the relation, for every head.

    It is the null model of "Implicit degree bias in the link prediction task" (arXiv 2405.14985), for ranking.
    """

    def __init__(self, queries: LinkQueries) -> None:
        self._degree = {relation.relation: relation.train_degree for relation in queries.relations}

    def score_targets(self, relation: int, heads: NDArray[np.int64]) -> "torch.Tensor":
        """Float64 (B × candidates); all rows are equal (a view)."""
        import torch

        degree = torch.from_numpy(self._degree[relation].astype(np.float64))
        return degree.expand(len(heads), -1)


class SimilarityScorer:
    """Scores by vectors alone: the cosine of head and candidate, the same for every relation.

    It is for exported embeddings without their decoder. It ranks weakly, but shows whether vectors belong to their ids.
    """

    def __init__(self, vectors: NDArray[np.float32], graph: "TypedGraph") -> None:
        """``vectors``: float32 (nodes × d), with rows in the graph's global order."""
        if len(vectors) != graph.num_nodes:
            raise InputError(
                f"the embedding has {len(vectors)} rows and the graph {graph.num_nodes} nodes: "
                "bring the rows into the graph's order (Embeddings.rows_of) and leave none out"
            )
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        self._vectors = np.ascontiguousarray(vectors / np.where(norms > 0, norms, 1.0), dtype=np.float32)
        types = {node_type.name: node_type for node_type in graph.node_types}
        self._ends = {relation.index: (types[relation.source], types[relation.target]) for relation in graph.relations}

    def score_targets(self, relation: int, heads: NDArray[np.int64]) -> "torch.Tensor":
        """Float32 (B × candidates)."""
        import torch

        source, target = self._ends[relation]
        left = torch.from_numpy(self._vectors[heads + source.offset])
        right = torch.from_numpy(self._vectors[target.offset : target.offset + target.count])
        return left @ right.T
