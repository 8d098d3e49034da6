"""ConvE (Dettmers et al., "Convolutional 2D Knowledge Graph Embeddings", AAAI 2018): the network alone.

s(h, r, t) = x(h, r) · e_t + b_t, where x is the *tower*: it stacks both embeddings as pictures, and applies a
convolution and a linear layer back to the embedding's width. The system has losses, batches and inverse relations.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from graphmill.kernels.table_rows import table_rows
from graphmill.systems.conve.folded_convolution import channel_statistics, folded_filters, rectified_linear, windows
from graphmill.systems.conve.synced_norm import SyncedBatchNorm, statistics_kept, summed_over_processes


@dataclass(frozen=True)
class ConvEConfig:
    """The sizes from which the same network can be rebuilt.

    ``num_relations`` includes the inverse relations. The picture is ``embedding_height`` × ``embedding_width`` =
    ``embedding_dim``; two pictures are stacked, so the convolution's input has twice the height.
    """

    num_entities: int
    num_relations: int
    embedding_dim: int = 200
    embedding_height: int = 10
    embedding_width: int = 20
    output_channels: int = 32
    kernel_height: int = 3
    kernel_width: int = 3
    input_dropout: float = 0.2
    feature_map_dropout: float = 0.2
    output_dropout: float = 0.3

    @property
    def positions(self) -> tuple[int, int]:
        """Height and width of the convolution's output (no padding, stride 1)."""
        return 2 * self.embedding_height - self.kernel_height + 1, self.embedding_width - self.kernel_width + 1

    @property
    def features(self) -> int:
        """Width of the linear layer's input."""
        height, width = self.positions
        return self.output_channels * height * width


class ConvE(nn.Module):
    """Tower and entity table.

    Tables are initialised Xavier-normal, everything else by torch's default (as in the authors' code and PyKEEN).
    """

    def __init__(self, config: ConvEConfig, *, checkpointing: bool = False) -> None:
        super().__init__()
        self.config = config
        self.checkpointing = checkpointing
        d = config.embedding_dim
        self.entities = nn.Parameter(nn.init.xavier_normal_(torch.empty(config.num_entities, d)))
        self.relations = nn.Parameter(nn.init.xavier_normal_(torch.empty(config.num_relations, d)))
        self.entity_bias = nn.Parameter(torch.zeros(config.num_entities))
        self.input_norm = SyncedBatchNorm(1)
        self.convolution = nn.Conv2d(1, config.output_channels, (config.kernel_height, config.kernel_width))
        self.feature_norm = SyncedBatchNorm(config.output_channels)
        self.projection = nn.Linear(config.features, d)
        self.output_norm = SyncedBatchNorm(d)

    def forward(self, heads: Tensor, relations: Tensor) -> Tensor:
        """int64 [B], int64 [B] → x [B, d], at least fp32. In training, B must be the whole step: the norms use its
        statistics."""
        # The loss fills the table's gradient before this backward pass runs, which then adds B rows to it, not N.
        picture = self.picture(table_rows(self.entities, heads), F.embedding(relations, self.relations))
        if self.checkpointing and torch.is_grad_enabled():
            hidden = checkpoint(
                self.hidden, picture, use_reentrant=False, context_fn=lambda: (nullcontext(), statistics_kept(self))
            )
        else:
            hidden = self.hidden(picture)
        return F.relu(self.output_norm(F.dropout(hidden, self.config.output_dropout, self.training)))

    def picture(self, head: Tensor, relation: Tensor) -> Tensor:
        """Two [B, d] → [B, 1, 2 · height, width]: the head's picture above the relation's."""
        shape = (len(head), 1, self.config.embedding_height, self.config.embedding_width)
        return torch.cat([head.view(shape), relation.view(shape)], dim=2)

    def hidden(self, picture: Tensor) -> Tensor:
        """[B, 1, 2 · height, width] → [B, d]: norm, dropout, convolution, norm, ReLU, dropout of whole maps, linear."""
        c = self.config
        if torch.compiler.is_compiling():
            # torch.compile fuses the plain operations itself, but cannot compile our own kernels.
            x = F.dropout(self.input_norm(picture), c.input_dropout, self.training)
            maps = F.relu(self.feature_norm(self.convolution(x)))
            return self.projection(F.dropout2d(maps, c.feature_map_dropout, self.training).flatten(1))
        x = F.dropout(self.input_norm(picture), c.input_dropout, self.training)
        assert self.convolution.bias is not None
        kernels, layer, norm = self.convolution.weight.flatten(1), self.projection, self.feature_norm
        kind, low, keep = x.device.type, x.dtype, None
        if torch.is_autocast_enabled(kind):
            low = torch.get_autocast_dtype(kind)
        with torch.autocast(kind, enabled=False):
            cells, total = windows(x.squeeze(1), (c.kernel_height, c.kernel_width))
            if self.training:
                total = summed_over_processes(total)
                mean, variance = channel_statistics(total, kernels)
                norm.record(mean + self.convolution.bias, variance, total[-1, -1])
                if c.feature_map_dropout > 0.0:
                    keep = F.dropout(x.new_ones(len(x), c.output_channels), c.feature_map_dropout, True)
            else:
                mean, variance = norm.running_mean - self.convolution.bias, norm.running_var
            # In training the norm subtracts the convolution's bias with the mean, so it is left out.
            scale = (variance + norm.eps).rsqrt() * norm.weight
            shift = norm.bias - mean * scale
            filters = folded_filters(kernels, scale.to(x.dtype), shift.to(x.dtype), keep, len(x))
            return rectified_linear(filters.to(low), cells.to(low), layer.weight.to(low), layer.bias.to(low))

    def scores(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x [B, d] → scores against every entity [B, N]; ``out``: a buffer for the result, or None."""
        return torch.addmm(self.entity_bias, x, self.entities.T, out=out)

    def pair_scores(self, x: Tensor, tails: Tensor) -> Tensor:
        """x [B, d], ``tails`` int64 [B, k] → scores [B, k]."""
        scores = torch.einsum("bd,bkd->bk", x, F.embedding(tails, self.entities))
        return scores + self.entity_bias[tails]
