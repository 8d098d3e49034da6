"""Trials of a search as partitions: the sensor or ``graphmill search DATASET/MODEL`` requests and launches them.

A trial that Optuna has created is unfinished until its partition is materialized. If its run was killed, it is launched
again, and its training resumes. The number of unfinished trials is limited by the pool's slots. ``python -m
graphmill.orchestration.searching DATASET/MODEL`` runs the trials one after the other in this process.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg
import psutil
from dagster import DagsterRun, DagsterRunStatus

from graphmill.errors import EXIT_OK, EXIT_STOPPED, GraphmillError, InputError, TrainingError
from graphmill.orchestration.demo import load
from graphmill.orchestration.home import dagster_home, project_root
from graphmill.orchestration.instance import open_instance
from graphmill.search.asked_trials import ask, give_up, stop_left_over, waiting
from graphmill.search.storage import VARIABLE
from graphmill.search.study import Search, finished, is_alive, open_search

if TYPE_CHECKING:
    import optuna

PARTITION = "dagster/partition"
PROCESS = "graphmill/process"
"""Tag of a run that a command executes: its process id, start time and machine."""
ATTEMPTS = 3
"""Number of failed runs after which a trial counts as failed."""
LOOK_SECONDS = 2.0
SEARCH_METADATA = "search"


@dataclass
class Look:
    """The state of a search: runs to launch (partition key → run key), and whether all trials are finished."""

    launch: dict[str, str] = field(default_factory=dict)
    under_way: int = 0
    made: int = 0

    @property
    def done(self) -> bool:
        """Whether no trial is unfinished and none is left to request."""
        return not self.launch and not self.under_way


def look(instance: dg.DagsterInstance, search: Search, study: "optuna.Study", pool: str) -> Look:
    """Launch killed trials again, and request as many trials as the pool has free slots.

    Raises:
        TrainingError: the last trials all failed; the message gives the reason.
    """
    found = Look()
    for key, number in waiting(study).items():
        runs = instance.get_runs(filters=dg.RunsFilter(tags={PARTITION: key}))  # the newest first
        last = _settled(instance, runs[0]) if runs else None
        failed = sum(run.status == DagsterRunStatus.FAILURE for run in runs)
        if last is None:
            found.launch[key] = key  # Dagster accepts a run key only once, so a repeated request is harmless
        elif not last.is_finished or stop_left_over(study, number):
            found.under_way += 1
        elif last.status == DagsterRunStatus.CANCELED and PROCESS not in last.tags:
            give_up(study, number, f"its run {last.run_id[:8]} was cancelled")
        elif failed >= ATTEMPTS:
            give_up(study, number, f"{failed} of its runs failed, the last is {last.run_id[:8]}")
        else:
            found.launch[key] = f"{key}-{len(runs)}"
    while found.under_way + len(found.launch) < places(instance, pool) and (key := ask(search, study)):
        found.launch[key] = key
    found.made = finished(study)
    return found


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
        found = look(instance, search, search.study(), pool)
    except GraphmillError as error:
        return dg.SensorResult(skip_reason=str(error))
    if found.launch:
        known = set(instance.get_dynamic_partitions(str(partitions.name)))
        new = [key for key in found.launch if key not in known]
        return dg.SensorResult(
            run_requests=[
                dg.RunRequest(run_key=run_key, partition_key=key, job_name=f"{prefix}_trial")
                for key, run_key in found.launch.items()
            ],
            dynamic_partitions_requests=[partitions.build_add_request(new)] if new else [],
        )
    if found.done and found.made:
        request = dg.RunRequest(run_key=f"{search.folder.name}-{found.made}", job_name=f"{prefix}_leaderboard")
        return dg.SensorResult(run_requests=[request])
    return dg.SensorResult(skip_reason=f"{found.made} trials have ended, {found.under_way} are under way")


def _settled(instance: dg.DagsterInstance, run: DagsterRun) -> DagsterRun:
    """Return the run, after ending it if the command that executed it no longer exists."""
    if run.is_finished or PROCESS not in run.tags or is_alive(run.tags[PROCESS].split()):
        return run
    instance.report_run_canceled(run, "the command that executed it was killed; the next one goes on")
    if instance.event_log_storage.supports_global_concurrency_limits:
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return instance.get_run_by_id(run.run_id) or run


# -- the command -----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the missing trials, then make the leaderboard. The last line on stdout names its folder (JSON)."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.orchestration.searching", description=__doc__)
    parser.add_argument("model", help="DATASET/MODEL")
    options = parser.parse_args(arguments)
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        root = project_root()
        os.chdir(root)
        dagster_home(root)
        definitions = load(root)
        with open_instance() as instance:
            found = run(instance, definitions, options.model)
        print(json.dumps({"folder": str((root / found.folder).resolve())}))
    except GraphmillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
        print("stopped; the same command goes on", file=sys.stderr)
        return EXIT_STOPPED
    return EXIT_OK


def run(instance: dg.DagsterInstance, definitions: dg.Definitions, model: str) -> Search:
    """Run all trials of DATASET/MODEL, one after the other, and make the leaderboard.

    Raises:
        InputError: there is no such model, or it has no section ``search``.
        TrainingError: the trials, or the leaderboard, fail.
    """
    key = dg.AssetKey(f"{model}_trials".split("/"))
    spec = next((spec for spec in definitions.resolve_all_asset_specs() if spec.key == key), None)
    if spec is None:
        raise InputError(f"no component of this project has a model {model} with a section 'search'")
    about: Any = spec.metadata[SEARCH_METADATA].data
    address = studies_address(instance)
    search = open_search(about["settings"], model, about["run_root"], address=address)
    study, prefix = search.study(), model.replace("/", "_")
    trial, board = (definitions.resolve_job_def(f"{prefix}_{name}") for name in ("trial", "leaderboard"))
    tags = {PROCESS: f"{os.getpid()} {psutil.Process().create_time()} {socket.gethostname()}"}
    while not (found := look(instance, search, study, about["pool"])).done:
        if not found.launch:
            time.sleep(LOOK_SECONDS)
            continue
        partition = next(iter(found.launch))
        instance.add_dynamic_partitions(about["partitions"], [partition])
        done = trial.execute_in_process(
            partition_key=partition, instance=instance, tags=tags, raise_on_error=False, asset_selection=[key]
        )
        print(_told(done, partition), file=sys.stderr, flush=True)
    done = board.execute_in_process(instance=instance, tags=tags, raise_on_error=False)
    if not done.success:
        raise TrainingError(_told(done, "the leaderboard"))
    return search


def _told(result: dg.ExecuteInProcessResult, what: str) -> str:
    """The output line for a trial that has ended."""
    for event in result.all_events:
        if event.is_step_materialization:
            summary = event.step_materialization_data.materialization.metadata.get("summary")
            return str(summary.value) if summary else what
        if event.is_step_failure:
            failure = event.step_failure_data
            told = failure.user_failure_data.description if failure.user_failure_data else failure.error
            return f"{what}: {told}"
    return f"{what}: did not run"


if __name__ == "__main__":
    sys.exit(main())
