"""The settings of KGAT beyond those that all recommenders share. Importable without torch."""

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting
from graphmill.systems.base import PRESET, SteadyTraining
from graphmill.systems.recommenders.settings import RecommenderObjective, RecommenderSettings


class KgatModel(Settings):
    """The network."""

    embedding_dim: int = setting(64, "Width of the vectors of nodes and relations, and of projected nodes", ge=1)
    layer_dims: list[int] = setting(
        [64, 32, 16], "Width of each layer; the results of all layers are appended to the node's own vector"
    )
    aggregation: Literal["bi_interaction", "gcn", "graphsage"] = setting(
        "bi_interaction",
        "How a node is combined with its neighbourhood: by sum and product, by sum, or by concatenation",
    )
    message_dropout: float = setting(0.1, "Dropout on each layer's output", ge=0.0, lt=1.0)
    leaky_slope: float = setting(
        0.01, "Slope of the leaky ReLU below 0 (0.2 in the authors' TensorFlow code); 1 makes layers linear", ge=0.0
    )
    layer_length: float = setting(
        1.0,
        "Length that each layer's output is scaled to in the final vectors (1 as published). A smaller length gives the "
        "nodes' own vectors, such as those of training.init_from, more weight in the score",
        gt=0.0,
    )

    @model_validator(mode="after")
    def _fits(self) -> "KgatModel":
        if not self.layer_dims or min(self.layer_dims) < 1:
            raise ValueError("model.layer_dims needs at least one width of 1 or more (for none use the system mf)")
        return self


class KgatObjective(RecommenderObjective):
    """The losses of the two phases."""

    regularisation: float = setting(0.00001, "λ of ½‖·‖² of the step's final vectors, averaged over the step", ge=0.0)
    kg_batch_size: int = setting(
        0, "Facts per step of the knowledge phase; 0 = twice the batch of the other phase", ge=0
    )
    mask_pairs: bool = setting(
        False,
        "Remove the interactions that a step predicts from its propagation, because each would carry the vector that "
        "is to be found (as published, they stay)",
    )


class KgatTraining(SteadyTraining):
    """Training defaults."""

    learning_rate: float = setting(0.0001, "Peak learning rate at the system's base batch", gt=0.0)


class KgatSettings(RecommenderSettings):
    """One KGAT run: the shape of ``settings.yaml``."""

    base_batch: ClassVar[int] = 1024
    compiles: ClassVar[bool] = False
    shards_rows: ClassVar[bool] = True

    system: Literal["kgat"] = setting("kgat", "The system to train")
    preset: Literal["auto", "none", "paper"] = setting("auto", PRESET, identity=False)  # type: ignore[assignment]
    model: KgatModel = setting(KgatModel(), "The network")
    objective: KgatObjective = setting(KgatObjective(), "The losses")
    training: KgatTraining = setting(KgatTraining(), "Length and optimizer")

    @property
    def layer_widths(self) -> list[int]:
        """Width of the vectors that each layer gathers if tables are divided by rows."""
        return [self.model.embedding_dim, *self.model.layer_dims[:-1]]


# The published protocol: at most 1000 epochs, an evaluation every ten epochs, stop after ten evaluations without a
# better Recall@20. Its data has no validation split: evaluations use the test split, which also chose the published
# epoch.
PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    "paper": {
        "training": {"epochs": 1000, "patience_epochs": 100},
        "evaluation": {
            "eval_every": 10,
            "selection_split": "test",
            "metrics": ["recall", "precision", "hit", "ndcg"],
            "top_k": [20, 40, 60, 80, 100],
        },
    },
}
