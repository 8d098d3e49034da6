"""The system of MMGCN: one forward pass over the user-item graph per step, and the loss of pairs on its rows."""

from __future__ import annotations

import numpy as np
import torch

from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.devices import wide
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.mmgcn.model import MMGCN, MMGCNConfig
from graphmill.systems.mmgcn.settings import MmgcnSettings, latent_dims
from graphmill.systems.recommenders.memory import BYTES_PER_EDGE, evaluation_part, pairs_part, rows_of, sizes_of
from graphmill.systems.recommenders.multimodal import NORM, MultimodalSystem, squares
from graphmill.systems.recommenders.system import ITEMS, USERS, PairBatch
from graphmill.training.contract import Compilable, Encoded, ParameterGroup, Phase, Term
from graphmill.training.planning import Part, Setup


class MmgcnSystem(MultimodalSystem[MMGCN]):
    """See :class:`graphmill.systems.mmgcn.model.MMGCN`."""

    algorithm_version = 2
    graph_norm = "mean"
    first_layer = "projection"
    item_tables = ("identity",)
    settings: MmgcnSettings

    def __init__(self, graph: TypedGraph, settings: MmgcnSettings, batching: str) -> None:
        # The norm of frozen weights is a constant: it would be in the log but have no gradient.
        regularised = settings.model.trainable_embeddings and settings.objective.regularisation > 0.0
        self.term_names = (NORM,) if regularised else ()
        super().__init__(graph, settings, batching)
        m = settings.model
        self.latent_dims = latent_dims(m.latent_dims, len(self.modalities), m.embedding_dim)

    def make_model(self) -> MMGCN:
        """The network with this graph's features."""
        m, view = self.settings.model, self.view
        sizes = m.embedding_dim, m.num_layers, m.combination, m.trainable_embeddings
        return MMGCN(MMGCNConfig(view.num_users, view.num_items, self.latent_dims, *sizes), self.features())

    def parameter_groups(self, model: MMGCN, phase: Phase) -> list[ParameterGroup]:
        """Weight decay acts on matrices, not on ID embeddings, preferences and biases."""
        return self.groups(model, lambda name, p: p.dim() == 2 and not _is_table(name))

    def row_keys(self, model: MMGCN) -> dict[str, tuple[str, list[str]]]:
        """Keys of ID embeddings are type and id (a user may have an item's id); keys of preferences are users, per
        modality. Other parameters have no row keys."""
        users = self.ids("user")
        both = [f"{kind} {key}" for kind in ("user", "item") for key in self.ids(kind)]
        out: dict[str, tuple[str, list[str]]] = {}
        for name, _ in model.named_parameters():
            _, *of_tower = name.split(".", 2)  # a tower's number and parameter; its label has the name of the modality
            label = f"{self.modalities[int(of_tower[0])].name}.{of_tower[1]}" if of_tower else name
            out[name] = (label, both if name == "identity" else users if _is_table(name) else [])
        return out

    def encode(self, model: MMGCN, batch: PairBatch) -> Encoded:
        """All users [U, d] and items [I, d]."""
        model.checkpointing = self.checkpointing
        users, items = model(self.user_item)
        return Encoded({USERS: users, ITEMS: items})

    def compilables(self, model: MMGCN) -> list[Compilable]:
        """The dense part of each layer, without the products with the graph."""
        return [Compilable(layer, "join") for tower in model.towers for layer in tower.layers]  # type: ignore[union-attr]

    def extra_terms(self, model: MMGCN, chunk: PairBatch, encoded: Encoded) -> list[Term]:
        """λ · [ mean over the 2B rows (u, i⁺), (u, i⁻) of Z_u² + Z_i²  +  Σ_m mean(P_m²) ], the means also over columns.

        Several negatives are averaged. The published code includes only the first modality's P and trains neither Z nor
        P, so its term is a constant without a gradient and is left out here. If Z and P are trained, all modalities are
        included.
        """
        if not self.term_names:
            return []
        count, width = float(len(chunk)), model.config.embedding_dim
        negatives = chunk.wrong
        # Each row once, even if several pairs have it.
        nodes = (chunk.users, chunk.positives + self.view.num_users, negatives.reshape(-1) + self.view.num_users)
        times = np.repeat((2.0, 1.0, 1.0 / negatives.shape[1]), [len(part) for part in nodes])
        some, place = np.unique(np.concatenate(nodes), return_inverse=True)
        vectors = wide(table_rows(model.identity, self._tensor(some)))
        kind = np.float64 if vectors.dtype == torch.float64 else np.float32
        weight = self._tensor(np.bincount(place.reshape(-1), weights=times).astype(kind))
        rows = (vectors.square().sum(1) * weight).sum() / (2.0 * width)
        means = [squares(tower.preference) / tower.preference.numel() for tower in model.towers]  # type: ignore[arg-type, operator]
        tables = torch.stack(means).sum()
        return [Term(NORM, rows + tables * count, self.settings.objective.regularisation)]


def _is_table(name: str) -> bool:
    return name == "identity" or name.endswith(".preference")


def memory_parts(graph: TypedGraph, settings: MmgcnSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    m, size, d = settings.model, sizes_of(graph, settings.model.modalities), settings.model.embedding_dim
    nodes, joined = size.nodes, m.combination == "concatenate"
    tables, weights, states, inputs, constants = float(nodes * d), 0, 0, 0, 0
    widest = 0
    for features, mapped in zip(size.widths, latent_dims(m.latent_dims, len(size.widths), d), strict=True):
        width = mapped or features
        widest = max(widest, width)
        tables += size.users * width
        weights += (features + 1) * mapped
        constants += size.items * features
        states += nodes * width
        for input_dim in [width] + [d] * (m.num_layers - 1):
            weights += input_dim * input_dim + (input_dim + 1) * d + (input_dim + d * joined + 1) * d
            # Messages; the node's own part with ID embeddings; their combination.
            states += nodes * (input_dim + 3 * d)
            inputs += nodes * input_dim
    trained = m.trainable_embeddings
    layer = nodes * (2 * widest + 4 * d)
    norm = min(rows_of(settings), nodes) * d * 3 * (trained and settings.objective.regularisation > 0)
    return [
        Part("embeddings and layers", "weights", weights + tables * trained),
        Part("features", "always", constants + tables * (not trained)),
        Part("interactions and the user-item matrix", "always", size.edges, BYTES_PER_EDGE),
        # In the backward pass of a layer, gradients of its messages, rows and products are in memory beside the states.
        Part("states of the layers", "kept", states + 3 * layer, recomputed=inputs + 4 * layer),
        Part("final vectors and their gradient", "kept", 2 * nodes * d),
        pairs_part(settings, d, setup),
        Part("rows for the norm", "loss", norm),
        evaluation_part(layer + 2 * nodes * d),
    ]
