"""Everything that an HGT training can be told. Importable without torch: the Launchpad is generated from it."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting
from graphmill.systems.base import LinkSettings
from graphmill.systems.hgt.presets import LINK_CONTRASTIVE, PRESETS, PRESETS_OF_LINK_CONTRASTIVE, choose_preset
from graphmill.systems.hgt.sampling_settings import HgtSampling
from graphmill.training.settings import (
    MICRO_BATCHES,
    AccelerationSettings,
    TrainingSettings,
)

__all__ = ["PRESETS", "HgtSettings", "choose_preset", "presets_of"]


class HgtModel(Settings):
    """The network: tables by node type, HGT layers if any, a two-layer head, a decoder; with softmax spectral vectors."""

    embedding_dim: int = setting(512, "Width of the exported embedding", ge=1)
    hidden_dim: int = setting(
        64, "Width of lookup tables and layers; a multiple of num_heads. Loss link_contrastive: 256 by default", ge=1
    )
    num_layers: int = setting(0, "Number of HGT layers; 0: none. Loss link_contrastive: 2 by default", ge=0, le=8)
    num_heads: int = setting(
        4, "Only with layers: number of attention heads of each. Loss link_contrastive: 8 by default", ge=1
    )
    dropout: float = setting(0.2, "Only with layers: dropout after each", ge=0.0, lt=1.0)
    layer_norm: bool = setting(True, "Only with layers: apply LayerNorm per node type after each one's skip connection")
    output_norm: bool = setting(
        True, "Apply LayerNorm to the embedding itself, so that nodes with many links do not have longer vectors"
    )
    decoder: Literal["distmult", "dot"] = setting("distmult", "Link score: distmult is Σ z_h r z_t, dot is z_h · z_t")
    learned_share: float = setting(
        0.125,
        "Loss softmax: share of the embedding's width that is learned; the rest are spectral vectors of the "
        "typed neighbourhoods, which are not trained (0: only spectral vectors, 1: none)",
        ge=0.0,
        le=1.0,
    )
    complex_dim: int = setting(
        128,
        "Loss softmax: width of ComplEx vectors that are trained in addition, at most embedding_dim. Their score is added "
        "with weights chosen on each relation's validation links. An export has them in relations.safetensors, not in "
        "the embedding (0: none)",
        ge=0,
    )
    pair_features: bool = setting(
        True,
        "Loss softmax: add to the score how similar the two neighbourhoods are (kNN) and which paths of one or two "
        "edges lead from head to target, with weights chosen on each relation's validation links. An export has them "
        "in relations.safetensors, not in the embedding",
    )
    neighbour_sums: bool = setting(
        True,
        "Loss softmax: score a link by the similarity of its target to the head's other targets in the relation, and "
        "of its head to the target's other heads; false: score only the two nodes themselves",
    )
    popularity: bool = setting(
        True,
        "Add w_r · log(1 + degree of the target in the relation) to the score, so that the vectors need not encode it",
    )
    relation_strength: bool = setting(
        True,
        "Only if neither pair_features nor complex_dim weights the score: in rankings, scale each relation's vectors "
        "against popularity by the factor that ranks its validation links best (0.02 to 1, chosen at every "
        "evaluation). Embeddings and training do not change",
    )

    @property
    def learned_dim(self) -> int:
        """With a softmax: width of the part that is learned, at the end of an embedding."""
        return round(self.embedding_dim * self.learned_share)

    @model_validator(mode="after")
    def _divisible(self) -> "HgtModel":
        if self.complex_dim % 2:
            raise ValueError(
                f"model.complex_dim {self.complex_dim} is odd, and half of a complex vector is real; make it even"
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
        "softmax: rank the right target among candidates of its type, with spectral and learned vectors; "
        "link_contrastive: rank it among a few wrong targets, and draw nodes that share neighbours together",
    )
    candidates: int = setting(
        1024,
        "softmax: number of wrong targets drawn per step from each node type and shared by all its links; all nodes "
        "of a smaller type",
        ge=1,
    )
    negatives_per_positive: int = setting(1, "Corrupted targets per supervised edge", ge=1, le=1000)
    contrastive_weight: float = setting(
        0.5, "w: share of the contrastive term in the loss; 0 = links only", ge=0.0, le=1.0
    )
    temperature: float = setting(0.07, "InfoNCE temperature", gt=0.0)
    similarity_threshold: float = setting(
        0.1, "Two nodes with a Jaccard similarity above this are positives of each other", ge=0.0, lt=1.0
    )
    contrastive_type: str = setting("disease", "Node type of the contrastive term")
    contrastive_via: str = setting("gene/protein", "Node type of the shared neighbours that make two nodes similar")
    contrastive_anchors: int = setting(1024, "Maximum number of anchors per step", ge=1)

    @property
    def contrast(self) -> float:
        """Share of the contrastive term; 0 with a softmax."""
        return self.contrastive_weight if self.loss == "link_contrastive" else 0.0

    @property
    def negatives_a_link(self) -> int:
        """Wrong targets that a link has of its own; 0 with a softmax."""
        return self.negatives_per_positive if self.loss == "link_contrastive" else 0

    @property
    def drawn_candidates(self) -> int:
        """Wrong targets of a node type that its links share; 0 without a softmax."""
        return self.candidates if self.loss == "softmax" else 0


_OF_LINK_CONTRASTIVE = (
    *("negatives_per_positive", "temperature", "similarity_threshold"),
    *(name for name in HgtObjective.model_fields if name.startswith("contrastive_")),
)


def _loss_of(values: Mapping[str, Any]) -> str:
    """The loss that written settings name."""
    objective = values.get("objective", {})
    if not isinstance(objective, Mapping):
        return str(getattr(objective, "loss", "softmax"))
    return str(objective.get("loss", "softmax"))


_OF_LAYERS: dict[str, tuple[str, ...]] = {
    "model": ("num_heads", "dropout", "layer_norm"),
    "acceleration": ("gradient_checkpointing",),
}
"""Section → settings that only a model with layers reads."""

_OF_THE_OTHER_LOSS: dict[str, dict[str, tuple[str, ...]]] = {
    "link_contrastive": {
        "model": ("learned_share", "neighbour_sums", "complex_dim", "pair_features"),
        "objective": ("candidates",),
        "training": ("complex_steps",),
    },
    "softmax": {"objective": _OF_LINK_CONTRASTIVE},
}
"""Loss → section → settings that only the other loss reads."""


_COMPLEX_STEPS = 1_000
INFERENCE_ROWS = 16_384
"""Nodes whose final embeddings are computed at once, layer by layer. Fewer need less memory and repeat more work."""


class HgtTraining(TrainingSettings):
    """HGT's training defaults: few steps, since the form of a softmax's score does most, and more steps overfit (ADR 7)."""

    epochs: int = setting(
        2,
        "Passes to make; raising it continues a finished run. Loss link_contrastive: 100 by default",
        identity=False,
        ge=1,
    )
    steps_per_epoch: int = setting(10, "Optimizer steps per epoch", ge=1)
    learning_rate: float = setting(0.005, "Peak learning rate. Loss link_contrastive: 0.001 by default", gt=0.0)
    weight_decay: float = setting(
        0.05, "Weight decay on dense weights (decoupled for adamw). Loss link_contrastive: 0.00001 by default", ge=0.0
    )
    warmup_steps: int = setting(
        10,
        "Linear warm-up: rate × (step + 1) / warmup_steps; 0 = none. Loss link_contrastive: 100 by default",
        ge=0,
    )
    complex_steps: int = setting(
        _COMPLEX_STEPS,
        "model.complex_dim: ComplEx steps per epoch, of 1,024 links each and at most 5 passes over the links, by Adagrad "
        "with a learning rate of 0.1",
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
    gradient_checkpointing: bool = setting(
        False, "Only with layers: recompute each in the backward pass", identity=False
    )
    clip_norm: float = setting(1.0, "Largest norm of the gradient; 0 = off", ge=0.0)


class HgtSettings(LinkSettings):
    """One HGT run: the shape of ``settings.yaml``."""

    system: Literal["hgt"] = setting("hgt", "The system to train")
    preset: Literal["auto", "none", "low_memory", "fast", "quality", "m1_8gb", "m1_16gb", "m1_32gb", "cuda"] = setting(
        "auto", "Fills the fields that are not written", identity=False
    )
    shards_rows: ClassVar[bool] = True
    model: HgtModel = setting(HgtModel(), "The network")
    objective: HgtObjective = setting(HgtObjective(), "The loss")
    training: HgtTraining = setting(HgtTraining(), "Length and optimizer")
    sampling: HgtSampling = setting(HgtSampling(), "How a step's training data is sampled")
    acceleration: HgtAcceleration = setting(HgtAcceleration(), "How the arithmetic is done")

    def unread(self, batching: str) -> dict[str, list[str]]:
        """By section the settings that a run with this ``batching`` does not read, and its fingerprint does not contain."""
        unread = [_OF_THE_OTHER_LOSS[self.objective.loss]]
        if not self.complex_width:
            unread.append({"model": ("complex_dim",), "training": ("complex_steps",)})
        if not self.model.num_layers:
            unread.append(_OF_LAYERS)
        if batching == "full":
            unread.append({"sampling": ("accumulation_steps",)})
        sections = {section for each in unread for section in each}
        return {section: [name for each in unread for name in each.get(section, ())] for section in sections}

    @property
    def complex_width(self) -> int:
        """Width of the ComplEx part; 0 without one. At most the embedding's, so that an export stays small."""
        width = min(self.model.complex_dim, self.model.embedding_dim // 2 * 2)
        return width if self.objective.loss == "softmax" else 0

    def without_messages(self) -> "HgtSettings":
        """The same training without message passing: what a link ranking is held against."""
        none: dict[str, Any] = {"num_layers": 0}
        if self.objective.loss == "softmax":
            none |= {"neighbour_sums": False, "pair_features": False}
        return self.model_copy(update={"model": self.model.model_copy(update=none)})

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_loss(cls, values: Any) -> Any:
        """What is not written gets the default of the loss that is."""
        if not isinstance(values, dict) or _loss_of(values) == "softmax":
            return values
        filled = dict(values)
        for section, defaults in LINK_CONTRASTIVE.items():
            own = filled.get(section, {})
            if isinstance(own, dict):
                filled[section] = {**defaults, **own}
        return filled

    @model_validator(mode="after")
    def _honoured(self) -> "HgtSettings":
        loss = self.objective.loss
        for section, names in _OF_THE_OTHER_LOSS[loss].items():
            own = getattr(self, section)
            for name in set(names) & set(type(own).model_fields):
                if getattr(own, name) != type(own).model_fields[name].get_default(call_default_factory=True):
                    other = "softmax" if loss == "link_contrastive" else "link_contrastive"
                    raise ValueError(
                        f"{section}.{name} is not read with objective.loss: {loss}; leave it out, or set objective.loss: "
                        f"{other}"
                    )
        if loss == "softmax" and not self.model.complex_dim and self.training.complex_steps != _COMPLEX_STEPS:
            raise ValueError(
                "training.complex_steps is not read with model.complex_dim: 0; leave it out, or set a width"
            )
        weighed = loss == "softmax" and (self.model.pair_features or self.model.complex_dim)
        if weighed and not self.model.relation_strength:
            raise ValueError(
                "model.relation_strength is not read where validation links weigh the parts of the score; leave it out, or "
                "set model.pair_features: false and model.complex_dim: 0"
            )
        acceleration = self.acceleration
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


def presets_of(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The presets with the loss that settings name: steps of many links suit link_contrastive alone."""
    return PRESETS if _loss_of(values) == "softmax" else PRESETS_OF_LINK_CONTRASTIVE
