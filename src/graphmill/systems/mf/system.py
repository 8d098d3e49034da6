"""The system of matrix factorisation. Its vectors are where KGAT, MMGCN and DRAGON can start (``init_from``)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.mf.settings import MfSettings
from graphmill.systems.recommenders.fold_in import fold_in_rows
from graphmill.systems.recommenders.memory import evaluation_part, pairs_part, sizes_of
from graphmill.systems.recommenders.system import ITEMS, USERS, PairBatch, RecommenderSystem
from graphmill.systems.recommenders.tables import MatrixFactorisation
from graphmill.training.contract import Encoded, Term
from graphmill.training.planning import Part, Setup

NORM = "norm"


class MfSystem(RecommenderSystem[MatrixFactorisation]):
    """L = mean loss of the pairs + λ mean ½(‖u‖² + ‖i‖² + ‖j‖²) over the step's triples, the norm averaged over j."""

    settings: MfSettings
    term_names = (NORM,)
    can_checkpoint = False

    def make_model(self) -> MatrixFactorisation:
        """The two tables."""
        return MatrixFactorisation(self.view.num_users, self.view.num_items, self.settings.model.embedding_dim)

    def fold_in_rows(self, model: MatrixFactorisation, missing: Mapping[str, np.ndarray]) -> None:
        """:func:`graphmill.systems.recommenders.fold_in.fold_in_rows`."""
        fold_in_rows(self, model.user.detach().numpy(), model.item.detach().numpy(), missing)

    def encode(self, model: MatrixFactorisation, batch: PairBatch) -> Encoded:
        """The tables themselves."""
        return Encoded({USERS: model.user, ITEMS: model.item})

    def terms(self, model: MatrixFactorisation, chunk: PairBatch, encoded: Encoded | None) -> list[Term]:
        """The loss of the pairs, and the norm of the step's vectors; the norms of several negatives are averaged."""
        assert encoded is not None
        loss, norm = self.pair_losses(self.rows(model, chunk.users, chunk.items, encoded))
        return [Term(self.loss, loss), Term(NORM, norm, self.settings.objective.regularisation)]


def memory_parts(graph: TypedGraph, settings: MfSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    size, d = sizes_of(graph), settings.model.embedding_dim
    table = size.nodes * d
    return [
        Part("embeddings", "weights", table),
        # The view's rows in both orders; the sampler's pairs, order and keys.
        Part("interactions", "always", size.edges, 64),
        Part("gradients before they are added up", "kept", 2 * table),
        pairs_part(settings, d, setup),
        evaluation_part(2 * table),
    ]
