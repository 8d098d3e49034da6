"""The settings that every system shares: training, acceleration, evaluation, export, tracker.

Execution settings (``identity=False``) may change between a run and its continuation; the others are part of the
fingerprint. docs/reference/settings.md describes each and is generated from here.
"""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from graphmill.settings import Settings, setting

OptimizerName = Literal["adamw", "adam", "adagrad"]
MICRO_BATCHES = "Number of parts in which a step is computed, to save memory; the gradient is the same"
CHOSEN_ON_TEST = (
    "the best epoch is chosen on the test split (evaluation.selection_split: test), as in the publications that have no "
    "validation split: its test figures are optimistic"
)
"""The note on such metrics in a run's log, report and ranking."""


EPOCHS = (
    "Number of passes; a larger number continues a finished run. 0, with init_from: embed only, that is, nothing is "
    "trained and new nodes are folded in"
)


class TrainingSettings(Settings):
    """How long and at which rate a model is trained."""

    OPTIMIZER: ClassVar[OptimizerName] = "adamw"
    """The system's optimizer. Weight decay never acts on lookup tables."""
    BETAS: ClassVar[tuple[float, float]] = (0.9, 0.999)
    """Adam's decay rates."""

    epochs: int = setting(100, EPOCHS, identity=False, ge=0)
    steps_per_epoch: int = setting(0, "Optimizer steps per epoch; 0 = the system's own (one pass over its data)", ge=0)
    learning_rate: float = setting(0.001, "Peak learning rate at the system's base batch", gt=0.0)
    weight_decay: float = setting(0.00001, "Weight decay on dense weights (decoupled for adamw)", ge=0.0)
    warmup_steps: int = setting(100, "Linear warm-up: rate × (step + 1) / warmup_steps; 0 = none", ge=0)
    lr_decay: Literal["none", "cosine", "linear", "exponential"] = setting(
        "cosine", "Shape of the decay after the warm-up; exponential: × 0.98 every 1,000 steps"
    )
    lr_decay_epochs: int = setting(
        0,
        "Epoch at which the rate reaches its lowest value, where it stays; 0 = the last one, and raising epochs begins "
        "another warm-up and decay over the added ones",
        ge=0,
    )
    patience_epochs: int = setting(
        20, "Stop after this many epochs without a better selection metric; 0 = never", identity=False, ge=0
    )
    init_from: str = setting(
        "",
        "RUN or RUN@EPOCH whose vectors to start from, matched by node id; champion = the live version; empty = "
        "start fresh",
    )
    seed: int = setting(0, "Seed of every random number of the run", ge=0)

    @model_validator(mode="after")
    def _starts_or_trains(self) -> Self:
        if not self.epochs and not self.init_from:
            raise ValueError(
                "training.epochs: 0 trains nothing: name in training.init_from the run whose vectors to keep"
            )
        return self


class AccelerationSettings(Settings):
    """Device, batching, precision, memory and processes of a training. The fields are the same for every system."""

    LESS_MEMORY: ClassVar[str] = (
        "Reduce acceleration.batch_size, raise acceleration.micro_batches, or choose a smaller model"
    )
    """What to do if a step does not fit in memory, in terms of the system's settings."""

    device: Literal["auto", "cuda", "mps", "cpu"] = setting(
        "auto", "auto takes cuda, then mps, then cpu, on which a training goes on if the device fails", identity=False
    )
    batching: Literal["auto", "full"] = setting("auto", "The part of the graph that one step uses; HGT can sample it")
    batch_size: int = setting(0, "Rows of an optimizer step, over all processes; 0 = the system's", ge=0)
    micro_batches: int = setting(1, MICRO_BATCHES, identity=False, ge=1)
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = setting(
        "auto",
        "auto: bf16 on CUDA devices that support it, fp16 on older ones, fp32 elsewhere; losses and softmax are "
        "always in fp32. tf32: fp32, with matrix products that CUDA rounds",
    )
    gradient_checkpointing: bool = setting(False, "Recompute each layer in the backward pass", identity=False)
    compile: Literal["none", "default", "reduce-overhead"] = setting(
        "none",
        "Compile the hot functions with torch.compile in this mode",
        identity=False,
    )
    memory_budget: str = setting("auto", 'Memory that the run may use: "auto" or a size such as "6GiB"', identity=False)
    clip_norm: float = setting(0.0, "Largest (Euclidean) norm of the gradient; 0 = off", ge=0.0)
    lr_scaling: Literal["none", "sqrt", "linear"] = setting(
        "none", "Scale the learning rate by batch / base batch (sqrt suits Adam, linear suits SGD)"
    )
    processes: int = setting(1, "Processes on this machine, started with torchrun", identity=False, ge=1, le=1024)
    sharding: Literal["none", "rows"] = setting(
        "none",
        "rows: each of several processes holds only its own rows of the tables, their optimizer state, and the edges "
        "into them (batching: full)",
        identity=False,
    )
    checkpoint_every_epochs: int = setting(
        1, "Number of epochs between two checkpoints, beside one every five minutes; 0 = none", identity=False, ge=0
    )
    keep_influence: int = setting(
        0, "Number of checkpoints to keep for TracIn, spread over the falling loss", identity=False, ge=0
    )
    resume: Literal["auto", "never", "require"] = setting(
        "auto",
        "auto: reuse a finished run, resume from the last checkpoint; never: start over; require: refuse to start over",
        identity=False,
    )
    verify_graph: Literal["changed", "always"] = setting(
        "changed", "Hash the graph's files only if they are new or have changed, or at every start", identity=False
    )


_TRACKERS = ("http", "https", "sqlite", "postgresql", "mysql", "databricks")

LINK_BASELINES = ("knn", "spectral", "complex")
"""Optional baselines of a link ranking, which take time to compute or train; degree and random are always there."""


class EvaluationSettings(Settings):
    """What is measured during training, and which metric chooses the best epoch."""

    eval_every: int = setting(5, "Epochs between evaluations on the split that chooses the epoch", identity=False, ge=1)
    metrics: list[str] = setting(["mrr", "hits"], "Metrics computed at each evaluation", identity=False)
    top_k: list[int] = setting([1, 3, 10], "Cut-offs of the @k metrics", identity=False)
    selection_metric: str = setting("mrr", "The metric that chooses the best epoch", identity=False)
    baselines: list[str] = setting([], "Baselines to compare with the model's final figures", identity=False)
    max_queries: int = setting(
        0,
        "Number of validation queries per relation during training (a seeded sample); 0 = all (NBFNet: about 20,000)",
        identity=False,
        ge=0,
    )

    AT_K: ClassVar[tuple[str, ...]] = ()
    """Metrics that the system's evaluation computes at each cut-off."""
    WHOLE: ClassVar[tuple[str, ...]] = ()
    """Metrics that it has without a cut-off."""
    LOWER_IS_BETTER: ClassVar[tuple[str, ...]] = ()
    BASELINES: ClassVar[tuple[str, ...]] = ()
    """Optional baselines of the system's ranking."""

    @model_validator(mode="after")
    def _something_is_measured(self) -> Self:
        if unknown := sorted(set(self.baselines) - set(self.BASELINES)):
            known = ", ".join(self.BASELINES) or "none for this system"
            raise ValueError(f"evaluation.baselines: unknown {', '.join(unknown)} (known: {known})")
        if not self.metrics:
            raise ValueError("evaluation.metrics is empty; name one at least")
        if not self.top_k or min(self.top_k) < 1:
            raise ValueError("evaluation.top_k needs at least one cut-off of 1 or more")
        return self

    def measured(self, *, final: bool = False) -> list[str]:
        """Names of the metrics that every evaluation (or the ``final`` one) computes, and of which a higher value is
        better."""
        names = (*self.WHOLE, *self.AT_K) if final else self.metrics
        whole = [name for name in names if name in self.WHOLE and name not in self.LOWER_IS_BETTER]
        return whole + [f"{name}@{k}" for name in names if name in self.AT_K for k in self.top_k]

    def require_measured(self) -> None:
        """Raise ``ValueError`` for metrics that the system's evaluation does not compute, or that cannot choose an epoch."""
        known = (*self.WHOLE, *self.AT_K)
        if unknown := sorted(set(self.metrics) - set(known)):
            raise ValueError(f"evaluation.metrics: unknown {', '.join(unknown)} (known: {', '.join(known)})")
        wanted, measured = self.selection_metric, self.measured()
        if wanted not in measured:
            lower = f" (a lower {wanted} is better, so it chooses nothing)" if wanted in self.LOWER_IS_BETTER else ""
            raise ValueError(
                f"evaluation.selection_metric: {wanted} is not measured{lower}; it is one of "
                f"{', '.join(measured) or 'none of these'} (see evaluation.metrics and top_k)"
            )

    @property
    def selected_on(self) -> Literal["valid", "test"]:
        """The split that is evaluated during training. It decides the best epoch and early stopping."""
        return "valid"


class LinkEvaluationSettings(EvaluationSettings):
    """Evaluation of a system that ranks links or triples, and the baselines of its ranking."""

    WHOLE: ClassVar[tuple[str, ...]] = ("mrr", "mr", "amri")
    AT_K: ClassVar[tuple[str, ...]] = ("hits",)
    LOWER_IS_BETTER: ClassVar[tuple[str, ...]] = ("mr",)
    BASELINES: ClassVar[tuple[str, ...]] = LINK_BASELINES

    baselines: list[str] = setting(
        list(LINK_BASELINES),
        "Baselines of the ranking, in addition to degree: knn, spectral (vectors by SVD, as wide as the model's), "
        "complex (trained)",
        identity=False,
    )


class ExportSettings(Settings):
    """The files that a training exports, in addition to Parquet with a fixed-size list of float32 per node."""

    csv: bool = setting(
        True, "CSV with the vector as a JSON list: node_index, node_id, node_name, node_type, embedding", identity=False
    )
    align: Literal["champion", "none"] = setting(
        "champion",
        "Rotate the vectors onto those of the live version; if that would change scores, write a rotated copy",
        identity=False,
    )


class TrackerSettings(Settings):
    """A tracker that receives a copy of a training's parameters, curves and results."""

    writer: Literal["none", "mlflow"] = setting("none", "Where runs are sent", identity=False)
    address: str = setting(
        "", "mlflow: http://HOST:PORT or sqlite:///FILE; empty: $MLFLOW_TRACKING_URI", identity=False
    )
    experiment: str = setting("graphmill", "Name of the experiment in the tracker", identity=False, min_length=1)

    @model_validator(mode="after")
    def _can_be_written_to(self) -> Self:
        scheme, result, rest = self.address.partition("://")
        if self.writer == "mlflow" and self.address and (not result or scheme not in _TRACKERS or not rest):
            raise ValueError(
                f"tracker.address: {self.address!r} is not an address of MLflow: write http://HOST:PORT or sqlite:///FILE"
            )
        if scheme in ("http", "https") and "@" in rest.partition("/")[0]:
            raise ValueError(
                "tracker.address holds a password, which would stay in each run's settings: set MLFLOW_TRACKING_USERNAME "
                "and MLFLOW_TRACKING_PASSWORD"
            )
        return self
