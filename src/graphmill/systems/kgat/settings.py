"""Everything that a KGAT training can be told beyond what recommenders share. Importable without torch."""

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting
from graphmill.systems.base import SteadyTraining
from graphmill.systems.recommenders.settings import RecommenderObjective, RecommenderSettings


class KgatModel(Settings):
    """The network."""

    embedding_dim: int = setting(64, "Width of the vectors of users, items and entities", ge=1)
    relation_dim: int = setting(64, "Width of relations and projected nodes", ge=1)
    layer_dims: list[int] = setting(
        [64, 32, 16], "Width of each layer; their results stand behind the node's own vector"
    )
    aggregation: Literal["bi_interaction", "gcn", "graphsage"] = setting(
        "bi_interaction", "How a node meets its neighbourhood: sum and product, sum, or both side by side"
    )
    attention: bool = setting(
        True, "Weigh edges by attention, renewed every epoch; false: the first epoch's weights stay"
    )
    first_weights: Literal["random_walk", "symmetric"] = setting(
        "random_walk", "Weights until the first attention: D⁻¹A or D^−½AD^−½ of each relation, added up over relations"
    )
    message_dropout: float = setting(0.1, "Dropout on each layer's result", ge=0.0, lt=1.0)
    leaky_slope: float = setting(
        0.01, "Slope of the leaky ReLU below 0 (the authors' TensorFlow code: 0.2); 1 = linear layers", ge=0.0
    )
    layer_length: float = setting(
        1.0,
        "Length that each layer's result is scaled to in the final vectors (published: 1); the smaller, the more a score "
        "is that of the nodes' own vectors, such as those of training.init_from",
        gt=0.0,
    )

    @model_validator(mode="after")
    def _fits(self) -> "KgatModel":
        if not self.layer_dims or min(self.layer_dims) < 1:
            raise ValueError("model.layer_dims needs at least one width of 1 or more (for none use the recipe bpr_mf)")
        return self


class KgatObjective(RecommenderObjective):
    """The losses of the two phases."""

    regularisation: float = setting(0.00001, "λ of ½‖·‖² of the step's final vectors, a mean over the step", ge=0.0)
    kg_regularisation: float = setting(0.00001, "λ of ½‖·‖² of the projected vectors of the knowledge phase", ge=0.0)
    draw: Literal["users", "pairs"] = setting(
        "users", "Users and one item of each (as published), or every training pair once an epoch"
    )
    kg_batch_size: int = setting(0, "Facts per step of the knowledge phase; 0 = by kg_batch", ge=0)
    kg_batch: Literal["double", "by_facts"] = setting(
        "double",
        "Twice the other phase's batch (the convention per GPU), or facts of the data / steps of the other phase "
        "(the authors' TensorFlow code)",
    )
    mask_pairs: bool = setting(
        False,
        "Leave the interactions that a step is to predict out of its propagation, where each carries the very vector that "
        "is to be found (published: they stay)",
    )
    knowledge_phase: bool = setting(True, "Train the vectors on the graph's facts as well (TransR)")

    def facts_per_step(self, cf_batch: int, pairs: int, facts: int) -> int:
        """Batch of the knowledge phase; ``facts``: triples of the data, without inverses and interactions."""
        if self.kg_batch_size:
            return self.kg_batch_size
        if self.kg_batch == "by_facts" and facts:
            return max(facts // max(pairs // cf_batch, 1), 1)
        return 2 * cf_batch


class KgatTraining(SteadyTraining):
    """Training defaults."""

    learning_rate: float = setting(0.0001, "Peak learning rate at the recipe's base batch", gt=0.0)


class KgatSettings(RecommenderSettings):
    """One KGAT run: the shape of ``settings.yaml``."""

    base_batch: ClassVar[int] = 1024
    compiles: ClassVar[bool] = False
    shards_rows: ClassVar[bool] = True

    recipe: Literal["kgat"] = setting("kgat", "The system to train")
    preset: Literal["auto", "none", "paper"] = setting("auto", "Fills the fields that are not written", identity=False)
    model: KgatModel = setting(KgatModel(), "The network")
    objective: KgatObjective = setting(KgatObjective(), "The losses")
    training: KgatTraining = setting(KgatTraining(), "Length and optimizer")

    @property
    def unread(self) -> dict[str, list[str]]:
        """What runs of earlier releases did not have, where it changes nothing: they keep their fingerprint."""
        return {"model": ["layer_length"]} if self.model.layer_length == 1.0 else {}


# The published protocol: 1000 epochs at most, an evaluation every ten, over after ten of them without a better Recall@20.
# Its data has no validation split: these are evaluations on the test split, and so was the published epoch chosen.
PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    "paper": {
        "training": {"epochs": 1000, "patience_epochs": 100},
        "evaluation": {
            "eval_every": 10,
            "selection_split": "test",
            "metrics": ["recall", "precision", "hit", "ndcg", "ndcg_kgat"],
            "top_k": [20, 40, 60, 80, 100],
        },
    },
}
