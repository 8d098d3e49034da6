"""Scores links from vectors, the relations' parameters and the training edges alone: in a run, and from its export."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from graphmill.arrays import array_of
from graphmill.errors import InputError
from graphmill.graph.training_links import TrainingLinks
from graphmill.systems.factor.model import products
from graphmill.systems.hgt.pair_features import CHANNELS, PairFeatures, PathWeights
from graphmill.systems.hgt.softmax_decoder import Ends, SoftmaxDecoder
from graphmill.systems.hgt.spectral import NeighbourSums
from graphmill.systems.link_export import scores_of_links

_PARAMETERS = ("sums", "exponents", "direct", "relation", "popularity", "strength", "mix")
Factors = tuple[np.ndarray, np.ndarray]
"""ComplEx's vectors float32 of all nodes [nodes, f] and of the relations [relations, f]."""


class SoftmaxScorer:
    """Scores every candidate target of a relation.

    ``vectors`` float32 [nodes, embedding_dim]: ``width`` spectral columns, then learned ones. ``factors``: ComplEx's.
    """

    def __init__(
        self,
        vectors: np.ndarray,
        width: int,
        decoder: SoftmaxDecoder,
        sums: NeighbourSums,
        device: torch.device | None = None,
        factors: Factors | None = None,
        features: PairFeatures | None = None,
    ) -> None:
        self.decoder, self.vectors, self.sums = decoder, vectors, sums
        self.device = device or torch.device("cpu")
        self.spectral = np.ascontiguousarray(vectors[:, :width])
        self.learned = np.ascontiguousarray(vectors[:, width:])
        self.factors = factors
        self.features = features
        self.poll: Callable[[], None] = lambda: None
        self._targets: tuple[int, Ends, Tensor] | None = None

    @property
    def links(self) -> TrainingLinks:
        """The training links."""
        return self.sums

    def score_targets(self, relation: int, heads: np.ndarray) -> Tensor:
        """Local head numbers int64 [B] → fp32 [B, candidates]."""
        self.poll()
        if self._targets is None or self._targets[0] != relation:
            incoming = self.sums.incoming[relation]
            degree = self._tensor(np.log1p(np.diff(incoming.indptr)).astype(np.float32))
            self._targets = (relation, self._ends(relation, np.arange(incoming.shape[0]), sources=True), degree)
        _, targets, degree = self._targets
        training = self.decoder.training
        self.decoder.eval()
        with torch.no_grad():
            scores: Tensor = self.decoder(relation, self._ends(relation, heads, sources=False), targets, degree)
        self.decoder.train(training)
        for told, weight in self._told_of_pairs(relation):
            scores = scores + self._tensor(told(relation, heads)).to(scores.dtype) * weight
        return scores

    def _told_of_pairs(self, relation: int) -> list[tuple[Callable[[int, np.ndarray], np.ndarray], float]]:
        """The pair features whose weight in a relation is not 0, and these weights."""
        if self.features is None or self.decoder.mix is None:
            return []
        found = zip(
            (self.features.neighbours, self.features.paths), self.decoder.mix[relation, -2:].tolist(), strict=True
        )
        return [(told, weight) for told, weight in found if weight]

    def score(self, relation: int, heads: np.ndarray, tails: np.ndarray) -> Tensor:
        """One score per link: local numbers int64 [B] → fp32 [B]."""
        if self._told_of_pairs(relation):
            return scores_of_links(self.score_targets, relation, heads, tails)
        incoming = self.sums.incoming[relation]
        degree = self._tensor(np.log1p(np.diff(incoming.indptr)[tails]).astype(np.float32))
        training = self.decoder.training
        self.decoder.eval()
        with torch.no_grad():
            left, right = self._ends(relation, heads, sources=False), self._ends(relation, tails, sources=True)
            found = self.decoder.pairs(relation, left, right, degree)
        self.decoder.train(training)
        return found

    def _ends(self, relation: int, nodes: np.ndarray, *, sources: bool) -> Ends:
        rows = nodes + self.sums.offsets[relation][1 if sources else 0]
        vectors, learned = self._tensor(self.spectral[rows]), self._tensor(self.learned[rows])
        factors = None
        if self.factors is not None:
            factors = self._tensor(self.factors[0][rows])
            if not sources:
                factors = products(factors, self._tensor(self.factors[1][relation][None]), "complex")
        if self.decoder.sums is None:
            return Ends(vectors, learned, vectors[:, :0], vectors.new_zeros(len(nodes)), factors)
        sums, counts = self.sums.of(relation, nodes, self.spectral, sources=sources)
        return Ends(vectors, learned, self._tensor(sums), self._tensor(counts), factors)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)


def scoring_arrays(
    width: int,
    decoder: SoftmaxDecoder,
    sums: NeighbourSums,
    factors: Factors | None = None,
    paths: PathWeights | None = None,
) -> dict[str, np.ndarray]:
    """The relations' parameters by name [relations, …], ``spectral_width`` [1], and the training edges
    (:meth:`graphmill.graph.training_links.TrainingLinks.arrays`). A ComplEx part adds ``complex.nodes`` float32 [nodes, f]
    and ``complex.relations`` [relations, f]. Pair features add ``paths.channels`` int32 [relations, 64, 2] and
    ``paths.weights`` float32 [relations, 64].
    """
    arrays = {"spectral_width": np.array([width], np.int64), **sums.arrays()}
    for name in _PARAMETERS:
        value = getattr(decoder, name)
        if value is not None:
            arrays[name] = value.detach().float().cpu().numpy()
    if factors is not None:
        arrays |= {"complex.nodes": factors[0], "complex.relations": factors[1]}
    if paths is not None:
        arrays |= {"paths.channels": paths.channels.cpu().numpy(), "paths.weights": paths.weights.float().cpu().numpy()}
    return arrays


def scorer_of(arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> SoftmaxScorer:
    """The scorer of an export, from its vectors float32 [nodes, embedding_dim] and its :func:`scoring_arrays`."""
    width, sums = int(array_of(arrays, "spectral_width", (1,), "i")[0]), NeighbourSums.read(arrays, len(vectors))
    relations = len(sums.outgoing)
    if not 0 <= width <= vectors.shape[1]:
        raise InputError(f"its spectral vectors are {width} of {vectors.shape[1]} dimensions")
    decoder = SoftmaxDecoder(
        relations,
        width,
        vectors.shape[1] - width,
        sums="sums" in arrays,
        weighted=True,
        popularity="popularity" in arrays,
        mixed="mix" in arrays,
    )
    decoder.load_state_dict(
        {n: torch.from_numpy(array_of(arrays, n, t.shape, "f")) for n, t in decoder.state_dict().items()}
    )
    factors = features = None
    if "complex.nodes" in arrays:
        nodes = array_of(arrays, "complex.nodes", (len(vectors), None), "f")
        factors = nodes, array_of(arrays, "complex.relations", (relations, nodes.shape[1]), "f")
        if nodes.shape[1] % 2:
            raise InputError(f"its ComplEx vectors have {nodes.shape[1]} numbers; they have two halves")
    if "paths.channels" in arrays:
        channels = array_of(arrays, "paths.channels", (relations, CHANNELS, 2), "i")
        features = PairFeatures(sums, channels, array_of(arrays, "paths.weights", (relations, CHANNELS), "f"))
        features.require_channels()
    return SoftmaxScorer(vectors, width, decoder.eval(), sums, factors=factors, features=features)
