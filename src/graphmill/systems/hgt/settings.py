"""Everything that an HGT training can be told. Importable without torch: the Launchpad is generated from it."""

from typing import ClassVar, Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting
from graphmill.systems.base import LinkSystemSettings
from graphmill.training.settings import (
    EPOCHS,
    MICRO_BATCHES,
    AccelerationSettings,
    TrainingSettings,
)

NEGATIVES, TEMPERATURE, SIMILARITY, ANCHORS = 1, 0.07, 0.1, 1024
"""Of link_contrastive: wrong targets of a link; temperature of the contrastive term; Jaccard similarity above which
two nodes are positives of each other; anchors in a step, at most."""
SUPERVISED = 0.1
"""Largest share of a relation's edges that a step supervises on: their pairs carry no message."""
SAMPLES = 4
"""Samples whose gradients make up a step, with edge_sampled."""
INFERENCE_ROWS = 16_384
"""Nodes whose final embeddings are computed at once, layer by layer. Fewer need less memory and repeat more work."""


class HgtModel(Settings):
    """The network: inputs, HGT layers, a linear map per node type, and a decoder of two halves (SimplE)."""

    embedding_dim: int = setting(512, "Width of the exported embedding; even", ge=2)
    inputs: Literal["spectral", "tables"] = setting(
        "spectral",
        "spectral: layers start from spectral vectors of the typed neighbourhoods, which are not trained and are also the "
        "first half of an embedding; tables: from trained tables",
    )
    hidden_dim: int = setting(256, "Width of inputs and layers; a multiple of num_heads", ge=1)
    num_layers: int = setting(2, "Number of HGT layers", ge=1, le=8)
    num_heads: int = setting(4, "Number of attention heads of each layer", ge=1)
    dropout: float = setting(0.2, "Dropout after each layer", ge=0.0, lt=1.0)

    @property
    def spectral_width(self) -> int:
        """Width of the spectral vectors, at the begin of an embedding; 0 without them."""
        return self.embedding_dim // 2 if self.inputs == "spectral" else 0

    @property
    def out_dim(self) -> int:
        """Width of what the layers make of an embedding."""
        return self.embedding_dim - self.spectral_width

    @model_validator(mode="after")
    def _divisible(self) -> "HgtModel":
        if self.embedding_dim % 2:
            raise ValueError(
                f"model.embedding_dim {self.embedding_dim} is odd, and an embedding has two halves; make it even"
            )
        if self.hidden_dim % self.num_heads:
            up = -(-self.hidden_dim // self.num_heads) * self.num_heads
            raise ValueError(
                f"model.hidden_dim {self.hidden_dim} is not a multiple of num_heads {self.num_heads}; use {up}"
            )
        return self


class HgtObjective(Settings):
    """The loss: a softmax over candidate targets, or (1 − w) · link + w · contrastive."""

    loss: Literal["softmax", "link_contrastive"] = setting(
        "softmax",
        "softmax: rank the right target among candidates of its type; link_contrastive: tell it from a wrong target, and "
        "draw nodes that share neighbours together",
    )
    candidates: int = setting(
        1024,
        "softmax: number of wrong targets drawn per step from each node type and shared by all its links; all nodes "
        "of a smaller type",
        ge=1,
    )
    contrastive_weight: float = setting(
        0.5, "link_contrastive: w, the share of the contrastive term in the loss; 0 = links only", ge=0.0, le=1.0
    )
    contrastive_type: str = setting("disease", "link_contrastive: node type of the contrastive term")
    contrastive_via: str = setting(
        "gene/protein", "link_contrastive: node type of the shared neighbours that make two nodes similar"
    )

    @property
    def contrast(self) -> float:
        """Share of the contrastive term; 0 with a softmax."""
        return self.contrastive_weight if self.loss == "link_contrastive" else 0.0

    @property
    def negatives_a_link(self) -> int:
        """Wrong targets that a link has of its own; 0 with a softmax."""
        return NEGATIVES if self.loss == "link_contrastive" else 0

    @property
    def drawn_candidates(self) -> int:
        """Wrong targets of a node type that its links share; 0 without a softmax."""
        return self.candidates if self.loss == "softmax" else 0


_OF_THE_OTHER_LOSS: dict[str, tuple[str, ...]] = {
    "link_contrastive": ("candidates",),
    "softmax": ("contrastive_weight", "contrastive_type", "contrastive_via"),
}
"""Loss → settings of the objective that only the other loss reads."""


class HgtTraining(TrainingSettings):
    """HGT's training defaults: few steps, since layers start from what spectral vectors know, and many steps overfit."""

    epochs: int = setting(12, EPOCHS, identity=False, ge=0)
    steps_per_epoch: int = setting(5, "Optimizer steps per epoch", ge=1)
    learning_rate: float = setting(0.001, "Peak learning rate", gt=0.0)
    weight_decay: float = setting(0.01, "Weight decay on dense weights (decoupled for adamw)", ge=0.0)
    warmup_steps: int = setting(10, "Linear warm-up: rate × (step + 1) / warmup_steps; 0 = none", ge=0)


class HgtSampling(Settings):
    """Which links a step is trained on and, with edge_sampled, which part of the graph it sees."""

    edge_sample_size: int = setting(
        200,
        "Maximum number of links of a relation in a step; with edge_sampled also of its edges that carry messages",
        ge=1,
    )


class HgtAcceleration(AccelerationSettings):
    """HGT's acceleration defaults."""

    LESS_MEMORY: ClassVar[str] = (
        "Reduce sampling.edge_sample_size, raise acceleration.micro_batches, choose acceleration.batching: edge_sampled, or "
        "a smaller model"
    )
    batching: Literal["auto", "full", "edge_sampled"] = setting(  # type: ignore[assignment]
        "auto", "What the messages of one step run over: the whole graph, or a sample per micro-batch"
    )
    micro_batches: int = setting(4, MICRO_BATCHES, identity=False, ge=1)
    clip_norm: float = setting(1.0, "Largest norm of the gradient; 0 = off", ge=0.0)


class HgtSettings(LinkSystemSettings):
    """One HGT run: the shape of ``settings.yaml``."""

    system: Literal["hgt"] = setting("hgt", "The system to train")
    shards_rows: ClassVar[bool] = True
    model: HgtModel = setting(HgtModel(), "The network")
    objective: HgtObjective = setting(HgtObjective(), "The loss")
    training: HgtTraining = setting(HgtTraining(), "Length and optimizer")
    sampling: HgtSampling = setting(HgtSampling(), "How a step's training data is sampled")
    acceleration: HgtAcceleration = setting(HgtAcceleration(), "How the arithmetic is done")

    @property
    def layer_widths(self) -> list[int]:
        """Width of the vectors that each layer gathers if tables are divided by rows."""
        return [self.model.hidden_dim] * self.model.num_layers

    def unread(self, batching: str) -> dict[str, list[str]]:
        """By section the settings that a run with this ``batching`` does not read, and its fingerprint does not contain."""
        return {"objective": list(_OF_THE_OTHER_LOSS[self.objective.loss])}

    @model_validator(mode="after")
    def _honoured(self) -> "HgtSettings":
        loss, acceleration = self.objective.loss, self.acceleration
        for name in _OF_THE_OTHER_LOSS[loss]:
            if getattr(self.objective, name) != HgtObjective.model_fields[name].default:
                other = "softmax" if loss == "link_contrastive" else "link_contrastive"
                raise ValueError(
                    f"objective.{name} is not read with objective.loss: {loss}; leave it out, or set objective.loss: {other}"
                )
        if acceleration.batch_size:
            raise ValueError(
                "HGT's step is sampling.edge_sample_size pairs per relation; acceleration.batch_size does not apply, "
                "leave it at 0"
            )
        if acceleration.sharding == "rows" and acceleration.batching != "full":
            raise ValueError(
                f"acceleration.sharding: rows needs batching: full, not {acceleration.batching}, whose samples are dealt "
                "out to the processes already; set batching: full, or sharding: none"
            )
        return self
