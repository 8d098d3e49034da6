"""The settings of ConvE. Importable without torch: the Launchpad is generated from it."""

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from graphmill.settings import Settings, require_unset, setting
from graphmill.systems.base import PRESET, LinkSystemSettings, SteadyTraining
from graphmill.training.settings import AccelerationSettings


def picture_shape(dim: int, height: int) -> tuple[int, int]:
    """Height and width of an embedding's picture; 0: chosen so that it is closest to a square, not higher than wide."""
    height = height or max(h for h in range(1, int(dim**0.5) + 1) if dim % h == 0)
    return height, dim // height


class ConveModel(Settings):
    """The network. Head and relation become two stacked images, so the convolution's input has twice the height."""

    embedding_dim: int = setting(200, "Width of entity and relation vectors", ge=2)
    embedding_height: int = setting(
        0, "Height of the image into which a vector is reshaped; 0 = near a square: 10 for 200, 8 for 128", ge=0
    )
    output_channels: int = setting(32, "Feature maps of the convolution", ge=1)
    kernel_height: int = setting(3, "Height of the convolution's kernel", ge=1)
    kernel_width: int = setting(3, "Width of the convolution's kernel", ge=1)
    input_dropout: float = setting(0.2, "Dropout of the images", ge=0.0, lt=1.0)
    feature_map_dropout: float = setting(0.2, "Dropout of whole feature maps", ge=0.0, lt=1.0)
    output_dropout: float = setting(0.3, "Dropout before the last norm; 0.5 suits FB15k-237", ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _shape_fits(self) -> "ConveModel":
        height, width = self.shape
        if height * width != self.embedding_dim:
            raise ValueError(
                f"model.embedding_dim {self.embedding_dim} is not a multiple of embedding_height {height}; set the height "
                "to 0 to have it chosen"
            )
        if self.kernel_height > 2 * height or self.kernel_width > width:
            raise ValueError(
                f"model.kernel_height × kernel_width {self.kernel_height} × {self.kernel_width} is larger than the "
                f"stacked pictures, {2 * height} × {width}"
            )
        return self

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of a picture, resolved."""
        return picture_shape(self.embedding_dim, self.embedding_height)


class ConveObjective(Settings):
    """The loss: of each query against all entities, or against a few sampled ones."""

    loss: Literal["softmax", "bce"] = setting(
        "bce",
        "bce: each score by itself, as published; softmax: rank each known tail among all entities",
    )
    negatives: Literal["all", "sampled"] = setting(
        "all",
        "all: score a query (head, relation) with all its known tails against every entity; sampled: score a triple "
        "against negatives_per_positive random tails, for very many entities",
    )
    label_smoothing: float = setting(
        0.1,
        "With negatives: all. ε of the targets. bce: known tails get 1 − ε, the others ε/(N − 1), 0 = ones and zeros; "
        "softmax: a known tail gets 1 − ε, and all entities share ε",
        ge=0.0,
        lt=1.0,
    )
    negatives_per_positive: int = setting(32, "With negatives: sampled. Random tails per triple", ge=1, le=10_000)

    @model_validator(mode="after")
    def _read(self) -> "ConveObjective":
        other = "label_smoothing" if self.negatives == "sampled" else "negatives_per_positive"
        require_unset(self, [other], "objective", f"objective.negatives: {self.negatives}")
        return self


class ConveTraining(SteadyTraining):
    """ConvE's training defaults."""

    patience_epochs: int = setting(
        0, "Stop after this many epochs without a better selection metric; 0 = never", identity=False, ge=0
    )


class ConveAcceleration(AccelerationSettings):
    """ConvE's acceleration defaults."""

    micro_batches: int = setting(
        1,
        "With negatives: all. Number of parts of the loss, divided over queries; the network takes the step's whole batch, "
        "because batch norm needs it",
        identity=False,
        ge=1,
    )


class ConveSettings(LinkSystemSettings):
    """One ConvE run: the shape of ``settings.yaml``."""

    base_batch: ClassVar[int] = 256

    system: Literal["conve"] = setting("conve", "The system to train")
    preset: Literal["auto", "none", "low_memory", "small_graph"] = setting("auto", PRESET, identity=False)  # type: ignore[assignment]
    model: ConveModel = setting(ConveModel(), "The network")
    objective: ConveObjective = setting(ConveObjective(), "The loss")
    training: ConveTraining = setting(ConveTraining(), "Length and optimizer")
    acceleration: ConveAcceleration = setting(ConveAcceleration(), "How the arithmetic is done")


# The settings and their results: docs/explanation/conve.md; complete files: examples/conve/.
PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    "low_memory": {"acceleration": {"batch_size": 128, "gradient_checkpointing": True}},
    # Chosen on the validation triples of Kinship and UMLS: docs/explanation/conve.md.
    "small_graph": {
        "training": {"epochs": 150, "lr_decay": "cosine"},
        "acceleration": {"batch_size": 32, "checkpoint_every_epochs": 10},
        "evaluation": {"eval_every": 10},
    },
}
