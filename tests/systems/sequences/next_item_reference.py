"""The losses of next-item prediction written out row by row."""

from __future__ import annotations

import torch
from torch import Tensor


def bce_reference(states: Tensor, table: Tensor, target: Tensor, negative: Tensor) -> Tensor:
    """Σ −log σ(s⁺) − mean log(1 − σ(s⁻))."""
    total = states.new_zeros(())
    for row, state in enumerate(states):
        total = total - torch.log(torch.sigmoid(state @ table[target[row]]))
        for item in negative[row]:
            total = total - torch.log(1 - torch.sigmoid(state @ table[item])) / negative.shape[1]
    return total


def sampled_softmax_reference(
    states: Tensor, table: Tensor, target: Tensor, sampled: Tensor, probability: Tensor
) -> Tensor:
    """Σ −log of the target's share among itself and the sampled items that are not it; scores minus log(M q)."""
    total = states.new_zeros(())
    for row, state in enumerate(states):
        items = torch.tensor([int(target[row])] + [int(i) for i in sampled if i != target[row]])
        scores = table[items] @ state - torch.log(len(sampled) * probability[items])
        total = total - torch.log_softmax(scores, 0)[0]
    return total
