"""The settings that every recipe shares: training, acceleration, evaluation, export, tracker.

Execution settings (``identity=False``) may change between a run and its continuation; the others are part of the
fingerprint. docs/reference/settings.md describes each and is generated from here.
"""

import re
from typing import Any, ClassVar, Literal, Self

from pydantic import field_validator, model_validator

from graphmill.settings import Retired, Settings, setting

OptimizerName = Literal["adamw", "adam", "adagrad", "sgd"]
LOSS_CHUNKS = "full: number of parts in which a step's loss is computed, to save memory; the gradient is the same"
OPTIMIZER = "The optimizer; weight decay never acts on lookup tables"
CHOSEN_ON_TEST = (
    "the best epoch is chosen on the test split (evaluation.selection_split: test), as in the publications that have no "
    "validation split: its test figures are optimistic"
)
"""The note on such metrics in a run's log, report and ranking."""


class TrainingSettings(Settings):
    """How long and with which optimizer a model is trained."""

    RETIRED: ClassVar[dict[str, Retired]] = {
        "moments": Retired("fp32", "Adam's state is always fp32; leave the setting out"),
    }

    epochs: int = setting(100, "Number of passes; a larger number continues a finished run", identity=False, ge=1)
    steps_per_epoch: int = setting(0, "Optimizer steps per epoch; 0 = the recipe's own (one pass over its data)", ge=0)
    optimizer: OptimizerName = setting("adamw", OPTIMIZER)
    learning_rate: float = setting(0.001, "Peak learning rate at the recipe's base batch", gt=0.0)
    beta1: float = setting(0.9, "Adam's first decay rate; momentum for sgd", ge=0.0, lt=1.0)
    beta2: float = setting(0.999, "Adam's second decay rate", ge=0.0, lt=1.0)
    weight_decay: float = setting(0.00001, "Weight decay on dense weights (decoupled for adamw)", ge=0.0)
    warmup_steps: int = setting(100, "Linear warm-up: rate × (step + 1) / warmup_steps; 0 = none", ge=0)
    lr_decay: Literal["none", "cosine", "linear", "exponential"] = setting(
        "cosine", "Shape of the decay after the warm-up"
    )
    lr_decay_epochs: int = setting(
        0,
        "Epoch at which the rate reaches its lowest value, where it stays; 0 = the number of epochs at the first "
        "start, which is then stored",
        ge=0,
    )
    lr_decay_rate: float = setting(0.98, "exponential only: factor per lr_decay_steps", gt=0.0, le=1.0)
    lr_decay_steps: int = setting(1000, "exponential only: steps per factor", ge=1)
    lr_lowest: float = setting(0.01, "Lowest rate, as a fraction of the peak rate (cosine and linear)", ge=0.0, le=1.0)
    patience_epochs: int = setting(
        20, "Stop after this many epochs without a better selection metric; 0 = never", identity=False, ge=0
    )
    min_delta: float = setting(0.0, "Smallest gain that counts as better", identity=False, ge=0.0)
    init_from: str = setting(
        "",
        "RUN or RUN@EPOCH whose vectors to start from, matched by node id; champion = the live version; empty = "
        "start fresh",
    )
    force: bool = setting(False, "Start over even if the same training is finished", identity=False)
    seed: int = setting(0, "Seed of every random number of the run", ge=0)


class AccelerationSettings(Settings):
    """Device, batching, precision, memory and processes of a training. The fields are the same for every recipe."""

    LESS_MEMORY: ClassVar[str] = (
        "Reduce acceleration.batch_size, raise acceleration.loss_chunks, or choose a smaller model"
    )
    """What to do if a step does not fit in memory, in terms of the recipe's settings."""
    RETIRED: ClassVar[dict[str, Retired]] = {
        name: Retired(default, "it is a setting of HGT alone, whose graph is sampled; leave it out")
        for name, default in {
            "edge_sample_size": 5000,
            "supervision_fraction": 0.1,
            "num_neighbors": [10, 10],
            "node_batch_size": 2048,
        }.items()
    } | {"max_skips": Retired(10, "ten steps in a row may be skipped; leave the setting out", identity=False)}

    device: Literal["auto", "cuda", "mps", "cpu"] = setting(
        "auto", "auto takes cuda, then mps, then cpu", identity=False
    )
    allow_fallback: bool = setting(True, "Use the CPU if the requested device is absent or fails", identity=False)
    batching: Literal["auto", "full"] = setting("auto", "The part of the graph that one step uses; HGT can sample it")
    batch_size: int = setting(0, "Rows per optimizer step over all processes; 0 = the recipe's", ge=0)
    batch_size_per_device: int = setting(0, "Rows per optimizer step and process; 0 = use batch_size", ge=0)
    loss_chunks: int = setting(1, LOSS_CHUNKS, identity=False, ge=1)
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = setting(
        "auto",
        "auto: bf16 on CUDA devices that support it, fp16 on older ones, fp32 elsewhere; losses and softmax are "
        "always in fp32. tf32: fp32, with matrix products that CUDA rounds",
    )
    gradient_checkpointing: bool = setting(False, "Recompute each layer in the backward pass", identity=False)
    compile: Literal["none", "default", "reduce-overhead"] = setting(
        "none",
        "Compile the hot functions with torch.compile in this mode, unless it turns out not to be faster",
        identity=False,
    )
    memory_cleanup: Literal["phase", "never", "steps"] = setting(
        "phase", "When to empty the device cache", identity=False
    )
    memory_cleanup_every: int = setting(
        8, "Only with memory_cleanup: steps: number of steps between two cleanups", identity=False, ge=1
    )
    memory_budget: str = setting("auto", 'Memory that the run may use: "auto" or a size such as "6GiB"', identity=False)
    on_oom: Literal["shrink", "stop"] = setting(
        "shrink", "What to do when memory runs out: use smaller chunks of the same step, or stop", identity=False
    )
    clip_norm: float = setting(0.0, "Largest norm of the gradient; 0 = off", ge=0.0)
    clip_norm_type: float = setting(2.0, "p of the norm; inf for the largest entry", gt=0.0, allow_inf_nan=True)
    lr_scaling: Literal["none", "sqrt", "linear"] = setting(
        "none", "Scale the learning rate by batch / base batch (sqrt suits Adam, linear suits SGD)"
    )
    num_workers: int = setting(
        0, "Threads that prepare batches in advance; 0 = one on CUDA, none elsewhere", identity=False, ge=0, le=256
    )
    pin_memory: bool = setting(
        True, "Copy batches from page-locked memory on CUDA, so that no step waits for them", identity=False
    )
    processes: int = setting(1, "Processes on this machine, started with torchrun", identity=False, ge=1, le=1024)
    sharding: Literal["none", "rows"] = setting(
        "none",
        "rows: each of several processes holds only its own rows of the tables, their optimizer state, and the edges "
        "into them (batching: full)",
        identity=False,
    )
    backend: Literal["auto", "nccl", "gloo"] = setting("auto", "auto: nccl on CUDA, gloo elsewhere", identity=False)
    checkpoint_every_seconds: int = setting(300, "Save at least this often; 0 = off", identity=False, ge=0)
    checkpoint_every_epochs: int = setting(1, "Number of epochs between two checkpoints; 0 = off", identity=False, ge=0)
    keep_last: int = setting(2, "Number of newest checkpoints to keep", identity=False, ge=1)
    keep_best: int = setting(1, "Number of best checkpoints to keep", identity=False, ge=0)
    keep_influence: int = setting(
        0, "Number of checkpoints to keep for TracIn, spread over the falling loss", identity=False, ge=0
    )
    resume: Literal["auto", "never", "require"] = setting(
        "auto", "Resume from the last checkpoint of the same fingerprint", identity=False
    )
    on_nonfinite: Literal["stop", "skip", "safer_precision"] = setting(
        "stop", "What to do when a loss or gradient is not finite; the step is never applied", identity=False
    )
    deterministic: Literal["auto", "always", "never"] = setting(
        "auto", "When to use deterministic algorithms; auto: on the CPU", identity=False
    )
    threads: int = setting(0, "CPU threads per process; 0 = all cores / processes", identity=False, ge=0, le=1024)
    verify_graph: Literal["changed", "always"] = setting(
        "changed", "Hash the graph's files only if they are new or have changed, or at every start", identity=False
    )
    keep_runs: int = setting(5, "Number of older run directories of a model to keep", identity=False, ge=1)


_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_TRACKERS = ("http", "https", "sqlite", "postgresql", "mysql", "databricks")

LINK_BASELINES = ("knn", "spectral", "complex")
"""Optional baselines of a link ranking, which take time to compute or train; degree and random are always there."""


class EvaluationSettings(Settings):
    """What is measured during training, and which metric chooses the best epoch."""

    eval_every: int = setting(5, "Epochs between evaluations on the split that chooses the epoch", identity=False, ge=1)
    metrics: list[str] = setting(["mrr", "hits"], "Metrics computed at each evaluation", identity=False)
    top_k: list[int] = setting([1, 3, 10], "Cut-offs of the @k metrics", identity=False)
    selection_metric: str = setting("mrr", "The metric that chooses the best epoch", identity=False)
    final_metrics: Literal["all", "same"] = setting(
        "all", "Metrics of the final evaluation: every one, or those of `metrics`", identity=False
    )
    baselines: list[str] = setting([], "Baselines to compare with the model's final figures", identity=False)
    max_queries: int = setting(
        0, "Number of validation queries per relation during training (a seeded sample); 0 = all", identity=False, ge=0
    )

    AT_K: ClassVar[tuple[str, ...]] = ()
    """Metrics that the system's evaluation computes at each cut-off."""
    WHOLE: ClassVar[tuple[str, ...]] = ()
    """Metrics that it has without a cut-off."""
    LOWER_IS_BETTER: ClassVar[tuple[str, ...]] = ()
    BASELINES: ClassVar[tuple[str, ...]] = ()
    """Optional baselines of the system's ranking."""

    @field_validator("baselines", mode="before")
    @classmethod
    def _all_or_none(cls, value: Any) -> Any:
        """Accept ``true`` (all) and ``false`` (none), which earlier releases wrote."""
        return list(cls.BASELINES if value else ()) if isinstance(value, bool) else value

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
        names = (*self.WHOLE, *self.AT_K) if final and self.final_metrics == "all" else self.metrics
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
    baseline_minutes: float = setting(
        2.0,
        "Time for training and tuning the baseline ComplEx, in minutes of one CPU core; it is counted by the amount "
        "of work, so that every machine does the same",
        identity=False,
        gt=0.0,
    )


class ExportSettings(Settings):
    """The files that a training exports. Later steps read Parquet, so it is on by default."""

    csv: bool = setting(
        True, "CSV with the vector as a JSON list: node_index, node_id, node_name, node_type, embedding", identity=False
    )
    parquet: bool = setting(True, "Parquet with a fixed-size list of float32 per node", identity=False)
    npy: bool = setting(False, "A .npy matrix, with the ids in a second file", identity=False)
    copy_to: str = setting(
        "",
        "Folder or URL (s3://BUCKET/FOLDER) to which the run directory is copied when it is exported, ranked or "
        "promoted",
        identity=False,
    )
    align: Literal["champion", "none"] = setting(
        "champion",
        "Rotate the vectors onto those of the live version; if that would change scores, write a rotated copy",
        identity=False,
    )


class TrackerSettings(Settings):
    """A tracker that receives a copy of a training's parameters, curves and results."""

    writer: str = setting(
        "none", "none, mlflow, or your own class as MODULE:CLASS (how-to: Track runs with MLflow)", identity=False
    )
    address: str = setting(
        "", "mlflow: http://HOST:PORT or sqlite:///FILE; empty: $MLFLOW_TRACKING_URI", identity=False
    )
    experiment: str = setting("graphmill", "Name of the experiment in the tracker", identity=False, min_length=1)
    every_seconds: float = setting(10.0, "Seconds between two updates", identity=False, gt=0)

    @model_validator(mode="after")
    def _can_be_written_to(self) -> Self:
        if self.writer not in ("none", "mlflow") and not _CLASS.fullmatch(self.writer):
            raise ValueError(f"tracker.writer: {self.writer!r} must be none, mlflow or MODULE:CLASS")
        scheme, found, rest = self.address.partition("://")
        if self.writer == "mlflow" and self.address and (not found or scheme not in _TRACKERS or not rest):
            raise ValueError(
                f"tracker.address: {self.address!r} is not an address of MLflow: write http://HOST:PORT or sqlite:///FILE"
            )
        if scheme in ("http", "https") and "@" in rest.partition("/")[0]:
            raise ValueError(
                "tracker.address holds a password, which would stay in each run's settings: set MLFLOW_TRACKING_USERNAME "
                "and MLFLOW_TRACKING_PASSWORD"
            )
        return self
