"""The settings of ComplEx. Importable without torch: the Launchpad is generated from it."""

from typing import ClassVar, Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting
from graphmill.systems.base import PRESET, LinkSettings, SteadyTraining
from graphmill.training.settings import OptimizerName


class ComplexModel(Settings):
    """Two tables: vectors of nodes, and vectors of relations and of the inverses that the graph lacks."""

    embedding_dim: int = setting(128, "Width of the vectors; for ComplEx, half real and half imaginary", ge=2)
    scoring: Literal["complex", "distmult"] = setting(
        "complex", "complex: Re Σ h r conj(t), which distinguishes a relation from its inverse; distmult: Σ h r t"
    )
    popularity: bool = setting(
        True,
        "Add w · log(1 + training links into the target) to the score, with one w for each relation, so that the "
        "vectors need not encode degrees",
    )

    @model_validator(mode="after")
    def _halves(self) -> "ComplexModel":
        if self.scoring == "complex" and self.embedding_dim % 2:
            raise ValueError(
                f"model.embedding_dim {self.embedding_dim} is odd, and half of a complex vector is real; make it even"
            )
        return self


class ComplexObjective(Settings):
    """Cross-entropy of a link's target over the nodes of its type, and the norms of the vectors."""

    candidates: int = setting(
        1000, "Number of nodes of each target type in a step's softmax, drawn for each step; 0 = all of them", ge=0
    )
    n3: float = setting(
        0.05,
        "λ of the nuclear 3-norm: Σ |v|³ over head, relation and tail, averaged over the step; 0.02 suits a small graph "
        "with many links a node",
        ge=0.0,
    )


class ComplexTraining(SteadyTraining):
    """ComplEx's training defaults."""

    OPTIMIZER: ClassVar[OptimizerName] = "adagrad"

    epochs: int = setting(50, "Number of passes; a larger number continues a finished run", identity=False, ge=1)
    learning_rate: float = setting(0.1, "Peak learning rate at the system's base batch", gt=0.0)


class ComplexSettings(LinkSettings):
    """One ComplEx run: the shape of ``settings.yaml``."""

    base_batch: ClassVar[int] = 1024
    compiles: ClassVar[bool] = False

    system: Literal["complex"] = setting("complex", "The system to train")
    preset: Literal["auto", "none"] = setting("auto", PRESET, identity=False)
    model: ComplexModel = setting(ComplexModel(), "The network")
    objective: ComplexObjective = setting(ComplexObjective(), "The loss")
    training: ComplexTraining = setting(ComplexTraining(), "Length and optimizer")
