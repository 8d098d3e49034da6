"""Scores links from HGT's exported vectors and decoder, for both losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.arrays import array_of
from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.training_links import TrainingLinks
from graphmill.systems.hgt import softmax_scorer
from graphmill.systems.hgt.decoder import LinkDecoder
from graphmill.systems.hgt.later_nodes import grown_links
from graphmill.systems.hgt.softmax_scorer import SoftmaxScorer
from graphmill.systems.link_export import ExportedScorer

if TYPE_CHECKING:
    from graphmill.systems.hgt.system import HgtSystem

_PARAMETERS = ("relation", "popularity", "offset", "strength")


def scoring_arrays(decoder: LinkDecoder, links: TrainingLinks) -> dict[str, np.ndarray]:
    """The decoder's parameters by name [relations, …], and the arrays of the training links."""
    arrays = {name: getattr(decoder, name) for name in _PARAMETERS}
    told = {name: value.detach().float().cpu().numpy() for name, value in arrays.items() if value is not None}
    return told | links.arrays()


def scoring_of(system: HgtSystem, model: nn.Module, later: LaterNodes | None = None) -> dict[str, np.ndarray]:
    """:func:`scoring_arrays` of a trained model. With ``later`` the training links include those of later nodes."""
    links = TrainingLinks.of_graph(system.graph)
    if later is not None:
        links = grown_links(later, links, system.graph)
    return scoring_arrays(model.decoder, links)  # type: ignore[arg-type]


class DecoderExport(ExportedScorer):
    """Scores links from the layers' vectors and :class:`LinkDecoder`."""

    def __init__(self, arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> None:
        super().__init__(vectors, TrainingLinks.read(arrays, len(vectors)))
        kind = "distmult" if "relation" in arrays else "dot"
        count, dim = len(self.links.outgoing), self.vectors.shape[1]
        self.decoder = LinkDecoder(count, dim, kind, "popularity" in arrays).eval()
        self.decoder.load_state_dict(
            {n: torch.from_numpy(array_of(arrays, n, t.shape, "f")) for n, t in self.decoder.state_dict().items()}
        )
        degrees = (np.log1p(self.links.degrees(number)).astype(np.float32) for number in range(count))
        self.log_degree = [torch.from_numpy(degree) for degree in degrees]

    def scores(self, relation: int, heads: Tensor, targets: slice) -> Tensor:
        """:meth:`ExportedScorer.scores`."""
        return self.decoder.against_all(self.vectors[heads], relation, self.vectors[targets], self.log_degree[relation])


def scorer_of(arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> DecoderExport | SoftmaxScorer:
    """The scorer of an export, from its vectors float32 [nodes, d] and the arrays that its system's ``scoring`` returned."""
    if "spectral_width" in arrays:
        return softmax_scorer.scorer_of(arrays, vectors)
    return DecoderExport(arrays, vectors)
