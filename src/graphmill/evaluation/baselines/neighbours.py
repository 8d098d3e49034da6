"""Link prediction by nearest neighbours over typed edges: nodes with similar neighbourhoods have similar links.

A candidate's score has three terms: the similarity of the query's known targets to the candidate, the similarity of the
candidate's known sources to the query, and log(1 + the candidate's training links). Similarities are dot products of
rows: sparse normalised neighbourhoods (``knn``), or spectral vectors, which are a truncated SVD of them (``spectral``).
There is no training. Validation links choose a few settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.evaluation.ranking.queries import LinkQueries, RelationQueries
from graphmill.evaluation.ranking.ranks import count_rivals
from graphmill.graph.spectral import SHRINKAGE, neighbourhoods_of_links, scaled, shortened
from graphmill.graph.typed_paths import Side, blocks, similar

if TYPE_CHECKING:
    import torch

    from graphmill.evaluation.baselines.train_edges import TrainEdges
    from graphmill.graph.training_links import TrainingLinks

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
ScoredRows: TypeAlias = sp.csr_matrix | Float32
"""A row per node in global order, sparse [nodes, columns] or dense [nodes, width]. The similarity is the dot product of
two rows."""
RowsOf: TypeAlias = Mapping[float, Callable[[], ScoredRows]]
"""For each shrinkage to choose from a function that makes the rows."""

SHRINKAGES = (1.0, 3.0)
"""Values added to a neighbourhood's squared length. Larger values reduce the similarities of nodes with few neighbours."""
SIDES: tuple[Side, ...] = ("both", "source", "target")
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 0.0)
"""Weights of the similarities relative to log(1 + degree). 0: similarity alone, with ties broken by degree."""
DAMPINGS = (0.0, 0.5)
"""Exponents p: a sum over n known nodes is divided by (1 + n)^p."""
TUNING_QUERIES = 500
"""Number of validation queries per relation for the choice of settings."""
_TIE_BREAK = 1e-6


@dataclass(frozen=True)
class NeighbourSetting:
    """The settings that validation chooses, of :data:`SHRINKAGES`, :data:`SIDES`, :data:`STRENGTHS` and :data:`DAMPINGS`.

    ``side``: "source" sums over the candidate's known sources, "target" over the query's known targets. ``weighted``: a
    neighbour counts by its edge's weight.
    """

    side: Side = "both"
    strength: float = 10.0
    shrinkage: float = 3.0
    damping: float = 0.0
    weighted: bool = False

    @property
    def weight(self) -> float:
        """What the similarities are multiplied by."""
        return self.strength or 1.0

    @property
    def popularity(self) -> float:
        """What log(1 + degree) is multiplied by."""
        return 1.0 if self.strength else _TIE_BREAK

    def to_dict(self) -> dict[str, Any]:
        """The setting as plain values."""
        return asdict(self)


def setting_row(setting: NeighbourSetting) -> np.ndarray:
    """float32 [5]: number of the side, strength, shrinkage, damping, and 1 if weighted."""
    numbers = setting.strength, setting.shrinkage, setting.damping, setting.weighted
    return np.array([SIDES.index(setting.side), *numbers], np.float32)


def setting_of(row: np.ndarray) -> NeighbourSetting:
    """The inverse of :func:`setting_row`. Raises :class:`InputError` for numbers that are none."""
    side, strength, shrinkage, damping, weighted = numbers = [float(f"{value:.6g}") for value in row.tolist()]
    if side not in range(len(SIDES)) or weighted not in (0, 1) or not all(0 <= number <= 1e6 for number in numbers):
        raise InputError(f"the setting {row.tolist()} of its neighbours is none")
    return NeighbourSetting(SIDES[int(side)], strength, shrinkage, damping, bool(weighted))


@dataclass(eq=False)
class NeighbourScorer:
    """Scores by similarities of ``rows`` with a ``setting``, from the training links ``edges`` of a graph (in both
    directions) or of an export. Memory is bounded by :data:`BLOCK_BYTES` and a few blocks of scores.

    ``poll`` is called before each block, and may raise to end the work.
    """

    edges: TrainEdges | TrainingLinks
    rows: ScoredRows
    setting: NeighbourSetting
    poll: Callable[[], None] = lambda: None
    _sums: tuple[int, Float32] | None = field(default=None, init=False)

    def score_targets(self, relation: int, heads: Int64) -> torch.Tensor:
        """Local head numbers int64 (B) → float32 (B × candidates)."""
        import torch

        parts = self.parts(relation, heads, self.setting.side)
        return torch.from_numpy(self.mixed(relation, heads, parts, self.setting))

    def mixed(self, relation: int, heads: Int64, parts: Mapping[Side, Float32], setting: NeighbourSetting) -> Float32:
        """float32 (B × candidates): the sum of the damped parts of the setting's side and the degree term."""
        total = self.similarities(relation, heads, parts, setting)
        total *= np.float32(setting.weight)
        incoming = np.asarray(self.edges.matrix(relation).sum(0)).ravel()
        total += np.float32(setting.popularity) * np.log1p(incoming).astype(np.float32)
        return total

    def similarities(
        self, relation: int, heads: Int64, parts: Mapping[Side, Float32], setting: NeighbourSetting
    ) -> Float32:
        """float32 (B × candidates): the sum of the damped parts of the setting's side."""
        links = self.edges.matrix(relation)
        total = np.zeros((len(heads), links.shape[1]), np.float32)
        scales: dict[Side, Any] = {
            "source": np.asarray(links.sum(0)).ravel(),
            "target": np.diff(links.indptr)[heads][:, None],
        }
        for side, known in scales.items():
            if setting.side in (side, "both"):
                total += parts[side] * ((1.0 + known) ** -setting.damping).astype(np.float32)
        return total

    def parts(self, relation: int, heads: Int64, side: Side = "both") -> dict[Side, Float32]:
        """float32 (B × candidates) by "source", by "target", or by both, as ``side`` says."""
        self.poll()
        source, target = self.edges.ends(relation)
        links = self.edges.matrix(relation)
        mine: Any = self.rows[source.offset : source.offset + source.count]
        theirs: Any = self.rows[target.offset : target.offset + target.count]
        parts: dict[Side, Float32] = {}
        if not isinstance(self.rows, np.ndarray):
            parts = similar(mine, theirs, links, heads, side)
        elif side in ("both", "source"):
            if self._sums is None or self._sums[0] != relation:
                self._sums = relation, np.ascontiguousarray(links.T @ mine)
            parts["source"] = mine[heads] @ self._sums[1].T
        if isinstance(self.rows, np.ndarray) and side in ("both", "target"):
            parts["target"] = (links[heads] @ theirs) @ theirs.T
        return parts


def choose(
    edges: TrainEdges | TrainingLinks,
    queries: LinkQueries,
    rows_of: RowsOf,
    *,
    macro: bool = True,
    poll: Callable[[], None] = lambda: None,
) -> tuple[NeighbourSetting, float]:
    """The setting with the best MRR on ``queries`` (validation links), and that MRR.

    ``macro``: mean over relations, else over queries.
    ``poll``: as in :class:`NeighbourScorer`. Every head is scored once per shrinkage.
    """
    best, highest = NeighbourSetting(shrinkage=next(iter(rows_of))), -1.0
    for shrinkage, make in rows_of.items():
        poll()
        scorer = NeighbourScorer(edges, make(), best, poll)
        settings = [NeighbourSetting(s, k, shrinkage, d) for s, k, d in product(SIDES, STRENGTHS, DAMPINGS)]
        means, counts = [], []
        for relation in queries.relations:
            if len(relation.heads):
                means.append(_mean_reciprocal_ranks(scorer, relation, settings))
                counts.append(len(relation.heads))
        if not means:
            break
        mrr = np.average(np.array(means), axis=0, weights=None if macro else counts)
        if mrr.max() > highest:
            highest, best = float(mrr.max()), settings[int(mrr.argmax())]
    return best, highest


def of_length(vectors: Float32, shrinkage: float) -> Float32:
    """Spectral vectors [nodes, width], whose lengths are those by a shrinkage of 3; with less they are :func:`shortened`."""
    return vectors if shrinkage >= SHRINKAGE else shortened(vectors)


def rows_of_links(links: TrainingLinks, setting: NeighbourSetting, vectors: Float32 | None = None) -> ScoredRows:
    """The rows that are compared with a setting: spectral ``vectors`` float32 [nodes, width], else neighbourhoods."""
    if vectors is not None:
        return of_length(vectors, setting.shrinkage)
    return scaled(neighbourhoods_of_links(links).by(setting.weighted).matrix, setting.shrinkage)


def _mean_reciprocal_ranks(
    scorer: NeighbourScorer, relation: RelationQueries, settings: list[NeighbourSetting]
) -> NDArray[np.float64]:
    """float64 (settings): the MRR of each setting. The similarities are computed once for all of them."""
    import torch

    total = np.zeros(len(settings))
    for part in blocks(len(relation.heads), relation.candidates):
        queried = relation.heads[part]
        heads, place = np.unique(queried, return_inverse=True)
        parts = {side: block[place] for side, block in scorer.parts(relation.relation, heads).items()}
        for number, setting in enumerate(settings):
            scores = torch.from_numpy(scorer.mixed(relation.relation, queried, parts, setting))
            above, tied = count_rivals(scores, relation, part)
            total[number] += float((1.0 / (1 + above + tied / 2)).sum())
    return total / len(relation.heads)
