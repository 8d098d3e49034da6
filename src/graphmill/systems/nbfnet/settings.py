"""The settings of NBFNet. Importable without torch: the Launchpad is generated from it."""

from typing import Any, ClassVar, Literal

from graphmill.settings import Settings, setting
from graphmill.systems.base import PRESET, LinkSystemSettings
from graphmill.training.settings import EPOCHS, TrainingSettings


class NbfnetModel(Settings):
    """Layers that propagate from the head of a query; their weights depend on its relation."""

    hidden_dim: int = setting(32, "Width of the states of nodes", ge=1)
    num_layers: int = setting(3, "Layers: the length of the longest path from head to tail", ge=1)
    nodes_per_layer: int = setting(
        1500, "Nodes of a query that a layer keeps, by the weight of the paths to them; the last layer keeps all", ge=1
    )


class NbfnetObjective(Settings):
    """Cross-entropy of a link's target over the nodes of its type, without other known targets."""

    candidates: int = setting(
        1000, "Number of nodes of each target type in a step's softmax, drawn for each step; 0 = all of them", ge=0
    )
    edge_dropout: float = setting(
        0.2, "Share of the node pairs whose edges a training query does not see", ge=0.0, lt=1.0
    )
    relation_power: float = setting(
        0.3,
        "Training queries of a relation ∝ its links to this power: 0 = all relations alike, 1 = all links alike",
        ge=0.0,
    )


class NbfnetTraining(TrainingSettings):
    """NBFNet's training defaults: nothing is learned per node, so the steps needed hardly depend on the graph's size."""

    epochs: int = setting(20, EPOCHS, identity=False, ge=0)
    steps_per_epoch: int = setting(100, "Optimizer steps per epoch; 0 = one query for each training link", ge=0)
    learning_rate: float = setting(0.003, "Peak learning rate at the system's base batch", gt=0.0)
    weight_decay: float = setting(0.01, "Weight decay on all weights (decoupled for adamw)", ge=0.0)
    warmup_steps: int = setting(30, "Linear warm-up: rate × (step + 1) / warmup_steps; 0 = none", ge=0)


class NbfnetSettings(LinkSystemSettings):
    """One NBFNet run: the shape of ``settings.yaml``."""

    base_batch: ClassVar[int] = 32
    compiles: ClassVar[bool] = False

    system: Literal["nbfnet"] = setting("nbfnet", "The system to train")
    preset: Literal["auto", "none", "small_graph"] = setting("auto", PRESET, identity=False)  # type: ignore[assignment]
    model: NbfnetModel = setting(NbfnetModel(), "The network")
    objective: NbfnetObjective = setting(NbfnetObjective(), "The loss")
    training: NbfnetTraining = setting(NbfnetTraining(), "Length and optimizer")


PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    # Chosen on the validation triples of UMLS: docs/explanation/nbfnet.md.
    "small_graph": {
        "model": {"num_layers": 4},
        "objective": {"relation_power": 1.0, "edge_dropout": 0.3},
        "training": {"epochs": 14, "weight_decay": 0.3},
    },
}
