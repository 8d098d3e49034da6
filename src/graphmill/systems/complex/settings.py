"""Everything that a ComplEx training can be told. Importable without torch: the Launchpad is generated from it."""

from typing import Any, Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting
from graphmill.training.settings import (
    OPTIMIZER,
    TRACKER,
    AccelerationSettings,
    ExportSettings,
    LinkEvaluationSettings,
    OptimizerName,
    TrackerSettings,
    TrainingSettings,
)


class ComplexModel(Settings):
    """Two tables: vectors of nodes, and of relations and the inverses that the graph does not hold."""

    embedding_dim: int = setting(128, "Width of the vectors; of ComplEx half real, half imaginary", ge=2)
    scoring: Literal["complex", "distmult"] = setting(
        "complex", "complex: Re Σ h r conj(t), which tells a relation from its inverse; distmult: Σ h r t"
    )
    popularity: bool = setting(
        True, "Add w · log(1 + training links into the target), w of the relation: vectors need not say what degrees do"
    )

    @model_validator(mode="after")
    def _halves(self) -> "ComplexModel":
        if self.scoring == "complex" and self.embedding_dim % 2:
            raise ValueError(
                f"model.embedding_dim {self.embedding_dim} is odd, and half of a complex vector is real; make it even"
            )
        return self


class ComplexObjective(Settings):
    """Cross-entropy of a link's target among the nodes of its type, and the norms of the vectors."""

    candidates: int = setting(
        1000, "Nodes of each target type that a step's softmax runs over, drawn for the step; 0 = all of them", ge=0
    )
    n3: float = setting(
        0.1, "λ of the nuclear 3-norm: Σ |v|³ over head, relation and tail, a mean over the step", ge=0.0
    )


class ComplexTraining(TrainingSettings):
    """ComplEx's training defaults."""

    epochs: int = setting(50, "Passes to make; raising it continues a finished run", identity=False, ge=1)
    optimizer: OptimizerName = setting("adagrad", OPTIMIZER)
    learning_rate: float = setting(0.1, "Peak learning rate at the recipe's base batch", gt=0.0)
    weight_decay: float = setting(0.0, "Weight decay on dense weights, of which ComplEx has none", ge=0.0)
    warmup_steps: int = setting(0, "Linear warm-up: rate × (step + 1) / warmup_steps; 0 = none", ge=0)
    lr_decay: Literal["none", "cosine", "linear", "exponential"] = setting(
        "none", "Shape of the decay after the warm-up"
    )


class ComplexSettings(Settings):
    """One ComplEx run: the shape of ``settings.yaml``."""

    recipe: Literal["complex"] = setting("complex", "The system to train")
    data: str = setting("", "Directory of the typed graph", identity=False)
    preset: Literal["auto", "none"] = setting("auto", "Fills the fields that are not written", identity=False)
    model: ComplexModel = setting(ComplexModel(), "The network")
    objective: ComplexObjective = setting(ComplexObjective(), "The loss")
    training: ComplexTraining = setting(ComplexTraining(), "Length and optimizer")
    acceleration: AccelerationSettings = setting(AccelerationSettings(), "How the arithmetic is done")
    evaluation: LinkEvaluationSettings = setting(
        LinkEvaluationSettings(), "What is measured while training", identity=False
    )
    export: ExportSettings = setting(ExportSettings(), "What is written afterwards", identity=False)
    tracker: TrackerSettings = setting(TrackerSettings(), TRACKER, identity=False)

    @model_validator(mode="after")
    def _honoured(self) -> "ComplexSettings":
        acceleration = self.acceleration
        if acceleration.batching not in ("auto", "full"):
            raise ValueError(
                f"acceleration.batching: {acceleration.batching} samples the messages of a graph network, and ComplEx "
                "passes none; leave it at auto, and bound the memory with batch_size or objective.candidates"
            )
        default = AccelerationSettings()
        graph_only = ("edge_sample_size", "supervision_fraction", "num_neighbors", "node_batch_size")
        odd = [name for name in graph_only if getattr(acceleration, name) != getattr(default, name)]
        if odd:
            raise ValueError(
                f"acceleration.{odd[0]} belongs to graph networks; ComplEx's step is acceleration.batch_size links"
            )
        if acceleration.batch_size and acceleration.batch_size_per_device:
            raise ValueError(
                "acceleration.batch_size and batch_size_per_device are both set; keep the one that should hold"
            )
        if acceleration.compile != "off":
            raise ValueError(
                f"acceleration.compile: {acceleration.compile} is not for complex, which has nothing to compile: a step is "
                "a few products; set it off"
            )
        self.evaluation.require_link_metrics()
        return self


PRESETS: dict[str, dict[str, Any]] = {"none": {}}


def choose_preset(device: str, memory_bytes: int) -> tuple[str, str]:
    """The preset that ``auto`` stands for: two tables need none."""
    return "none", "ComplEx has no presets"
