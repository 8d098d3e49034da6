"""The settings of a blend. Importable without torch: the Launchpad is generated from it."""

from typing import ClassVar, Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting
from graphmill.systems.base import PRESET, LinkSettings
from graphmill.training.settings import TrainingSettings

PartName = Literal["spectral", "knn", "paths", "complex"]


class BlendModel(Settings):
    """The parts of the score, beside the popularity of the target."""

    embedding_dim: int = setting(512, "Width of the spectral vectors, which are the exported embedding", ge=1)
    parts: list[PartName] = setting(
        ["spectral", "knn", "paths", "complex"],
        "spectral: sums over a relation's neighbours of spectral vectors, always there; knn: similarity of neighbourhoods; "
        "paths: counted paths of one or two edges; complex: a trained ComplEx. An export has what the others need in "
        "relations.safetensors",
    )

    @model_validator(mode="after")
    def _possible(self) -> "BlendModel":
        if "spectral" not in self.parts:
            raise ValueError("model.parts lacks spectral, whose vectors are the embedding; add it")
        if len(set(self.parts)) < len(self.parts):
            raise ValueError("model.parts names a part twice; name each once")
        return self


class BlendTraining(TrainingSettings):
    """Nothing of a blend's own is trained; ComplEx is trained with the settings of a baseline."""

    epochs: ClassVar[int] = 1  # type: ignore[misc]
    steps_per_epoch: ClassVar[int] = 0  # type: ignore[misc]
    learning_rate: ClassVar[float] = 0.0  # type: ignore[misc]
    weight_decay: ClassVar[float] = 0.0  # type: ignore[misc]
    warmup_steps: ClassVar[int] = 0  # type: ignore[misc]
    lr_decay: ClassVar[str] = "none"  # type: ignore[misc]
    lr_decay_epochs: ClassVar[int] = 0  # type: ignore[misc]
    patience_epochs: ClassVar[int] = 0  # type: ignore[misc]
    init_from: ClassVar[str] = ""  # type: ignore[misc]
    seed: int = setting(0, "Seed of every random number of the run", ge=0)


class BlendSettings(LinkSettings):
    """One blend: the shape of ``settings.yaml``."""

    base_batch: ClassVar[int] = 1
    compiles: ClassVar[bool] = False

    system: Literal["blend"] = setting("blend", "The system to train")
    preset: Literal["auto", "none"] = setting("auto", PRESET, identity=False)
    model: BlendModel = setting(BlendModel(), "The parts")
    training: BlendTraining = setting(BlendTraining(), "Seed")

    @model_validator(mode="after")
    def _honoured(self) -> "BlendSettings":
        if self.acceleration.processes > 1:
            raise ValueError("acceleration.processes: a blend is made by one process; leave it at 1")
        if self.acceleration.batch_size:
            raise ValueError("acceleration.batch_size: a blend has no steps of its own; leave it at 0")
        return self
