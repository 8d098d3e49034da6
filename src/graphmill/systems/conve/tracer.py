"""ConvE's per-example gradients as factors, without autograd: one forward pass per query, one backward pass per label.

Notation of one query q: picture → norm 0 → convolution → norm 1 → ReLU = a_q → linear → norm 2 → ReLU = x_q. For a
label (q, t): ℓ = softplus(s_t) − one · s_t with s_t = x_q · e_t + b_t, so ∂ℓ/∂s_t = c = σ(s_t) − one, and the backward
pass starts from c · e_t. With a softmax a label has p − y_t over all entities, p = softmax(s).

Feature maps have the channel last, so that every step except the fold is a matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.systems.conve.data import ConveData, smoothed_targets
from graphmill.systems.conve.model import ConvE
from graphmill.systems.conve.synced_norm import SyncedBatchNorm
from graphmill.training.contract import Dense, Factor, Outer, RowGradients


@dataclass
class _Queries:
    """Values that the backward passes of a query's labels share; m queries, P positions, C channels, k kernel entries."""

    keys: np.ndarray  # head · 2M + relation
    head: Tensor
    relation: Tensor
    picture: Tensor  # [m, 2 · height · width], normed, before scale and shift
    windows: Tensor  # [m, P, k + 1], the last column is 1
    blocked: Tensor  # bool [m, P · C], where ReLU is 0
    features: Tensor  # [m, P · C]
    hidden: Tensor  # [m, d], normed, before scale and shift
    x: Tensor  # [m, d]


class ConveTracer:
    """``loss``: "bce", or "softmax" over all entities, also for a training whose candidates are sampled; ``smoothing``: of
    its labels."""

    def __init__(self, model: ConvE, data: ConveData, loss: str, smoothing: float) -> None:
        self.model = model.eval()
        self.data, self.width = data, 2 * data.num_relations
        self.softmax = loss == "softmax"
        if self.softmax:
            self.one, self.zero = 1.0 - smoothing + smoothing / data.num_entities, smoothing / data.num_entities
        else:
            self.one, self.zero = smoothed_targets(smoothing, data.num_entities)
        c = model.config
        positions = c.positions[0] * c.positions[1]
        self.shape = (2 * c.embedding_height, c.embedding_width)
        self.kernel = (c.kernel_height, c.kernel_width)
        with torch.no_grad():
            weight = model.projection.weight.view(c.embedding_dim, c.output_channels, positions)
            # Channel last, as in the feature maps.
            self.weight = weight.transpose(1, 2).reshape(c.embedding_dim, -1).contiguous()
            self.filters = model.convolution.weight.view(c.output_channels, -1)
        assert model.convolution.bias is not None
        self.filter_bias: Tensor = model.convolution.bias

    @torch.no_grad()
    def label_gradients(self, labels: np.ndarray) -> list[Factor]:
        """See :class:`graphmill.training.contract.Tracer`."""
        queries, which = self._queries(labels[:, :2])
        tail = self._tensor(labels[:, 2])
        x, keys = queries.x[which], self.model.entities[tail]
        share = None
        if self.softmax:
            share = torch.softmax(self.model.scores(queries.x), dim=1) - self.zero
            slope = torch.full_like(x[:, :1], self.zero - self.one)
            into_x = slope * keys + (share @ self.model.entities)[which]
        else:
            scores = (x * keys).sum(1) + self.model.entity_bias[tail]
            slope = (torch.sigmoid(scores) - self.one)[:, None]
            into_x = slope * keys
        below, into_head, into_relation = self._backward(queries, which, into_x)
        rows = (tail, queries.head[which]), (slope * x, into_head)
        spread, unit, by_query = None, None, None
        if share is not None:
            spread, unit, by_query = (share, queries.x), (share, torch.ones_like(share[:, :1])), which
        table = RowGradients("entities", *rows, spread, by_query)
        bias = RowGradients("entity_bias", (tail,), (slope,), unit, by_query)
        relation = RowGradients("relations", (queries.relation[which],), (into_relation,))
        return [table, relation, *below, bias]

    def _queries(self, queries: np.ndarray) -> tuple[_Queries, Tensor]:
        """The forward pass of the distinct queries in ``queries`` [n, 2], and the place of each row among them."""
        keys, which = np.unique(queries[:, 0] * self.width + queries[:, 1], return_inverse=True)
        head, relation = self._tensor(keys // self.width), self._tensor(keys % self.width)
        model = self.model
        picture = model.picture(model.entities[head], model.relations[relation]).flatten(1)
        normed, x = _norm(picture, model.input_norm)
        windows = F.unfold(x.view(-1, 1, *self.shape), self.kernel).transpose(1, 2)
        # The norm is folded into the filters: one pass over the maps instead of five.
        scale = _scale(model.feature_norm)
        shift = (self.filter_bias - model.feature_norm.running_mean) * scale + model.feature_norm.bias
        maps = torch.addmm(shift, windows.reshape(-1, windows.shape[2]), (self.filters * scale[:, None]).T)
        features = maps.clamp_(min=0.0).view(len(windows), -1)
        hidden, x = _norm(features @ self.weight.T + model.projection.bias, model.output_norm)
        with_one = F.pad(windows, (0, 1), value=1.0)
        traced = _Queries(keys, head, relation, normed, with_one, features <= 0, features, hidden, x.clamp(min=0.0))
        return traced, self._tensor(which.reshape(-1))

    def _backward(self, q: _Queries, which: Tensor, slope: Tensor) -> tuple[list[Factor], Tensor, Tensor]:
        """From ∂ℓ/∂x [n, d] to factors of all layers below the entities, ∂ℓ/∂(head vector), ∂ℓ/∂(relation vector)."""
        model, c = self.model, self.model.config
        count = len(which)
        after = slope * (q.x > 0)[which]
        hidden = after * _scale(model.output_norm)
        into_maps = hidden @ self.weight
        into_maps.masked_fill_(q.blocked[which], 0.0)
        into_maps = into_maps.view(count, -1, c.output_channels)
        # Per channel: Σ over positions of (gradient × window) and, from the column of ones, of the gradient alone.
        sums = into_maps.transpose(1, 2) @ q.windows[which]
        by_window, alone = sums[..., :-1], sums[..., -1]
        scale = _scale(model.feature_norm)
        spread = model.feature_norm.running_var.add(model.feature_norm.eps).rsqrt()
        centred = (by_window * self.filters).sum(-1) + (self.filter_bias - model.feature_norm.running_mean) * alone
        into_windows = into_maps.reshape(-1, c.output_channels) @ (self.filters * scale[:, None])
        into_windows = into_windows.view(count, -1, self.filters.shape[1]).transpose(1, 2)
        into_picture = F.fold(into_windows, self.shape, self.kernel).flatten(1)
        normed = q.picture[which]
        factors: list[Factor] = [
            Dense("input_norm.weight", (into_picture * normed).sum(1, keepdim=True)),
            Dense("input_norm.bias", into_picture.sum(1, keepdim=True)),
            Dense("convolution.weight", (by_window * scale[:, None]).flatten(1)),
            Dense("convolution.bias", alone * scale),
            Dense("feature_norm.weight", centred * spread),
            Dense("feature_norm.bias", alone),
            Outer("projection.weight", hidden, q.features, which),
            Dense("projection.bias", hidden),
            Dense("output_norm.weight", after * q.hidden[which]),
            Dense("output_norm.bias", after),
        ]
        into = into_picture * _scale(model.input_norm)
        return factors, into[:, : c.embedding_dim], into[:, c.embedding_dim :]

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)).to(self.model.entities.device)


def _scale(norm: SyncedBatchNorm) -> Tensor:
    return norm.weight * (norm.running_var + norm.eps).rsqrt()


def _norm(x: Tensor, norm: SyncedBatchNorm) -> tuple[Tensor, Tensor]:
    """The norm without and with scale and shift; channels are the last axis (any axis for a norm of one channel)."""
    normed = (x - norm.running_mean) * (norm.running_var + norm.eps).rsqrt()
    return normed, normed * norm.weight + norm.bias
