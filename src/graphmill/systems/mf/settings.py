"""The settings of matrix factorisation beyond those that all recommenders share. Importable without torch."""

from typing import ClassVar, Literal

from graphmill.settings import Settings, setting
from graphmill.systems.base import SteadyTraining
from graphmill.systems.recommenders.settings import RecommenderSettings, SoftmaxObjective
from graphmill.training.settings import EPOCHS


class MfModel(Settings):
    """Two tables."""

    embedding_dim: int = setting(64, "Width of the vectors of users and items", ge=1)


class MfObjective(SoftmaxObjective):
    """The loss of the pairs and the norm of the step's vectors."""

    regularisation: float = setting(
        0.3, "λ of ½‖·‖² of the vectors of the user, the item and the negative, averaged over the step", ge=0.0
    )


class MfTraining(SteadyTraining):
    """Training defaults: many epochs, since they are cheap."""

    learning_rate: float = setting(0.005, "Peak learning rate at the system's base batch", gt=0.0)
    epochs: int = setting(200, EPOCHS, identity=False, ge=0)


class MfSettings(RecommenderSettings):
    """One run of matrix factorisation: the shape of ``settings.yaml``."""

    compiles: ClassVar[bool] = False

    system: Literal["mf"] = setting("mf", "The system to train")
    model: MfModel = setting(MfModel(), "The network")
    objective: MfObjective = setting(MfObjective(), "The loss")
    training: MfTraining = setting(MfTraining(), "Length and optimizer")


TRIES = {"mf": ({"objective": {"regularisation": 0.1}},)}
"""λ = 0.3 is too much where users have many items each."""
