"""The deletion test: what a link scores when edges are taken out of the graph, by the whole model and not by shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from graphmill.systems.hgt.softmax import HgtSoftmaxRecipe
from graphmill.systems.hgt.softmax_decoder import Ends


@torch.no_grad()
def score_without(recipe: Any, model: nn.Module, relation: int, head: int, tail: int, pairs: np.ndarray) -> float:
    """The score of a link (rows of the node table) as it is ranked, with the undirected ``pairs`` in no message and no sum.

    ``recipe``: an HGT's. One forward pass over the whole graph. The popularity of the target stays as it is.
    """
    model.eval()
    own = recipe.data.relations[relation]
    masked = np.zeros(max(recipe.graph.num_pairs, 1), dtype=bool)
    masked[pairs] = True
    mask = torch.from_numpy(masked).to(recipe.device)
    encoder: Any = getattr(model, "encoder", None)
    decoder: Any = model.decoder
    degree = recipe.log_degree[relation][tail - own.target_offset].reshape(1)
    if not isinstance(recipe, HgtSoftmaxRecipe):
        z = encoder(recipe.messages, recipe.features, mask)
        return float(decoder.against_all(z[head : head + 1], relation, z[tail : tail + 1], degree)[0, 0])
    vectors = recipe.spectral(model).all(masked)
    z = None
    if encoder is not None:
        z = encoder(recipe.messages, recipe.inputs(encoder, torch.from_numpy(vectors)), mask) * recipe.learned_scale
    ends = []
    for row, offset, sources in ((head, own.source_offset, False), (tail, own.target_offset, True)):
        vector = torch.from_numpy(vectors[row : row + 1]).to(recipe.device)
        learned = None if z is None else z[row : row + 1]
        if decoder.sums is None:
            ends.append(Ends(vector, learned, vector[:, :0], vector.new_zeros(1)))
            continue
        sums, counts = recipe.sums.of(relation, np.array([row - offset]), vectors, masked, sources=sources)
        ends.append(Ends(vector, learned, *(torch.from_numpy(a).to(recipe.device) for a in (sums, counts))))
    return float(decoder.pairs(relation, *ends, degree)[0])
