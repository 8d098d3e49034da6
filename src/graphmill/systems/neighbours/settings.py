"""The settings of spectral vectors and kNN. Importable without torch: the Launchpad is generated from it."""

from typing import Literal

from graphmill.settings import Settings, setting
from graphmill.systems.base import ClosedFormSettings
from graphmill.training.settings import LinkEvaluationSettings


class NeighboursSettings(ClosedFormSettings):
    """What spectral vectors and kNN share."""

    evaluation: LinkEvaluationSettings = setting(
        LinkEvaluationSettings(), "What is measured while training", identity=False
    )


class SpectralModel(Settings):
    """Vectors of neighbourhoods. Validation links choose which similarities are summed, and their weight."""

    embedding_dim: int = setting(512, "Width of the vectors: the number of singular directions", ge=1)


class SpectralSettings(NeighboursSettings):
    """One run of spectral vectors: the shape of ``settings.yaml``."""

    system: Literal["spectral"] = setting("spectral", "The system to train")
    model: SpectralModel = setting(SpectralModel(), "The vectors")


class KnnModel(Settings):
    """Similarities of neighbourhoods. Validation links choose which of them are summed, and their weight."""

    shrinkage: float = setting(
        0.0,
        "Added to a neighbourhood's squared length: draws similarities of nodes with few neighbours to 0; 0 = the better "
        "of 1 and 3 on the validation split",
        ge=0.0,
    )


class KnnSettings(NeighboursSettings):
    """One kNN run: the shape of ``settings.yaml``."""

    system: Literal["knn"] = setting("knn", "The system to train")
    model: KnnModel = setting(KnnModel(), "The similarities")
