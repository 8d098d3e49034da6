"""The model, optimizers, state and precision of a training; how they are saved, and how a training resumes.

``engine.py`` has the training loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, InitVar, asdict, dataclass, field
from pathlib import Path
from typing import NoReturn

import torch
from torch import nn

from graphmill.errors import StoppedError
from graphmill.evaluation.ranking.shared_queries import Share, shared
from graphmill.training.checkpoint import CheckpointStore, Loaded, Snapshot
from graphmill.training.checkpoint_format import Streamed
from graphmill.training.contract import Phase, StepBatch, StepSizes, System
from graphmill.training.device import empty_device_cache
from graphmill.training.ladder import in_smaller_blocks
from graphmill.training.memory import LESS_MEMORY_BESIDE_STEPS
from graphmill.training.optimizers import PhaseOptimizer
from graphmill.training.precision import LossScaler, Precision
from graphmill.training.processes import Ranks
from graphmill.training.run_state import TrainingListener, TrainState, load_model, pack, unpack, unselected
from graphmill.training.saving import Saver
from graphmill.training.schedule import RESTARTS, Schedule, batch_scale
from graphmill.training.settings import CHOSEN_ON_TEST, AccelerationSettings, EvaluationSettings, TrainingSettings
from graphmill.training.sharding import require_equal_replicas
from graphmill.training.signals import StopRequest
from graphmill.training.step import DeferredStep


@dataclass(eq=False)
class Trainee:
    """One system in training. ``store`` is None for trials that write no checkpoints. ``precision``: that of the first
    step; ``mixed`` is the present one."""

    system: System
    training: TrainingSettings
    acceleration: AccelerationSettings
    evaluation: EvaluationSettings
    _: KW_ONLY
    device: torch.device
    precision: InitVar[str]
    step_sizes: StepSizes
    listener: TrainingListener
    ranks: Ranks = field(default_factory=Ranks)
    store: CheckpointStore | None = None
    stop: StopRequest | None = None
    nonfinite_dir: Path | None = None
    initialise: Callable[[nn.Module], None] | None = None
    before_save: Callable[[], None] = field(default=lambda: None)

    def __post_init__(self, precision: str) -> None:
        self.saver = None if self.store is None else Saver(self.store, self.device)
        self.wanted_sizes = self.step_sizes.sizes()
        self.batches = Batches(self.system, int(self.device.type == "cuda"))
        self.resumed = False
        self._evaluation_parts = 1
        self._deferred: list[DeferredStep] = []
        self.closed_form = any(phase.closed_form for phase in self.system.phases)
        self.final_metrics: dict[str, dict[str, float]] = {}
        if self.acceleration.sharding == "rows" and self.ranks.world > 1:
            self.system.shard(self.ranks)
        self.system.to(self.device)
        self._fresh(precision)

    def _fresh(self, precision: str) -> None:
        """Model, optimizers and state as at step 0."""
        self.model = self.system.build(self.step_sizes)
        if self.initialise is not None:
            self.initialise(self.model)
        if self.system.shards is not None:
            self.system.shards.cut(self.model)
        self.model.to(self.device)
        if not self.training.epochs:
            # What changes with an epoch follows from the vectors that it starts from.
            self.system.begin_epoch(self.model, 1)
        self.parameters = list(self.model.parameters())  # walking through the modules at each step would be slow
        self.optimizers: dict[str, PhaseOptimizer] = {}
        for phase in self.system.phases:
            if phase.closed_form:
                continue
            groups = self.system.parameter_groups(self.model, phase)
            self.optimizers[phase.name] = PhaseOptimizer(self.training, groups, self.device)
        self.state = TrainState(
            updates={phase.name: 0 for phase in self.system.phases},
            schedules=[Schedule(self.training.lr_decay_epochs or self.training.epochs)],
        )
        self._use_precision(precision)

    def _use_precision(self, name: str) -> None:
        self.mixed = Precision(name, self.device)
        self.state.precision = name
        if self.mixed.scaler.enabled and self.state.scaler:
            self.mixed.scaler = LossScaler(**self.state.scaler)

    def resume(self, which: str | int = "last") -> list[str]:
        """Continue from a checkpoint of the store; returns the store's notes (damaged files that were skipped)."""
        assert self.store is not None
        loaded = self._load(which)
        if loaded is not None:
            self.store.discard_after(loaded.step)
        result = None if loaded is None else (loaded.snapshot.state, str(loaded.path), list(loaded.notes))
        state, path, notes = self.ranks.broadcast(result)
        unpack(self._held_part(loaded, path), self.model, self.optimizers, path)
        self.resumed = True
        self.state = TrainState.from_json(state)
        # Keep the sizes that the ladder reached, unless the user has asked for other sizes since.
        if self.state.step_sizes.get("asked") == self.wanted_sizes:
            for key, value in self.state.step_sizes["reached"].items():
                setattr(self.step_sizes, key, value)
        self._use_precision(self.state.precision)
        if self.ranks.main:
            self.listener.on_rewind(self.state.epoch, self.state.steps)
        return list(notes)

    def _load(self, which: str | int) -> Loaded | None:
        """The checkpoint on rank 0, None on the others: run directories are local to the machine of rank 0."""
        if self.store is None or not self.ranks.main:
            return None
        shards = self.system.shards
        return self.store.load(which) if shards is None else self.store.load(which, stream=shards.divides)

    def _held_part(self, loaded: Loaded | None, path: str, prefix: str = "") -> dict[str, torch.Tensor]:
        """Return the tensors that rank 0 has loaded, on every rank: replicated tensors whole, divided ones as this
        rank's rows."""
        held = Snapshot({}) if loaded is None else loaded.snapshot
        tensors = self.ranks.broadcast_tensors({n: t for n, t in held.tensors.items() if n.startswith(prefix)})
        if self.system.shards is None:
            return tensors
        streamed = {n: t for n, t in held.streamed.items() if n.startswith(prefix)}
        return tensors | self.system.shards.dealt_out(streamed, path)

    def load_weights(self, which: str | int) -> Loaded | None:
        """Load only the weights and buffers of a checkpoint on every rank, for evaluation and export.

        Returns the loaded checkpoint on rank 0, and None on the others."""
        loaded = self._load(which)
        path = self.ranks.broadcast(str(loaded.path) if loaded else "")
        load_model(self._held_part(loaded, path, "model."), self.model, path)
        return loaded

    def save(self, *, final: bool = False, metric: float | None = None) -> None:
        """Write a checkpoint of the current state (rank 0). On an accelerator this only begins the write
        (:meth:`wait_for_saves`).

        Raises:
            TrainingError: a parameter differs between processes; such a state is never saved.
        """
        where, shards = f"after epoch {self.state.epoch}, step {self.state.steps}", self.system.shards
        require_equal_replicas(self.model, self.ranks, where, shards)
        tensors, streams = pack(self.model, self.optimizers), dict[str, Streamed]()
        if shards is not None:
            tensors, streams = shards.gathered(tensors)
        if self.saver is not None and self.ranks.main:
            self.before_save()
            self.state.scaler = asdict(self.mixed.scaler) if self.mixed.scaler.enabled else {}
            self.state.step_sizes = {"asked": self.wanted_sizes, "reached": self.step_sizes.sizes()}
            self.saver.save(
                Snapshot(tensors, asdict(self.state), streams),
                epoch=self.state.epoch,
                step=self.state.steps,
                metric=metric,
                final=final,
                learning_rate=self._rate(self.system.phases[0]),
                loss=self.state.last_loss,
            )
        elif self.store is not None and shards is not None:
            shards.hand_over(streams)
        self._saved_at = time.monotonic()
        self.ranks.barrier()

    def wait_for_saves(self) -> None:
        """Wait until the checkpoints that were begun are on the disk. Raises ResourceError if one could not be written."""
        if self.saver is not None:
            self.saver.wait()
        self.ranks.barrier()

    def _rate(self, phase: Phase) -> float:
        if phase.closed_form:
            return 0.0
        scale = batch_scale(self.acceleration.lr_scaling, phase.batch_size, phase.base_batch_size)
        settings, updates = self.training, self.state.updates[phase.name]
        schedule = self.state.schedules[-1 if settings.lr_decay in RESTARTS else 0]
        return schedule.rate(settings, phase.name, updates, phase.steps_per_epoch, scale)

    def _begin_schedule(self) -> None:
        """Begin another schedule if the last one has ended, and note it: its rate is too low to learn with.

        With ``lr_decay_epochs`` the schedule is the user's own: the rate stays at its lowest.
        """
        state = self.state
        if self.training.lr_decay_epochs or self.training.lr_decay not in RESTARTS:
            return
        if state.epoch < state.schedules[-1].end:
            return
        added = self.training.epochs - state.epoch
        state.schedules.append(Schedule(added, state.epoch, dict(state.updates)))
        self._note(
            f"the learning rate had reached its lowest after {state.epoch} epochs: it rises again and falls over the "
            f"{added} added ones"
        )

    def evaluated(
        self, split: str, *, final: bool, poll: Callable[[], None], stop: Callable[[], None] = lambda: None
    ) -> dict[str, float]:
        """The system's metrics on a split, over all ranks. If memory runs out, it retries in smaller blocks.

        ``stop`` is called on all ranks once any rank has received a stop request.
        """

        def evaluate(parts: int) -> dict[str, float]:
            ranks, on_device = self.ranks, self.device.type != "cpu"
            mine = Share(ranks.rank, ranks.world, ranks.sum_array, self._stop_is_requested, stop, 0, on_device, parts)
            with torch.no_grad(), shared(mine):
                return self.system.evaluate(self.model, split, final=final, poll=poll)

        metrics, self._evaluation_parts = in_smaller_blocks(
            evaluate,
            parts=self._evaluation_parts,
            clear=self._clear_cache,
            note=self._note,
            remedy=LESS_MEMORY_BESIDE_STEPS,
            repeatable=self.ranks.world == 1,
        )
        return metrics

    def _stop_is_requested(self) -> bool:
        return self.stop is not None and self.stop.requested

    def _clear_cache(self) -> None:
        empty_device_cache(self.device)

    def _note(self, text: str) -> None:
        self.state.notes.append(text)
        if self.ranks.main:
            self.listener.on_note(text)

    # ------------------------------------------------------------------ small parts

    def _say_what_chooses_the_epoch(self) -> None:
        """Before the first step, add a note once if the test split chooses the epoch, or if no split can."""
        split = self.evaluation.selected_on
        if not self.system.held_out(split):
            said = unselected(split, self.training.patience_epochs)
        elif split == "test":
            said = CHOSEN_ON_TEST
        else:
            return
        if said not in self.state.notes:  # a resumed run already has the note
            self._note(said)

    def _epoch_save_is_due(self) -> bool:
        every = self.acceleration.checkpoint_every_epochs
        return every > 0 and self.state.epoch % every == 0

    def _drop_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def _evaluation_is_due(self) -> bool:
        state = self.state
        if state.epoch == 0 or state.phase or state.index or state.evaluated_epoch == state.epoch:
            return False
        return state.epoch % self.evaluation.eval_every == 0 or state.epoch == self.training.epochs

    def _stopped(self) -> NoReturn:
        state = self.state
        self.wait_for_saves()
        raise StoppedError(
            f"stopped as asked after {state.epoch} epochs and {state.steps} steps; the checkpoint is saved: run the "
            "same command again to resume from it"
        )


class Batches:
    """Returns batches: computed at the call, or ahead in ``workers`` threads."""

    def __init__(self, system: System, workers: int) -> None:
        self.system = system
        self.workers = workers
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="batch") if workers else None
        self.ahead: dict[tuple[str, int, int], Future[StepBatch]] = {}

    def __call__(self, phase: Phase, epoch: int, index: int) -> StepBatch:
        """The batch of this step; schedules the next ones of the same epoch."""
        if self.pool is None:
            return self.system.step(phase, epoch, index)
        for later in range(index, min(index + 1 + self.workers, phase.steps_per_epoch)):
            key = (phase.name, epoch, later)
            if key not in self.ahead:
                self.ahead[key] = self.pool.submit(self.system.step, phase, epoch, later)
        batch = self.ahead.pop((phase.name, epoch, index)).result()
        for key in [key for key in self.ahead if key[0] == phase.name and (key[1], key[2]) < (epoch, index)]:
            self.ahead.pop(key).cancel()
        return batch

    def close(self) -> None:
        """Stop the threads."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)
