"""The settings of SASRec and TiSASRec. Importable without torch."""

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from graphmill.settings import Settings, require_unset, setting
from graphmill.systems.base import PRESET, SteadyTraining, SystemSettings
from graphmill.training.settings import AccelerationSettings, EvaluationSettings

METRICS = ("ndcg", "hr", "mrr")


class SasrecModel(Settings):
    """The network: item and position tables, blocks of attention and feed-forward."""

    embedding_dim: int = setting(64, "Width of items, states and blocks; a multiple of num_heads", ge=1)
    num_blocks: int = setting(2, "Number of blocks of attention and feed-forward", ge=1, le=64)
    num_heads: int = setting(1, "Number of attention heads", ge=1)
    dropout: float = setting(0.2, "Dropout on inputs, attention weights and feed-forward", ge=0.0, lt=1.0)
    max_length: int = setting(50, "Number of newest interactions of a sequence that the model sees", ge=1)
    norm: Literal["pre", "post", "original"] = setting(
        "pre", "Place of LayerNorm: before each branch, after each residual, or as in the papers' code (original)"
    )
    mhc: Literal["none", "lite", "sinkhorn"] = setting(
        "none",
        "Manifold-constrained hyper-connections: none, exact by permutations (lite), or by Sinkhorn iterations "
        "(sinkhorn)",
    )

    @model_validator(mode="after")
    def _fits(self) -> "SasrecModel":
        if self.embedding_dim % self.num_heads:
            up = -(-self.embedding_dim // self.num_heads) * self.num_heads
            raise ValueError(
                f"model.embedding_dim {self.embedding_dim} is not a multiple of num_heads {self.num_heads}; use {up}"
            )
        if self.mhc != "none" and self.norm != "pre":
            raise ValueError(
                f"model.mhc: {self.mhc} needs model.norm: pre (its branches have a norm and no residual of their own)"
            )
        return self


class TisasrecModel(SasrecModel):
    """SASRec's network with relative times."""

    time_span: int = setting(256, "Longest interval that is distinguished, in units of time_unit", ge=1)
    time_unit: Literal["per_user", "second", "minute", "hour", "day"] = setting(
        "per_user", "Unit of intervals: the user's smallest gap (as in the paper), or a fixed unit"
    )


class SequenceObjective(Settings):
    """The loss."""

    loss: Literal["softmax", "sampled_softmax", "bce"] = setting(
        "softmax",
        "softmax: over all items; sampled_softmax: over items shared by the batch; bce: BCE with k negatives that the user "
        "has not taken (the papers use k = 1)",
    )
    negatives: int = setting(
        0,
        "Not with softmax. bce: negatives per target, 0 = 1; sampled_softmax: items drawn per step, by popularity, "
        "0 = 1024",
        ge=0,
        le=1_000_000,
    )
    windows: Literal["all", "last"] = setting(
        "all",
        "Train on every interaction, in windows of max_length, or only on each user's newest window (as the papers do)",
    )

    @model_validator(mode="after")
    def _read(self) -> "SequenceObjective":
        if self.loss == "softmax":
            require_unset(self, ["negatives"], "objective", "objective.loss: softmax")
        return self

    @property
    def drawn(self) -> int:
        """``negatives``, resolved."""
        return self.negatives or (1024 if self.loss == "sampled_softmax" else 1)


class SequenceTraining(SteadyTraining):
    """Training defaults: Adam with the papers' β₂."""

    BETAS: ClassVar[tuple[float, float]] = (0.9, 0.98)

    warmup_steps: int = setting(50, "Linear warm-up: rate × (step + 1) / warmup_steps; 0 = none", ge=0)


class SequenceEvaluation(EvaluationSettings):
    """Next-item metrics by full ranking."""

    AT_K: ClassVar[tuple[str, ...]] = ("ndcg", "hr")
    WHOLE: ClassVar[tuple[str, ...]] = ("mrr",)
    BASELINES: ClassVar[tuple[str, ...]] = ("popularity", "markov", "session_knn", "repeats")

    metrics: list[str] = setting(["ndcg", "hr", "mrr"], "Metrics computed at each evaluation", identity=False)
    top_k: list[int] = setting([5, 10, 20], "Cut-offs of the @k metrics", identity=False)
    selection_metric: str = setting("ndcg@10", "The metric that chooses the best epoch", identity=False)
    baselines: list[str] = setting(
        ["popularity", "markov", "session_knn", "repeats"],
        "Final evaluation: baselines to rank on the same split; repeats are ranked only if users take the same items again",
        identity=False,
    )


class SequenceAcceleration(AccelerationSettings):
    """Acceleration defaults of sequence models."""

    clip_norm: float = setting(5.0, "Largest norm of the gradient; 0 = off", ge=0.0)


class SasrecSettings(SystemSettings):
    """One SASRec run: the shape of ``settings.yaml``."""

    base_batch: ClassVar[int] = 128

    system: Literal["sasrec"] = setting("sasrec", "The system to train")
    preset: Literal["auto", "none", "low_memory", "paper"] = setting("auto", PRESET, identity=False)  # type: ignore[assignment]
    model: SasrecModel = setting(SasrecModel(), "The network")
    objective: SequenceObjective = setting(SequenceObjective(), "The loss")
    training: SequenceTraining = setting(SequenceTraining(), "Length and optimizer")
    acceleration: SequenceAcceleration = setting(SequenceAcceleration(), "How the arithmetic is done")
    evaluation: SequenceEvaluation = setting(SequenceEvaluation(), "What is measured while training", identity=False)


class TisasrecSettings(SasrecSettings):
    """One TiSASRec run."""

    system: Literal["tisasrec"] = setting("tisasrec", "The system to train")  # type: ignore[assignment]
    model: TisasrecModel = setting(TisasrecModel(), "The network")


# low_memory: for small GPUs; paper: the papers' training.
PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    "low_memory": {
        "model": {"max_length": 100},
        "acceleration": {"batch_size": 64, "gradient_checkpointing": True, "micro_batches": 4},
    },
    "paper": {
        "model": {"embedding_dim": 50, "norm": "original"},
        "objective": {"loss": "bce", "windows": "last"},
        "training": {"epochs": 200, "warmup_steps": 0},
        "acceleration": {"clip_norm": 0.0},
    },
}
