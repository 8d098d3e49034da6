"""Prepares batches ahead in threads. Batches are pure functions, so the order and number of threads do not change them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from graphmill.training.contract import Phase, StepBatch, System


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
