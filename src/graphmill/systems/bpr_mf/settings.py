"""The settings of BPR-MF beyond those that all recommenders share. Importable without torch."""

from typing import ClassVar, Literal

from graphmill.settings import Settings, setting
from graphmill.systems.base import PRESET, SteadyTraining
from graphmill.systems.recommenders.settings import RecommenderObjective, RecommenderSettings


class BprMfModel(Settings):
    """Two tables."""

    embedding_dim: int = setting(64, "Width of the vectors of users and items", ge=1)


class BprMfObjective(RecommenderObjective):
    """The loss of the pairs and the norm of the step's vectors."""

    regularisation: float = setting(
        0.01, "λ of ½‖·‖² of the vectors of the user, the item and the negative, averaged over the step", ge=0.0
    )


class BprMfTraining(SteadyTraining):
    """Training defaults: many epochs, since they are cheap."""

    learning_rate: float = setting(0.005, "Peak learning rate at the system's base batch", gt=0.0)
    epochs: int = setting(200, "Number of passes; a larger number continues a finished run", identity=False, ge=1)


class BprMfSettings(RecommenderSettings):
    """One BPR-MF run: the shape of ``settings.yaml``."""

    compiles: ClassVar[bool] = False

    system: Literal["bpr_mf"] = setting("bpr_mf", "The system to train")
    preset: Literal["auto", "none"] = setting("auto", PRESET, identity=False)
    model: BprMfModel = setting(BprMfModel(), "The network")
    objective: BprMfObjective = setting(BprMfObjective(), "The loss")
    training: BprMfTraining = setting(BprMfTraining(), "Length and optimizer")
