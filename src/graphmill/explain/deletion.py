"""The deletion test of explanations: scores a link with the whole model after removing edges from the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from graphmill.systems.factor.model import products
from graphmill.systems.hgt.pair_features import PairFeatures
from graphmill.systems.hgt.softmax import HgtSoftmaxSystem
from graphmill.systems.hgt.softmax_decoder import Ends


@torch.no_grad()
def score_without(system: Any, model: nn.Module, relation: int, head: int, tail: int, pairs: np.ndarray) -> float:
    """The ranking score of a link (rows of the node table), without the undirected ``pairs`` in messages and sums.

    ``system``: must be HGT's. It takes one forward pass over the whole graph. The popularity of the target is not
    changed.
    """
    model.eval()
    own = system.data.relations[relation]
    masked = np.zeros(max(system.graph.num_pairs, 1), dtype=bool)
    masked[pairs] = True
    mask = torch.from_numpy(masked).to(system.device)
    encoder: Any = getattr(model, "encoder", None)
    decoder: Any = model.decoder
    degree = system.log_degree[relation][tail - own.target_offset].reshape(1)
    if not isinstance(system, HgtSoftmaxSystem):
        z = encoder(system.messages, system.features, mask)
        return float(decoder.against_all(z[head : head + 1], relation, z[tail : tail + 1], degree)[0, 0])
    vectors = system.spectral(model).all(masked)
    z = None
    if encoder is not None:
        z = encoder(system.messages, system.inputs(encoder, torch.from_numpy(vectors)), mask) * system.learned_scale
    ends, factors = [], system.factors_of(model)
    for row, offset, sources in ((head, own.source_offset, False), (tail, own.target_offset, True)):
        vector = torch.from_numpy(vectors[row : row + 1]).to(system.device)
        learned = None if z is None else z[row : row + 1]
        own_factors = None
        if factors is not None:
            own_factors = torch.from_numpy(factors[0][row : row + 1]).to(system.device)
            if not sources:
                of_relation = torch.from_numpy(factors[1][relation][None]).to(system.device)
                own_factors = products(own_factors, of_relation, "complex")
        if decoder.sums is None:
            ends.append(Ends(vector, learned, vector[:, :0], vector.new_zeros(1), own_factors))
            continue
        sums, counts = system.sums.of(relation, np.array([row - offset]), vectors, masked, sources=sources)
        told, number = (torch.from_numpy(a).to(system.device) for a in (sums, counts))
        ends.append(Ends(vector, learned, told, number, own_factors))
    score, paths = float(decoder.pairs(relation, *ends, degree)[0]), system.paths_of(model)
    if paths is not None:
        features = PairFeatures(system.sums.without(masked), paths.channels.cpu().numpy(), paths.weights.cpu().numpy())
        h, t = np.array([head - own.source_offset]), tail - own.target_offset
        alike, counted = decoder.mix[relation, -2:].tolist()
        score += alike * float(features.neighbours(relation, h)[0, t]) + counted * float(
            features.paths(relation, h)[0, t]
        )
    return score
