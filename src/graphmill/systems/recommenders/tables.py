"""The tables of matrix factorisation, which other recommenders propagate or add to their features."""

from __future__ import annotations

import torch
from torch import nn


class MatrixFactorisation(nn.Module):
    """A vector for each user and each item; the score is their dot product.

    ``user`` [U, d] and ``item`` [I, d], Xavier-uniform as in KGAT's and NGCF's pretraining.
    """

    def __init__(self, num_users: int, num_items: int, dim: int) -> None:
        super().__init__()
        self.user = nn.Parameter(torch.empty(num_users, dim))
        self.item = nn.Parameter(torch.empty(num_items, dim))
        nn.init.xavier_uniform_(self.user)
        nn.init.xavier_uniform_(self.item)
