"""Trials of a search as partitions: the sensor requests and launches them.

A trial that Optuna has created is unfinished until its partition is materialized. If its run was killed, it is launched
again, and its training resumes. The number of unfinished trials is limited by the pool's slots.
"""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg
from dagster import DagsterRunStatus

from graphmill.errors import GraphmillError
from graphmill.search.asked_trials import ask, give_up, stop_left_over, waiting
from graphmill.search.storage import VARIABLE
from graphmill.search.study import Search, finished

if TYPE_CHECKING:
    import optuna

PARTITION = "dagster/partition"
ATTEMPTS = 3
"""Number of failed runs after which a trial counts as failed."""


@dataclass
class SearchState:
    """The state of a search: runs to launch (partition key → run key), and whether all trials are finished."""

    launch: dict[str, str] = field(default_factory=dict)
    under_way: int = 0
    made: int = 0

    @property
    def ended(self) -> bool:
        """Whether no trial is unfinished and none is left to request."""
        return not self.launch and not self.under_way


def search_state(instance: dg.DagsterInstance, search: Search, study: "optuna.Study", pool: str) -> SearchState:
    """Launch killed trials again, and request as many trials as the pool has free slots.

    Raises:
        TrainingError: the last trials all failed; the message gives the reason.
    """
    state = SearchState()
    for key, number in waiting(study).items():
        runs = instance.get_runs(filters=dg.RunsFilter(tags={PARTITION: key}))  # the newest first
        last = runs[0] if runs else None
        failed = sum(run.status == DagsterRunStatus.FAILURE for run in runs)
        if last is None:
            state.launch[key] = key  # Dagster accepts a run key only once, so a repeated request is harmless
        elif not last.is_finished or stop_left_over(study, number):
            state.under_way += 1
        elif last.status == DagsterRunStatus.CANCELED:
            give_up(study, number, f"its run {last.run_id[:8]} was cancelled")
        elif failed >= ATTEMPTS:
            give_up(study, number, f"{failed} of its runs failed, the last is {last.run_id[:8]}")
        else:
            state.launch[key] = f"{key}-{len(runs)}"
    while state.under_way + len(state.launch) < places(instance, pool) and (key := ask(search, study)):
        state.launch[key] = key
    state.made = finished(study)
    return state


def places(instance: dg.DagsterInstance, pool: str) -> int:
    """Number of steps of the pool that may run at the same time; 1 if it has no limit."""
    limits = {limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()}
    default = instance.get_concurrency_config().pool_config.default_pool_limit
    limit = limits.get(pool, default)
    return 1 if limit is None else limit


def studies_address(instance: dg.DagsterInstance) -> str:
    """The address of the studies: ``$GRAPHMILL_STUDIES``, else the instance's PostgreSQL, else "" (a file in the
    project)."""
    return os.environ.get(VARIABLE) or str(getattr(instance.run_storage, "postgres_url", "") or "")


def sensor_result(
    instance: dg.DagsterInstance, search: Search, pool: str, partitions: dg.DynamicPartitionsDefinition, prefix: str
) -> dg.SensorResult:
    """One tick: runs of trials, or of the leaderboard after the last trial, or the reason for neither.

    ``prefix``: prefix of the jobs' names, ``<dataset>_<model>``.
    """
    try:
        state = search_state(instance, search, search.study(), pool)
    except GraphmillError as error:
        return dg.SensorResult(skip_reason=str(error))
    if state.launch:
        known = set(instance.get_dynamic_partitions(str(partitions.name)))
        new = [key for key in state.launch if key not in known]
        return dg.SensorResult(
            run_requests=[
                dg.RunRequest(run_key=run_key, partition_key=key, job_name=f"{prefix}_trial")
                for key, run_key in state.launch.items()
            ],
            dynamic_partitions_requests=[partitions.build_add_request(new)] if new else [],
        )
    if state.ended and state.made:
        request = dg.RunRequest(run_key=f"{search.folder.name}-{state.made}", job_name=f"{prefix}_leaderboard")
        return dg.SensorResult(run_requests=[request])
    return dg.SensorResult(skip_reason=f"{state.made} trials have ended, {state.under_way} are under way")
