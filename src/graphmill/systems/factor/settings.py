"""The settings of ComplEx, DistMult, RotatE and TransE. Importable without torch: the Launchpad is generated from it."""

from typing import ClassVar, Literal

from pydantic import model_validator

from graphmill.settings import Settings, require_unset, setting
from graphmill.systems.base import LinkSystemSettings, SteadyTraining
from graphmill.training.settings import EPOCHS, OptimizerName


class FactorModel(Settings):
    """Two tables: vectors of nodes, and vectors of relations and of the inverses that the graph lacks."""

    embedding_dim: int = setting(
        128, "Width of the vectors; for complex and rotate, half real and half imaginary: an even number", ge=2
    )


class FactorObjective(Settings):
    """Cross-entropy of a link's target over the nodes of its type, and the norms of the vectors."""

    candidates: int = setting(
        1000, "Number of nodes of each target type in a step's softmax, drawn for each step; 0 = all of them", ge=0
    )
    n3: float = setting(
        0.05,
        "complex and distmult only: λ of the nuclear 3-norm: Σ |v|³ over head, relation and tail, averaged over the step; "
        "0.02 suits a small graph with many links a node",
        ge=0.0,
    )
    relation_weight: float = setting(
        0.5,
        "complex and distmult only: λ of the cross-entropy of a link's relation, given head and target, over the relations "
        "between the same types (Chen et al. 2021); 0 = none",
        ge=0.0,
    )


class FactorTraining(SteadyTraining):
    """The training defaults of all four."""

    OPTIMIZER: ClassVar[OptimizerName] = "adagrad"

    epochs: int = setting(50, EPOCHS, identity=False, ge=0)
    learning_rate: float = setting(0.1, "Peak learning rate at the system's base batch", gt=0.0)


class FactorSettings(LinkSystemSettings):
    """One run of ComplEx, DistMult, RotatE or TransE: the shape of ``settings.yaml``."""

    base_batch: ClassVar[int] = 1024
    compiles: ClassVar[bool] = False

    system: Literal["complex", "distmult", "rotate", "transe"] = setting("complex", "The system to train: the score")
    model: FactorModel = setting(FactorModel(), "The network")
    objective: FactorObjective = setting(FactorObjective(), "The loss")
    training: FactorTraining = setting(FactorTraining(), "Length and optimizer")

    @model_validator(mode="after")
    def _score_reads(self) -> "FactorSettings":
        if self.system in ("complex", "rotate") and self.model.embedding_dim % 2:
            raise ValueError(
                f"model.embedding_dim {self.model.embedding_dim} is odd, and half of a vector of {self.system} is real; "
                "make it even"
            )
        for section, names in self.unread("full").items():
            require_unset(getattr(self, section), names, section, f"system: {self.system}")
        return self

    def unread(self, batching: str) -> dict[str, list[str]]:
        """By section the settings that the score does not read, and its fingerprint does not contain."""
        return {} if self.system in ("complex", "distmult") else {"objective": ["n3", "relation_weight"]}


TRIES = {name: tuple({"objective": {"n3": n3}} for n3 in (0.02, 0.1)) for name in ("complex", "distmult")}
"""The more links determine a node's vector, the less norm it needs."""
