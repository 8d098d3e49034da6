"""The system of BPR-MF. Its vectors are a baseline for other recommenders, and initial vectors for KGAT (``init_from``)."""

from __future__ import annotations

from graphmill.systems.bpr_mf.model import BprMf
from graphmill.systems.bpr_mf.settings import BprMfSettings
from graphmill.systems.recommenders.batch import PairBatch
from graphmill.systems.recommenders.system import ITEMS, USERS, RecommenderSystem
from graphmill.training.contract import Encoded, Term

NORM = "norm"


class BprMfSystem(RecommenderSystem[BprMf]):
    """L = mean −log σ(u·i − u·j) + λ mean ½(‖u‖² + ‖i‖² + ‖j‖²) over the step's triples; averaged over several j."""

    settings: BprMfSettings
    term_names = (NORM,)
    can_checkpoint = False

    def make_model(self) -> BprMf:
        """The two tables."""
        return BprMf(self.view.num_users, self.view.num_items, self.settings.model.embedding_dim)

    def encode(self, model: BprMf, batch: PairBatch) -> Encoded:
        """The tables themselves."""
        return Encoded({USERS: model.user, ITEMS: model.item})

    def terms(self, model: BprMf, chunk: PairBatch, encoded: Encoded | None) -> list[Term]:
        """The loss of the pairs, and the norm of the step's vectors; the norms of several negatives are averaged."""
        assert encoded is not None
        loss, norm = self.pair_losses(self.rows(model, chunk.users, chunk.items, encoded))
        count = float(len(chunk))
        return [Term(self.loss, loss, count), Term(NORM, norm, count, self.settings.objective.regularisation)]
