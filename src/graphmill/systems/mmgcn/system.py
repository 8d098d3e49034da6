"""The system of MMGCN: one forward pass over the user-item graph per step, and the loss of pairs on its rows."""

from __future__ import annotations

import numpy as np
import torch

from graphmill.graph.sorted_unique import sorted_unique
from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.devices import wide
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.mmgcn.model import MMGCN, MMGCNConfig, Wanted
from graphmill.systems.mmgcn.settings import MmgcnSettings, latent_dims
from graphmill.systems.recommenders.batch import PairBatch
from graphmill.systems.recommenders.multimodal import MOST_ROWS, NORM, MultimodalSystem, squares
from graphmill.systems.recommenders.row_selection import select_rows
from graphmill.systems.recommenders.system import ITEMS, USERS, PairRows
from graphmill.systems.recommenders.user_item_graph import UserItemGraph
from graphmill.training.contract import Compilable, Encoded, ParameterGroup, Phase, Term

_OF_USERS, _OF_ITEMS = "users' rows", "items' rows"


class MmgcnSystem(MultimodalSystem[MMGCN]):
    """See :class:`graphmill.systems.mmgcn.model.MMGCN`."""

    algorithm_version = 1
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
        """All users [U, d] and items [I, d], or in training those of the batch and their numbers."""
        model.checkpointing = self.checkpointing
        wanted = self._wanted(batch) if model.training else None
        users, items = model(self.user_item, wanted)
        tensors = {USERS: users, ITEMS: items}
        return Encoded(tensors if wanted is None else tensors | {_OF_USERS: wanted.users, _OF_ITEMS: wanted.items})

    def _wanted(self, batch: PairBatch) -> Wanted | None:
        """The rows of a batch, or None if they are too many for a smaller graph to pay.

        Not used with several processes, whose encodings must be equal; nor on an accelerator, where selecting rows
        costs more than it saves; nor with compile, which would compile for every number of rows.
        """
        compiled = self.settings.acceleration.compile != "none"
        if not len(batch) or batch.ranks > 1 or compiled or self.device.type != "cpu":
            return None
        users, items = sorted_unique(batch.users), sorted_unique(np.append(batch.positives, batch.negatives))
        if len(users) + len(items) > MOST_ROWS * (self.view.num_users + self.view.num_items):
            return None
        whole = self.user_item
        cut = UserItemGraph(select_rows(whole.user_rows, users), select_rows(whole.item_rows, items))
        return Wanted(torch.from_numpy(users), torch.from_numpy(items), cut)

    def rows(self, model: MMGCN, users: np.ndarray, items: np.ndarray, encoded: Encoded) -> PairRows:
        """Final vectors; if only some rows were computed, they are looked up among those."""
        if _OF_USERS in encoded.tensors:
            users = np.searchsorted(encoded.tensors[_OF_USERS].numpy(), users)
            items = np.searchsorted(encoded.tensors[_OF_ITEMS].numpy(), items)
        return super().rows(model, users, items, encoded)

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
        return [Term(NORM, rows + tables * count, count, self.settings.objective.regularisation)]


def _is_table(name: str) -> bool:
    return name == "identity" or name.endswith(".preference")
