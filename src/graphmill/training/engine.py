"""The loop that trains every system: epochs, phases, steps, evaluation, early stopping, checkpoints, recovery.

The engine writes checkpoints only. The listener (``worker/``) writes all other files and reports to the terminal and to
Dagster.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from graphmill.errors import TrainingError
from graphmill.training.allocator import HeapWatch
from graphmill.training.compiling import CompileReport, compile_functions, require_compiler
from graphmill.training.contract import Phase, SolvedSystem, StepBatch
from graphmill.training.guards import REMEDIES, NonFiniteError, first_nonfinite, nonfinite_parameter, save_batch
from graphmill.training.ladder import with_ladder
from graphmill.training.optimizers import PhaseOptimizer
from graphmill.training.run_state import TrainState, epoch_record, out_of_patience, record_metric
from graphmill.training.step import READ_EVERY, DeferredStep, Gradient, clip_, compute_gradient, read_together
from graphmill.training.trainee import Trainee

CHECKPOINT_SECONDS = 300.0
"""A checkpoint is written at least this often, also within an epoch."""


@dataclass
class FitResult:
    """How a training ended."""

    state: TrainState
    reason: str
    compile: CompileReport | None = None


class _AbandonedError(Exception):
    """A stop was requested during a step. The step is abandoned, and nothing of it has been applied."""


class Engine(Trainee):
    """Trains one system."""

    def save(self, *, final: bool = False, metric: float | None = None) -> None:
        """Write a checkpoint of the current state (rank 0; the others wait).

        Raises:
            TrainingError: a parameter is not finite, or differs between processes; such a state is never saved.
        """
        self._read()
        if bad := self._nonfinite_parameter():  # an update with finite gradients can still overflow one
            what = f"parameter '{bad}' is not finite after epoch {self.state.epoch}, step {self.state.steps}"
            raise TrainingError(f"{what}; nothing was saved of it. Remedies: {REMEDIES}.")
        super().save(final=final, metric=metric)

    # ------------------------------------------------------------------ the loop

    def fit(self) -> FitResult:
        """Train until all ``epochs`` are done, patience runs out, or a stop is requested.

        Raises:
            StoppedError: a signal requested it; the checkpoint is saved, and the same command resumes the run.
            TrainingError: a number was not finite.
        """
        self._saved_at = time.monotonic()
        self._heap = HeapWatch()
        try:
            self._say_what_chooses_the_epoch()
            compile_report = self._compile()
            reason = self._epochs()
            now = self.state.last_metrics if self.state.evaluated_epoch == self.state.epoch else {}
            self.save(final=True, metric=now.get(self.evaluation.selection_metric))
            self.wait_for_saves()
        finally:
            self.batches.close()
            if self.saver is not None:
                self.saver.close()
        return FitResult(self.state, reason, compile_report and compile_report.at_the_end())

    def seconds_per_step(self, steps: int = 3) -> float:
        """Seconds of an optimizer step, the mean over an epoch. It trains ``steps`` steps of each phase, after a first one
        that is not timed."""
        if self.closed_form:
            return cast(SolvedSystem, self.system).seconds_to_solve()
        self._heap, seconds = HeapWatch(), 0.0
        self.system.begin_epoch(self.model, 0)
        for phase in self.system.phases:
            times = []
            for index in range(steps + 1):
                self._step(phase, 0, index % phase.steps_per_epoch)
                self._read()
                times.append(time.monotonic())
            seconds += phase.steps_per_epoch * (times[-1] - times[0]) / steps
        self.batches.close()
        return seconds / sum(phase.steps_per_epoch for phase in self.system.phases)

    def _epochs(self) -> str:
        self._finish_resumed_epoch()
        while True:
            if out_of_patience(self.state, self.training.patience_epochs):
                return f"no better {self.evaluation.selection_metric} for {self.training.patience_epochs} epochs"
            if self.state.epoch >= self.training.epochs:
                return "all epochs done"
            self._epoch()

    def _epoch(self) -> None:
        state, started = self.state, time.monotonic()
        epoch = state.epoch
        if state.phase == 0 and state.index == 0:
            self._begin_schedule()
            self.system.begin_epoch(self.model, epoch)
        for number, phase in enumerate(self.system.phases):
            if number < state.phase:
                continue
            while state.index < phase.steps_per_epoch:
                self._step(phase, epoch, state.index)
                state.index += 1
                self._between_steps()
            state.phase, state.index = number + 1, 0
        self._read()
        state.epoch, state.phase, state.index = epoch + 1, 0, 0
        state.epoch_seconds = time.monotonic() - started
        state.seconds += state.epoch_seconds
        self._clear_cache()
        # Saved before the evaluation, so that a stop inside it loses nothing; a new best is saved again after it.
        if self._epoch_save_is_due():
            self.save()
        self._finish_epoch()

    def _finish_resumed_epoch(self) -> None:
        """After a resume at an epoch's end, evaluate and report that epoch again: both may have been lost."""
        if self.resumed and self.state.epoch and not (self.state.phase or self.state.index):
            self._finish_epoch()
        self.resumed = False

    def _finish_epoch(self) -> None:
        """Evaluate where it is due, and report."""
        state = self.state
        record = epoch_record(self.system, state, self._rate(self.system.phases[0]))
        if self._evaluation_is_due():
            self._evaluate()
        if state.evaluated_epoch == state.epoch:
            record |= {"valid": state.last_metrics, "health": state.last_health, "best_epoch": state.best_epoch}
            if self.evaluation.selected_on != "valid":  # the split of the figures under "valid"
                record["split"] = self.evaluation.selected_on
        if self.ranks.main:
            self.listener.on_epoch(record)

    def _step(self, phase: Phase, epoch: int, index: int) -> None:
        state = self.state
        if phase.closed_form:
            self._solve(phase)
            return
        batch = self.batches(phase, epoch, index)
        optimizer = self.optimizers[phase.name]
        calls = self.ranks.collectives
        try:
            gradient = with_ladder(
                lambda: self._gradient(phase, batch, epoch, index),
                step_sizes=self.step_sizes,
                # Once the ranks have begun to sum gradients, one of them cannot repeat the step alone.
                repeatable=lambda: self.ranks.collectives == calls,
                clear=self._clear_after_oom,
                note=self._note,
                remedy=self.acceleration.LESS_MEMORY,
            )
        except _AbandonedError:
            self._drop_gradients()
            self.save()
            self._stopped()
        rate = self._rate(phase)
        state.steps += 1
        step = DeferredStep(phase, batch, epoch, index, state.steps, rate, gradient)
        if self._reads_later(optimizer):
            self._apply(optimizer, step, gradient.values[0], gradient.not_finite)
            self._deferred.append(step)
        else:
            self._read()  # earlier steps, of a phase whose losses are read later
            if gradient.finite:
                self._apply(optimizer, step, gradient.norm)
            self._settle(step)
        self._drop_gradients()
        self._heap.after_step()
        if len(self._deferred) == READ_EVERY:
            self._read()

    def _solve(self, phase: Phase) -> None:
        """The step of a phase in closed form. It has no loss and no learning rate."""
        try:
            cast(SolvedSystem, self.system).solve(self.model, self._abandon_on_stop)
        except _AbandonedError:
            self._stopped()
        self.state.steps += 1
        self.state.updates[phase.name] += 1
        if self.ranks.main:
            self.listener.on_step(self.state, {}, 0.0, 1)

    def _reads_later(self, optimizer: PhaseOptimizer) -> bool:
        alone = self.device.type == "cuda" and self.ranks.world == 1
        return alone and not self.mixed.scaler.enabled and optimizer.guards_itself

    def _apply(
        self, optimizer: PhaseOptimizer, step: DeferredStep, norm: float | Tensor, unless: Tensor | None = None
    ) -> None:
        clip_(optimizer.parameters, norm, self.acceleration.clip_norm)
        optimizer.allocate()
        optimizer.step(step.rate, unless)
        self.state.updates[step.phase.name] += 1

    def _read(self) -> None:
        """Read and settle the steps whose losses are still on the device."""
        deferred, self._deferred = self._deferred, []
        if deferred:
            read_together([step.gradient for step in deferred])
        for step in deferred:
            if not step.gradient.finite:
                # Compute the gradient again to name what is not finite. Later steps have changed the weights a little;
                # that step has not.
                with suppress(_AbandonedError):
                    self._gradient(step.phase, step.batch, step.epoch, step.index)
            self._settle(step, len(deferred))

    def _settle(self, step: DeferredStep, together: int = 1) -> None:
        """Count a step whose values were read and report it."""
        state, name, losses = self.state, step.phase.name, step.gradient.losses
        if step.index == 0 and step.phase is self.system.phases[0]:
            # Not at the beginning of the epoch: after a stop before the first step is done, the last epoch is still to
            # be reported.
            state.sums, state.counts = {}, {}
        if step.gradient.finite:
            self.mixed.scaler.update(overflow=False)
            for term, value in losses.items():
                state.sums[f"{name}/{term}"] = state.sums.get(f"{name}/{term}", 0.0) + value
            state.counts[name] = state.counts.get(name, 0) + 1
            state.coefficients |= {f"{name}/{term}": c for term, c in step.gradient.coefficients.items()}
            state.last_loss = losses["total"]
        else:
            self._on_nonfinite(step)
        if self.ranks.main:
            self.listener.on_step(replace(state, steps=step.steps), losses, step.rate, together)

    def _gradient(self, phase: Phase, batch: StepBatch, epoch: int, index: int) -> Gradient:
        if not self.model.training:
            self.model.train()
        return compute_gradient(
            self.system,
            self.model,
            self.optimizers[phase.name].parameters,
            batch,
            step_sizes=self.step_sizes,
            precision=self.mixed,
            ranks=self.ranks,
            seed_parts=(self.training.seed, phase.name, epoch, index, "dropout"),
            poll=self._abandon_on_stop,
        )

    def _abandon_on_stop(self) -> None:
        # Several ranks agree between steps instead: if one abandoned a step, the others would wait forever.
        if self.ranks.world == 1 and self._stop_is_requested():
            raise _AbandonedError

    def _between_steps(self) -> None:
        if self.saver is not None:
            self.saver.raise_failure()
        is_time = self.ranks.main and time.monotonic() - self._saved_at >= CHECKPOINT_SECONDS
        stop, due = self.ranks.any(self._stop_is_requested(), is_time)
        if stop or due:
            self.save()
        if stop:
            self._stopped()

    # ------------------------------------------------------------------ evaluation

    def _evaluate(self) -> None:
        state = self.state
        self.model.eval()

        def stop() -> None:
            self.save()
            self._stopped()

        def poll() -> None:
            if self.ranks.world == 1 and self._stop_is_requested():
                stop()

        split, chosen_by = self.evaluation.selected_on, self.evaluation.selection_metric
        metrics = self.evaluated(split, final=self.closed_form, poll=poll, stop=stop)
        with torch.no_grad():
            # With divided tables, all ranks take part in computing the vectors.
            health = self.system.health(self.model) if self.ranks.main or self.system.shards else {}
        metrics, health = self.ranks.broadcast((metrics, health))
        if self.closed_form:  # its only epoch: these are the final figures, too
            self.final_metrics[split] = metrics
            metrics = {name: value for name, value in metrics.items() if name == chosen_by}
        state.evaluated_epoch = state.epoch
        state.last_metrics, state.last_health = metrics, health
        selection = metrics.get(chosen_by)
        best = selection is not None and record_metric(state, selection)
        if best or self._epoch_save_is_due():
            self.save(metric=selection)
        self._clear_cache()

    # ------------------------------------------------------------------ guards and recovery

    def _on_nonfinite(self, step: DeferredStep) -> None:
        state = self.state
        phase, batch, losses = step.phase, step.batch, step.gradient.losses
        losses_finite = all(math.isfinite(v) for v in losses.values())
        if self.mixed.scaler.enabled and losses_finite and self.mixed.scaler.scale > 1.0:
            # Normal with fp16: the scale was too high for this batch. Skip the step and halve the scale.
            self.mixed.scaler.update(overflow=True)
            state.skips += 1
            return
        culprit = first_nonfinite(self.system, self.model, batch, losses)
        where = f"phase {phase.name}, epoch {step.epoch + 1}, step {step.index + 1} of {phase.steps_per_epoch}"
        place: dict[str, int | str] = {"phase-": phase.name, "epoch": step.epoch, "step": step.index}
        saved = save_batch(self.nonfinite_dir if self.ranks.main else None, batch, place)
        raise NonFiniteError(culprit, where, saved)

    def _nonfinite_parameter(self) -> str:
        """The first parameter that is not finite on any rank. Only the rank that holds a divided row sees its values."""
        bad = nonfinite_parameter(self.model)
        if self.system.shards is None:
            return bad
        flags = self.ranks.any(*(name == bad for name, _ in self.model.named_parameters()))
        return next((n for (n, _), flag in zip(self.model.named_parameters(), flags, strict=True) if flag), "")

    def _clear_after_oom(self) -> None:
        self._drop_gradients()
        self._clear_cache()

    # ------------------------------------------------------------------ small parts

    def _compile(self) -> CompileReport | None:
        mode = self.acceleration.compile
        if mode == "none":
            return None
        require_compiler(self.device)
        compilables = self.system.compilables(self.model)
        phase = self.system.phases[0]
        batch = self.system.step(phase, self.state.epoch, 0)

        def trial() -> None:
            self._gradient(phase, batch, self.state.epoch, 0)
            self._drop_gradients()

        report = compile_functions(compilables, mode, trial)
        self._note(report.sentence())
        return report
