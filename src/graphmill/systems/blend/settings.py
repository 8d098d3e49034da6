"""The settings of a blend. Importable without torch: the Launchpad is generated from it."""

from typing import Literal, get_args

from pydantic import model_validator

from graphmill.settings import Settings, setting
from graphmill.systems.base import ClosedFormSettings
from graphmill.training.settings import AccelerationSettings, LinkEvaluationSettings

PartName = Literal["spectral", "knn", "paths", "features", "complex", "nbfnet"]
PARTS: tuple[PartName, ...] = get_args(PartName)


class BlendModel(Settings):
    """The parts of the score, beside the popularity of the target."""

    embedding_dim: int = setting(512, "Width of the spectral vectors, which are the exported embedding", ge=1)
    parts: list[PartName] = setting(
        [],
        "spectral: sums over a relation's neighbours of spectral vectors, always there; knn: similarity of neighbourhoods; "
        "paths: counted paths of one or two edges; features: similarity of nodes' features, for candidates with few "
        "links, left out where the graph has none; complex: a trained ComplEx; nbfnet: a trained NBFNet. Empty: all of "
        "them, but nbfnet only where its training takes about ten minutes of a CPU core or less",
    )

    @model_validator(mode="after")
    def _possible(self) -> "BlendModel":
        if self.parts and "spectral" not in self.parts:
            raise ValueError("model.parts lacks spectral, whose vectors are the embedding; add it")
        if len(set(self.parts)) < len(self.parts):
            raise ValueError("model.parts names a part twice; name each once")
        return self


class BlendSettings(ClosedFormSettings):
    """One blend: the shape of ``settings.yaml``. ComplEx is trained with the settings of a baseline, NBFNet by its
    defaults, and on small graphs for fewer steps."""

    system: Literal["blend"] = setting("blend", "The system to train")
    model: BlendModel = setting(BlendModel(), "The parts")
    acceleration: AccelerationSettings = setting(AccelerationSettings(), "How the arithmetic is done")  # type: ignore[assignment]
    evaluation: LinkEvaluationSettings = setting(LinkEvaluationSettings(), "What is measured", identity=False)
