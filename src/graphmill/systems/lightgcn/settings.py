"""The settings of LightGCN beyond those that all recommenders share. Importable without torch."""

from typing import ClassVar, Literal

from graphmill.settings import Settings, setting
from graphmill.systems.base import SteadyTraining
from graphmill.systems.recommenders.settings import RecommenderSettings, SoftmaxObjective


class LightGcnModel(Settings):
    """Two tables and a number of layers."""

    embedding_dim: int = setting(64, "Width of the vectors of users and items", ge=1)
    num_layers: int = setting(3, "Number of layers that smooth the vectors; 0: matrix factorisation", ge=0, le=16)


class LightGcnObjective(SoftmaxObjective):
    """The loss of the pairs and the norm of the step's table rows."""

    regularisation: float = setting(
        0.1,
        "λ of ½‖·‖² of the table rows of the user, the item and the negatives, averaged over the step (published: 0.0001)",
        ge=0.0,
    )


class LightGcnTraining(SteadyTraining):
    """Training defaults, chosen on validation."""

    learning_rate: float = setting(0.005, "Peak learning rate at the system's base batch (published: 0.001)", gt=0.0)


class LightGcnSettings(RecommenderSettings):
    """One LightGCN run: the shape of ``settings.yaml``."""

    compiles: ClassVar[bool] = False
    shards_rows: ClassVar[bool] = True

    system: Literal["lightgcn"] = setting("lightgcn", "The system to train")
    model: LightGcnModel = setting(LightGcnModel(), "The network")
    objective: LightGcnObjective = setting(LightGcnObjective(), "The loss")
    training: LightGcnTraining = setting(LightGcnTraining(), "Length and optimizer")

    @property
    def layer_widths(self) -> list[int]:
        """Width of the vectors that each layer gathers if tables are divided by rows."""
        return [self.model.embedding_dim] * self.model.num_layers
