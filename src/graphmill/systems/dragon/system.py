"""The system of DRAGON: the user-item graph once per step, the homogeneous graphs once per chunk."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
import torch
from torch import Tensor

from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.propagation import SparseMatrix
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.dragon.graphs import item_graph, user_graph
from graphmill.systems.dragon.model import HIDDEN, Dragon, DragonConfig
from graphmill.systems.dragon.settings import DragonSettings
from graphmill.systems.recommenders.memory import BYTES_PER_EDGE, evaluation_part, pairs_part, rows_of, sizes_of
from graphmill.systems.recommenders.multimodal import NORM, MultimodalSystem, squares
from graphmill.systems.recommenders.system import ITEMS, USERS, PairBatch, PairRows
from graphmill.training.contract import Compilable, Encoded, ParameterGroup, Phase, Term
from graphmill.training.planning import Part, Setup

IDENTITY, IDENTITY_NORM = "identity", "identity_norm"
"""Terms of the vectors by id."""


class DragonSystem(MultimodalSystem[Dragon]):
    """See :class:`graphmill.systems.dragon.model.Dragon`. The loss is the authors' log₂ form: natural BPR over ln 2."""

    algorithm_version = 1
    graph_norm = "symmetric"
    first_layer = "hidden"
    item_tables = ("identities.item",)
    loss_scale = 1.0 / math.log(2.0)
    settings: DragonSettings

    def __init__(self, graph: TypedGraph, settings: DragonSettings, batching: str) -> None:
        self.term_names = (NORM,) if settings.objective.regularisation > 0.0 else ()
        if settings.model.identity_dim:
            self.term_names += (IDENTITY, IDENTITY_NORM)
        super().__init__(graph, settings, batching)

    def on_view(self) -> Self:
        """:meth:`MultimodalSystem.on_view`, including the homogeneous graphs."""
        m, view = self.settings.model, self.view
        items = item_graph(self.modalities, m.item_graph_weights, m.item_neighbours) if m.item_layers else None
        users = user_graph(view, m.user_neighbours) if m.user_neighbours else None
        self._similar: dict[str, SparseMatrix | None] = {USERS: users, ITEMS: items}
        self.on_interactions().to(self.device)
        return self

    def make_model(self) -> Dragon:
        """The network with this graph's features."""
        m, view = self.settings.model, self.view
        sizes = m.embedding_dim, m.item_layers, m.identity_dim
        return Dragon(DragonConfig(view.num_users, view.num_items, *sizes), self.features())

    def to(self, device: torch.device) -> None:
        """Moves the graphs to the device; the features move with the network."""
        super().to(device)
        self._similar = {side: graph and graph.to(device) for side, graph in self._similar.items()}

    def parameter_groups(self, model: Dragon, phase: Phase) -> list[ParameterGroup]:
        """Weight decay acts on matrices, not on preferences, id embeddings, modality weights and biases."""
        return self.groups(model, lambda name, p: p.dim() == 2 and name.startswith("towers."))

    def row_keys(self, model: Dragon) -> dict[str, tuple[str, list[str]]]:
        """Keys of preferences and modality weights are users, with the name of the modality; towers have no row keys.

        Id embeddings have MF's labels.
        """
        names, users = [x.name for x in self.modalities], self.ids("user")
        out: dict[str, tuple[str, list[str]]] = {}
        for name, _ in model.named_parameters():
            part, _, rest = name.partition(".")
            if part == "identities":
                out[name] = (rest, self.ids(rest))
                continue
            number, _, rest = rest.partition(".")
            label = f"{part}.{names[int(number)]}.{rest}".rstrip(".") if number else f"{name} of {', '.join(names)}"
            out[name] = (label, [] if part == "towers" else users)
        return out

    def encode(self, model: Dragon, batch: PairBatch) -> Encoded:
        """Users and items before the homogeneous graphs, [U, width] and [I, width]."""
        model.checkpointing = self.checkpointing
        users, items = model.heterogeneous(self.user_item)
        return Encoded({USERS: users, ITEMS: items})

    def rows(self, model: Dragon, users: np.ndarray, items: np.ndarray, encoded: Encoded) -> PairRows:
        """Final vectors of the chunk's users and items, each once."""
        some_users, user_place = np.unique(users, return_inverse=True)
        some_items, item_place = np.unique(items, return_inverse=True)
        user = self._final(model, USERS, encoded.tensors[USERS], some_users)
        item = self._final(model, ITEMS, encoded.tensors[ITEMS], some_items)
        return PairRows(user, item, *self._tensors(user_place.reshape(-1), item_place.reshape(items.shape)))

    def _final(self, model: Dragon, side: str, table: Tensor, some: np.ndarray) -> Tensor:
        """Final vectors of the users or items (``side``) ``some``, int64 [m], distinct and ascending; ``table``: all before
        the homogeneous graphs."""
        add = model.add_users if side == USERS else model.add_items
        graph = self._similar[side]
        return table_rows(table if graph is None else add(table, graph), self._tensor(some))

    def compilables(self, model: Dragon) -> list[Compilable]:
        """The feature towers, without the products with the graphs."""
        return [Compilable(tower, "forward") for tower in model.towers]

    def extra_terms(self, model: Dragon, chunk: PairBatch, encoded: Encoded) -> list[Term]:
        """λ · [ Σ_m mean over the batch's users of P_m²  +  mean of the modality weights² ], the means also over
        columns; and for id embeddings the loss of the same pairs, and their norm.
        """
        o, terms = self.settings.objective, []
        users, items = self._tensors(chunk.users, chunk.items)
        if NORM in self.term_names:
            tables = [squares(table_rows(p, users)) for p in model.preferences]
            weights = squares(model.modality_weights) * (len(chunk) / model.modality_weights.numel())
            total = torch.stack(tables).sum() / model.config.embedding_dim + weights
            terms.append(Term(NORM, total, o.regularisation))
        if model.identities is not None:
            # A separate loss: in a joint one they would fit the pairs, and the features would learn almost nothing.
            loss, norm = self.pair_losses(PairRows(model.identities.user, model.identities.item, users, items))
            terms.append(Term(IDENTITY, loss, self.loss_scale))
            terms.append(Term(IDENTITY_NORM, norm, o.identity_regularisation))
        return terms

    def vectors(self, model: Dragon) -> tuple[Tensor, Tensor]:
        """Final vectors of all users and items, fp32, of the model in eval mode."""
        users, items = super().vectors(model)
        with torch.no_grad():
            users = self._final(model, USERS, users, np.arange(len(users)))
            items = self._final(model, ITEMS, items, np.arange(len(items)))
            if model.identities is None:
                return users, items
            identities = model.identities
            return torch.cat((users, identities.user.float()), 1), torch.cat((items, identities.item.float()), 1)

    @property
    def embedding_width(self) -> int:
        """The width of the concatenated modalities, plus that of the id embeddings."""
        m = self.settings.model
        return m.embedding_dim * len(self.modalities) + m.identity_dim


_NEAREST = 130 << 20  # numbers held by the search for the nearest items: blocks of similarities and their order


def memory_parts(graph: TypedGraph, settings: DragonSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    m, size, d = settings.model, sizes_of(graph, settings.model.modalities), settings.model.embedding_dim
    users, items, sets, hidden = size.users, size.items, len(size.widths), HIDDEN * settings.model.embedding_dim
    width = d * sets
    mapping = sum((f + 1) * hidden + (hidden + 1) * d for f in size.widths)
    by_id = size.nodes * m.identity_dim
    links = items * m.item_neighbours * sets * bool(m.item_layers) + users * m.user_neighbours
    rows = rows_of(settings)
    # Normalised and concatenated, propagated, weighted.
    states = size.nodes * sets * d * 4
    vectors = size.nodes * (sets * d * 3 + width * (3 if m.identity_dim else 2)) + 2 * by_id
    return [
        Part("embeddings and mapping of the features", "weights", sets * users * (d + 1) + mapping + by_id),
        Part("features", "always", sum(items * f for f in size.widths)),
        Part("interactions and the user-item matrix", "always", size.edges, BYTES_PER_EDGE),
        Part("graphs of alike items and users", "always", links, 48),
        Part("states of the graph", "kept", states + items * 2 * hidden, recomputed=states + items * hidden),
        pairs_part(settings, width + m.identity_dim, setup),
        # The vectors that the homogeneous graphs make, and the rows of them that the pairs name.
        Part(
            "vectors by the graphs of alike items and users", "loss", (2 * size.nodes + min(rows, size.nodes)) * width
        ),
        evaluation_part(vectors),
        # Before the first step; it takes about as much memory as an evaluation.
        Part("search for alike items", "evaluation", _NEAREST * bool(m.item_layers and items > 2048)),
    ]
