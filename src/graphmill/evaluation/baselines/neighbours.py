"""Nearest neighbours over typed edges: who has neighbours like mine is linked to what I am linked to.

A candidate's score is the similarity of the query's known targets to it, plus that of its known sources to the query, and
log(1 + its training links). Similarities are products of rows: sparse normalised neighbourhoods (``knn``), or the
spectral vectors that a truncated SVD leaves of them (``spectral``). Nothing is trained; a few settings are chosen on
validation links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.evaluation.ranking.queries import LinkQueries, RelationQueries
from graphmill.evaluation.ranking.ranks import count_rivals

if TYPE_CHECKING:
    import torch

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
Rows = sp.csr_matrix | Float32
"""Of every node in global order, sparse [nodes, columns] or dense [nodes, width]: similarity is the product of two rows."""

SHRINKAGES = (0.0, 3.0)
"""Added to a neighbourhood's squared length; more of it makes nodes with few neighbours like nothing very much."""
SIDES: tuple[Side, ...] = ("both", "source", "target")
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 0.0)
"""Weight of the similarities beside log(1 + degree); 0: similarity alone, degree breaks its ties."""
TUNING_QUERIES = 200
"""Validation queries of a relation that settings are chosen on."""
BLOCK_BYTES = 64 * 2**20
"""Memory for one sparse product."""
_BYTES_PER_ENTRY = 12
_TIE_BREAK = 1e-6

Side = Literal["both", "source", "target"]


@dataclass(frozen=True)
class NeighbourSetting:
    """What is chosen on validation: see :data:`SHRINKAGES`, :data:`SIDES` and :data:`STRENGTHS`.

    ``side``: "source" sums over the candidate's known sources, "target" over the query's known targets.
    """

    side: Side = "both"
    strength: float = 10.0
    shrinkage: float = 3.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class NeighbourScorer:
    """Scores by ``rows`` in the form of ``setting``; memory is bounded by :data:`BLOCK_BYTES` and a few blocks of scores."""

    def __init__(
        self,
        edges: TrainEdges,
        rows: Rows,
        setting: NeighbourSetting,
        poll: Callable[[], None] = lambda: None,
    ) -> None:
        self.edges, self.rows, self.setting, self.poll = edges, rows, setting, poll
        self._sums: tuple[int, Float32] | None = None

    def score_targets(self, relation: int, heads: Int64) -> torch.Tensor:
        """Local head numbers int64 (B) → float32 (B × candidates)."""
        import torch

        parts = self.parts(relation, heads, self.setting.side)
        return torch.from_numpy(mixed(parts, log_degree(self.edges, relation), self.setting))

    def parts(self, relation: int, heads: Int64, side: Side = "both") -> dict[Side, Float32]:
        """float32 (B × candidates) for each of "source" and "target" that ``side`` asks for."""
        self.poll()
        source, target = self.edges.ends(relation)
        links = self.edges.matrix(relation)
        own = self.rows[source.offset : source.offset + source.count]
        theirs = self.rows[target.offset : target.offset + target.count]
        found: dict[Side, Float32] = {}
        if sp.issparse(self.rows):
            turned = {"source": own.T.tocsr(), "target": theirs.T.tocsr()}
            for name in ("source", "target") if side == "both" else (side,):
                out = np.zeros((len(heads), target.count), np.float32)
                for part in _blocks(len(heads), max(source.count, target.count)):
                    mine = heads[part]
                    if name == "source":
                        out[part] = ((own[mine] @ turned["source"]) @ links).toarray()
                    else:
                        out[part] = ((links[mine] @ theirs) @ turned["target"]).toarray()
                found[name] = out
            return found
        if side in ("both", "source"):
            if self._sums is None or self._sums[0] != relation:
                self._sums = relation, np.ascontiguousarray(links.T @ own)
            found["source"] = own[heads] @ self._sums[1].T
        if side in ("both", "target"):
            found["target"] = (links[heads] @ theirs) @ theirs.T
        return found


def log_degree(edges: TrainEdges, relation: int) -> Float32:
    """float32 (candidates): log(1 + training links into each)."""
    counts = np.asarray(edges.matrix(relation).sum(0)).ravel()
    return np.log1p(counts).astype(np.float32)


def mixed(parts: Mapping[Side, Float32], degree: Float32, setting: NeighbourSetting) -> Float32:
    """float32 (B × candidates): the parts of the setting's side and the degree term."""
    total = parts["source"] + parts["target"] if setting.side == "both" else parts[setting.side]
    if setting.strength:
        scaled: Float32 = total * np.float32(setting.strength) + degree
        return scaled
    return total + np.float32(_TIE_BREAK) * degree


def choose(
    edges: TrainEdges,
    queries: LinkQueries,
    rows_of: Mapping[float, Callable[[], Rows]],
    *,
    macro: bool = True,
    poll: Callable[[], None] = lambda: None,
) -> tuple[NeighbourSetting, float]:
    """The setting with the best MRR on ``queries`` (of validation links), and that MRR.

    ``rows_of``: shrinkage → what makes the rows with it. ``macro``: mean over relations, else over queries.
    """
    best, highest = NeighbourSetting(shrinkage=next(iter(rows_of))), -1.0
    for shrinkage, make in rows_of.items():
        scorer = NeighbourScorer(edges, make(), best, poll)
        settings = [NeighbourSetting(side, k, shrinkage) for side, k in product(SIDES, STRENGTHS)]
        means, counts = [], []
        for relation in queries.relations:
            if len(relation.heads):
                means.append(_mean_reciprocal_ranks(scorer, relation, settings))
                counts.append(len(relation.heads))
        if not means:
            break
        found = np.average(np.array(means), axis=0, weights=None if macro else counts)
        if found.max() > highest:
            highest, best = float(found.max()), settings[int(found.argmax())]
    return best, highest


def _mean_reciprocal_ranks(
    scorer: NeighbourScorer, relation: RelationQueries, settings: list[NeighbourSetting]
) -> NDArray[np.float64]:
    """float64 (settings): the similarities are computed once for all of them."""
    import torch

    degree = log_degree(scorer.edges, relation.relation)
    total = np.zeros(len(settings))
    for part in _blocks(len(relation.heads), relation.candidates):
        heads, place = np.unique(relation.heads[part], return_inverse=True)
        parts = {side: block[place] for side, block in scorer.parts(relation.relation, heads).items()}
        for number, setting in enumerate(settings):
            scores = torch.from_numpy(mixed(parts, degree, setting))
            above, tied, _ = count_rivals(scores, relation, part)
            total[number] += float((1.0 / (1 + above + tied / 2)).sum())
    return total / len(relation.heads)


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    size = max(1, BLOCK_BYTES // (_BYTES_PER_ENTRY * max(columns, 1)))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
