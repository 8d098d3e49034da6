"""Settings that several systems share. Importable without torch: the Launchpad is generated from settings."""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from graphmill.settings import Settings, require_unset, setting
from graphmill.training.settings import (
    AccelerationSettings,
    EvaluationSettings,
    ExportSettings,
    LinkEvaluationSettings,
    OptimizerName,
    TrackerSettings,
    TrainingSettings,
)

PRESET = "Fills the fields that are not written"
SMALL_GRAPH = 20_000
"""Up to so many training links ``preset: auto`` is ``small_graph``, where a system has it."""


class SteadyTraining(TrainingSettings):
    """Training defaults: Adam with a constant learning rate, without weight decay; the loss has its own regularisation."""

    OPTIMIZER: ClassVar[OptimizerName] = "adam"

    weight_decay: float = setting(0.0, "Weight decay on dense weights (decoupled for adamw)", ge=0.0)
    warmup_steps: int = setting(0, "Linear warm-up: rate × (step + 1) / warmup_steps; 0 = none", ge=0)
    lr_decay: Literal["none", "cosine", "linear", "exponential"] = setting(
        "none", "Shape of the decay after the warm-up"
    )


class SystemSettings(Settings):
    """The settings in every ``settings.yaml``; a system adds its ``model`` and ``objective``, and its own defaults."""

    base_batch: ClassVar[int] = 0
    """Rows of a step if the settings give none; also the batch size for which the learning rate is given."""
    compiles: ClassVar[bool] = True
    """Whether the system has modules for torch.compile (``compilables``)."""

    on_accelerators: ClassVar[bool] = True
    """Whether it is computed on the device that is asked for; else on the CPU, whatever is."""
    shards_rows: ClassVar[bool] = False
    """Whether the system can shard its tables by rows over several processes."""

    system: str
    data: str = setting("", "Directory of the typed graph", identity=False)
    preset: Literal["auto", "none"] = setting("auto", PRESET, identity=False)
    training: TrainingSettings = setting(TrainingSettings(), "Length and optimizer")
    acceleration: AccelerationSettings = setting(AccelerationSettings(), "How the arithmetic is done")
    evaluation: EvaluationSettings = setting(EvaluationSettings(), "What is measured while training", identity=False)
    export: ExportSettings = setting(ExportSettings(), "The files that are exported", identity=False)
    tracker: TrackerSettings = setting(
        TrackerSettings(), "A tracker that receives parameters, curves and results", identity=False
    )

    @model_validator(mode="after")
    def _can_be_honoured(self) -> Self:
        acceleration = self.acceleration
        if acceleration.compile != "none" and not self.compiles:
            raise ValueError(
                f"acceleration.compile: {acceleration.compile} is not for {self.system}, which has nothing to compile: its "
                "products and losses are compiled kernels already; set it to none"
            )
        if acceleration.sharding == "rows" and not self.shards_rows:
            raise ValueError(
                f"acceleration.sharding: rows is not for {self.system}, whose tables are held whole by each process; "
                "set it none"
            )
        self.evaluation.require_measured()
        return self

    def unread(self, batching: str) -> dict[str, list[str]]:
        """By section the settings that a run with this ``batching`` does not read, and its fingerprint does not contain."""
        return {}

    def step_size(self) -> int:
        """Rows of an optimizer step, summed over all processes."""
        return self.acceleration.batch_size or self.base_batch


class LinkSystemSettings(SystemSettings):
    """Settings of systems whose held-out metrics rank links or triples."""

    evaluation: LinkEvaluationSettings = setting(
        LinkEvaluationSettings(), "What is measured while training", identity=False
    )


class ClosedFormTraining(TrainingSettings):
    """Training defaults of systems in closed form: one step computes the whole model."""

    epochs: int = setting(1, "One step computes the whole model", identity=False, ge=1, le=1)


class ClosedFormAcceleration(AccelerationSettings):
    """Acceleration defaults of systems in closed form."""

    LESS_MEMORY: ClassVar[str] = "Leave nodes out of the graph"


class ClosedFormSettings(SystemSettings):
    """Settings of systems that are computed in one step, without gradients (``systems/closed_form.py``)."""

    compiles: ClassVar[bool] = False
    base_batch: ClassVar[int] = 1
    on_accelerators: ClassVar[bool] = False

    training: ClosedFormTraining = setting(ClosedFormTraining(), "Length and optimizer")
    acceleration: ClosedFormAcceleration = setting(ClosedFormAcceleration(), "How the arithmetic is done")

    @model_validator(mode="after")
    def _has_no_gradient_steps(self) -> Self:
        why = f"{self.system}, which is computed in one step without gradients"
        read = ("device", "batching", "compile", "sharding", "memory_budget", "resume", "verify_graph")
        require_unset(self.training, sorted(set(TrainingSettings.model_fields) - {"seed"}), "training", why)
        require_unset(
            self.acceleration, sorted(set(AccelerationSettings.model_fields) - set(read)), "acceleration", why
        )
        return self
