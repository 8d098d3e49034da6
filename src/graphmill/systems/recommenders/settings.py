"""The settings that every recommender shares. Importable without torch."""

from typing import ClassVar, Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting
from graphmill.training.settings import (
    OPTIMIZER,
    TRACKER,
    AccelerationSettings,
    EvaluationSettings,
    ExportSettings,
    OptimizerName,
    TrackerSettings,
    TrainingSettings,
)

METRICS = ("recall", "ndcg", "precision", "map", "hit", "mrr")
OWN_METRICS = ("ndcg_kgat",)
BASE_BATCH = 2048


class RecommenderTraining(TrainingSettings):
    """Training defaults: Adam at a steady rate, without decay; the loss has its own regularisation."""

    optimizer: OptimizerName = setting("adam", OPTIMIZER)
    weight_decay: float = setting(0.0, "Weight decay on dense weights (decoupled for adamw)", ge=0.0)
    warmup_steps: int = setting(0, "Linear warm-up: rate × (step + 1) / warmup_steps; 0 = none", ge=0)
    lr_decay: Literal["none", "cosine", "linear", "exponential"] = setting(
        "none", "Shape of the decay after the warm-up"
    )


class RecommenderEvaluation(EvaluationSettings):
    """Full ranking of all items, training items masked."""

    eval_every: int = setting(1, "Epochs between evaluations on the split that chooses the epoch", identity=False, ge=1)
    metrics: list[str] = setting(["recall", "ndcg"], "Metrics computed at each evaluation", identity=False)
    top_k: list[int] = setting([20], "Cut-offs of the @k metrics", identity=False)
    selection_metric: str = setting("recall@20", "The metric that chooses the best epoch", identity=False)
    selection_split: Literal["valid", "test"] = setting(
        "valid",
        "The split that is measured while training, chooses the best epoch and ends the run by patience; test: as KGAT's "
        "published figures were made, whose test figures are optimistic. A run chosen on test is a run of its own",
    )
    max_queries: int = setting(0, "Users asked while training (seeded sample); 0 = all", identity=False, ge=0)
    mask_validation: bool = setting(
        False, "At the test, mask validation items as well as training items (MMRec and KGAT do not)", identity=False
    )
    floors: bool = setting(
        True,
        "Final evaluation: popularity, item-kNN and EASE on the same split beside the model, and BPR-MF beside its ranking",
        identity=False,
    )

    @property
    def selected_on(self) -> Literal["valid", "test"]:
        """As ``selection_split`` says."""
        return self.selection_split


class RecommenderObjective(Settings):
    """The loss of a pair beside items that its user has not; a recipe adds its norms."""

    loss: Literal["bpr", "sampled_softmax"] = setting(
        "bpr",
        "bpr: −log σ of how much higher the item scores than each negative, their mean; sampled_softmax: −log of its share "
        "in a softmax over itself and them. With one negative both are the same",
    )
    negatives_per_positive: int = setting(1, "Random negatives of each pair (as published: 1)", ge=1, le=1024)


class RecommenderAcceleration(AccelerationSettings):
    """Acceleration of recommenders: one graph forward a step, whatever the batch."""

    batch_size: int = setting(0, "Training triples per optimizer step over all processes; 0 = 2048", ge=0)


class RecommenderSettings(Settings):
    """What all recommenders' ``settings.yaml`` have; a recipe adds ``recipe``, ``model`` and ``objective``."""

    base_batch: ClassVar[int] = BASE_BATCH
    compiles: ClassVar[bool] = True
    """Whether the recipe has anything for torch.compile (``compilables``)."""

    data: str = setting("", "Directory of the typed graph", identity=False)
    training: RecommenderTraining = setting(RecommenderTraining(), "Length and optimizer")
    acceleration: RecommenderAcceleration = setting(RecommenderAcceleration(), "How the arithmetic is done")
    evaluation: RecommenderEvaluation = setting(
        RecommenderEvaluation(), "What is measured while training", identity=False
    )
    export: ExportSettings = setting(ExportSettings(), "What is written afterwards", identity=False)
    tracker: TrackerSettings = setting(TrackerSettings(), TRACKER, identity=False)

    @model_validator(mode="after")
    def _recommender_can_do_it(self) -> "RecommenderSettings":
        acceleration, evaluation = self.acceleration, self.evaluation
        if acceleration.batching not in ("auto", "full"):
            raise ValueError(
                f"acceleration.batching: {acceleration.batching} is not for recommenders, whose step is one pass over the "
                "whole graph; use auto, and accumulation_steps to bound the memory of the loss"
            )
        if acceleration.compile != "off" and not self.compiles:
            raise ValueError(
                f"acceleration.compile: {acceleration.compile} is not for {self.recipe}, which has nothing to compile: its "  # type: ignore[attr-defined]
                "products and losses are compiled kernels already; set it off"
            )
        if acceleration.batch_size and acceleration.batch_size_per_device:
            raise ValueError("acceleration: set batch_size or batch_size_per_device, not both")
        known = (*METRICS, *OWN_METRICS)
        unknown = sorted(set(evaluation.metrics) - set(known))
        if unknown:
            raise ValueError(f"evaluation.metrics: unknown {', '.join(unknown)} (known: {', '.join(known)})")
        if evaluation.selection_metric not in self.measured():
            raise ValueError(
                f"evaluation.selection_metric: {evaluation.selection_metric} is not measured; it is one of "
                f"{', '.join(self.measured())} (see evaluation.metrics and top_k)"
            )
        return self

    def measured(self) -> list[str]:
        """Names of the metrics that every evaluation computes."""
        return [f"{name}@{k}" for name in self.evaluation.metrics for k in self.evaluation.top_k]

    def step_size(self) -> int:
        """Training triples per optimizer step over all processes."""
        acceleration = self.acceleration
        per_device = acceleration.batch_size_per_device * acceleration.processes
        return acceleration.batch_size or per_device or self.base_batch


def choose_preset(device: str, memory_bytes: int) -> tuple[str, str]:
    """What ``preset: auto`` stands for: none, on every device."""
    return "none", f"{memory_bytes / 2**30:.0f} GiB of memory for {device} need no preset"
