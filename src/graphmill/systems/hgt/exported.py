"""Scores links from HGT's exported vectors and decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from graphmill.arrays import array_of
from graphmill.errors import InputError
from graphmill.graph.later_nodes import LaterNodes, grown_links
from graphmill.graph.training_links import TrainingLinks
from graphmill.systems.hgt.decoder import HgtModule, LinkDecoder
from graphmill.systems.link_export import ExportedScorer

if TYPE_CHECKING:
    from graphmill.systems.hgt.system import HgtSystem


def scoring_arrays(decoder: LinkDecoder, links: TrainingLinks) -> dict[str, np.ndarray]:
    """The decoder's parameters by name, float32 [relations, …], and the arrays of the training links."""
    arrays = {name: value.detach().float().cpu().numpy() for name, value in decoder.state_dict().items()}
    return arrays | links.arrays()


def scoring_of(system: HgtSystem, model: HgtModule, later: LaterNodes | None = None) -> dict[str, np.ndarray]:
    """:func:`scoring_arrays` of a trained model; with ``later`` the training links include those of later nodes."""
    links = system.links if later is None else grown_links(later, system.links, system.graph)
    return scoring_arrays(model.decoder, links)


class DecoderExport(ExportedScorer):
    """Scores links from the exported vectors and :class:`LinkDecoder`."""

    def __init__(self, arrays: Mapping[str, np.ndarray], vectors: np.ndarray) -> None:
        super().__init__(vectors, TrainingLinks.read(arrays, len(vectors)))
        count, dim = len(self.links.outgoing), self.vectors.shape[1]
        if dim % 2:
            raise InputError(f"its vectors have {dim} numbers; they have two halves")
        self.decoder = LinkDecoder(count, dim).eval()
        self.decoder.load_state_dict(
            {n: torch.from_numpy(array_of(arrays, n, t.shape, "f")) for n, t in self.decoder.state_dict().items()}
        )
        degrees = (np.log1p(self.links.degrees(number)).astype(np.float32) for number in range(count))
        self.log_degree = [torch.from_numpy(degree) for degree in degrees]

    def to(self, device: torch.device) -> DecoderExport:
        """This scorer, with its vectors and parameters on the device."""
        self.vectors, self.decoder = self.vectors.to(device), self.decoder.to(device)
        self.log_degree = [degree.to(device) for degree in self.log_degree]
        return self

    def scores(self, relation: int, heads: Tensor, targets: slice) -> Tensor:
        """:meth:`ExportedScorer.scores`."""
        return self.decoder.against_all(self.vectors[heads], relation, self.vectors[targets], self.log_degree[relation])


scorer_of = DecoderExport
"""The scorer of an export, from the arrays that its system's ``scoring`` returned and its vectors float32 [nodes, d]."""
