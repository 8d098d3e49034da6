"""The settings that every recommender shares. Importable without torch."""

from typing import ClassVar, Literal

from graphmill.settings import Settings, setting
from graphmill.systems.base import ClosedFormSettings, SteadyTraining, SystemSettings
from graphmill.training.settings import EvaluationSettings

LOSS = (
    "bpr: −log σ of the difference between the score of the item and that of each negative, averaged; "
    "sampled_softmax: −log of the item's share in a softmax over itself and the negatives. With one negative the "
    "two are the same"
)
METRICS = ("recall", "ndcg", "precision", "map", "hit", "mrr")


class RecommenderEvaluation(EvaluationSettings):
    """Full ranking of all items, with training items masked."""

    AT_K: ClassVar[tuple[str, ...]] = METRICS
    BASELINES: ClassVar[tuple[str, ...]] = ("popularity", "item_knn", "ease", "mf")

    eval_every: int = setting(1, "Epochs between evaluations on the split that chooses the epoch", identity=False, ge=1)
    metrics: list[str] = setting(["recall", "ndcg"], "Metrics computed at each evaluation", identity=False)
    top_k: list[int] = setting([20], "Cut-offs of the @k metrics", identity=False)
    selection_metric: str = setting("recall@20", "The metric that chooses the best epoch", identity=False)
    selection_split: Literal["valid", "test"] = setting(
        "valid",
        "The split that is measured during training, chooses the best epoch, and ends the run by patience. test: as "
        "for KGAT's published figures; test figures are then optimistic. A run chosen on test is a separate run",
    )
    max_queries: int = setting(
        0, "Number of users evaluated during training (a seeded sample); 0 = all", identity=False, ge=0
    )
    baselines: list[str] = setting(
        ["popularity", "item_knn", "ease", "mf"],
        "Final evaluation: baselines to rank on the same split; mf is trained, and only appears in the asset "
        "`_ranking` and `graphmill rank`",
        identity=False,
    )

    @property
    def selected_on(self) -> Literal["valid", "test"]:
        """The split on which the epoch is chosen: ``selection_split``."""
        return self.selection_split


class RecommenderObjective(Settings):
    """The loss of a pair against items without an interaction of its user; a system adds its norms."""

    loss: Literal["bpr", "sampled_softmax"] = setting("bpr", LOSS)
    negatives_per_positive: int = setting(
        1, "Number of random negatives for each pair (as published: 1)", ge=1, le=1024
    )


class SoftmaxObjective(RecommenderObjective):
    """The same with a softmax by default, which wins on most data."""

    loss: Literal["sampled_softmax", "bpr"] = setting("sampled_softmax", LOSS)
    negatives_per_positive: int = setting(
        64, "Number of random negatives for each pair (as published for bpr: 1)", ge=1, le=1024
    )


class RecommenderSettings(SystemSettings):
    """The settings in every recommender's ``settings.yaml``; a system adds ``system``, ``model`` and ``objective``."""

    base_batch: ClassVar[int] = 2048

    objective: RecommenderObjective = setting(RecommenderObjective(), "The loss")
    training: SteadyTraining = setting(SteadyTraining(), "Length and optimizer")
    evaluation: RecommenderEvaluation = setting(
        RecommenderEvaluation(), "What is measured while training", identity=False
    )


class ClosedFormRecommenderSettings(ClosedFormSettings):
    """The settings of recommenders in closed form."""

    evaluation: RecommenderEvaluation = setting(
        RecommenderEvaluation(), "What is measured while training", identity=False
    )
