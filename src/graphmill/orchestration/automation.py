"""Jobs, schedules, file sensors, partitions of snapshots and freshness policies for the components.

Schedules and sensors are off until a user starts them in the UI.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg

from graphmill.errors import InputError, SettingsError
from graphmill.ingest import sources as source_files
from graphmill.ingest.files import path_text
from graphmill.ingest.snapshots import order

JobTarget = Any  # the return type of define_asset_job, which Dagster does not export


def retraining_schedule(
    name: str, job: JobTarget, cron: str, timezone: str, partitions: dg.DynamicPartitionsDefinition | None = None
) -> dg.ScheduleDefinition:
    """A schedule that launches ``job``; with ``partitions``, for the newest one.

    Raises :class:`SettingsError` for an invalid cron expression or time zone.
    """

    def newest(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if partitions is None:
            return dg.RunRequest()
        known = known_snapshots(context.instance, partitions)
        return dg.RunRequest(partition_key=known[-1]) if known else dg.SkipReason("there is no snapshot yet")

    try:
        return dg.ScheduleDefinition(
            name=name,
            job=job,
            cron_schedule=cron,
            execution_timezone=timezone,
            default_status=dg.DefaultScheduleStatus.STOPPED,
            execution_fn=newest,
            description=(
                "Rebuilds the graph from its files and trains, on a schedule. It is off until you switch it on here. "
                "If the graph has not changed, the finished run is reused within seconds."
            ),
        )
    except dg.DagsterInvalidDefinitionError as error:
        raise SettingsError(f"schedule: {' '.join(str(error).split())}") from None


def known_snapshots(instance: dg.DagsterInstance, partitions: dg.DynamicPartitionsDefinition) -> list[str]:
    """The names of the partitions, the oldest first."""
    return sorted(instance.get_dynamic_partitions(str(partitions.name)), key=order)


def freshness_policy(warn_hours: float, fail_hours: float) -> dg.FreshnessPolicy:
    """A policy that warns, then fails, after these numbers of hours since the last materialization (``warn_hours`` 0:
    no warning)."""
    if fail_hours <= 0:
        raise SettingsError(f"freshness.fail_hours = {fail_hours:g}: must be > 0")
    if warn_hours and warn_hours >= fail_hours:
        raise SettingsError(f"freshness.warn_hours = {warn_hours:g} must be less than fail_hours = {fail_hours:g}")
    warn = timedelta(hours=warn_hours) if warn_hours else None
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=fail_hours), warn_window=warn)


def file_sensor(
    name: str,
    job: JobTarget,
    looked_at: Sequence[str],
    evaluate_files: Callable[[str | None], dg.SensorResult],
    interval_seconds: int,
) -> dg.SensorDefinition:
    """A sensor that launches ``job`` when the content of one of the files has changed.

    ``looked_at``: the sources' paths, as shown to users. ``evaluate_files``: one tick, from the cursor (:func:`evaluate`).

    A file that is still being written is ignored: its size and time must be the same in two ticks. A file that was only
    touched launches nothing.
    """

    @dg.sensor(
        name=name,
        job=job,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=(
            f"Looks at {', '.join(map(path_text, looked_at))} every {interval_seconds} s and runs the whole chain when "
            "their content has changed and stays so. Off until you switch it on here."
        ),
    )
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return evaluate_files(context.cursor)

    return tick


def evaluate(cursor: str | None, find: Callable[[], Mapping[str, str]]) -> dg.SensorResult:
    """One tick: the run request or the reason for none, and the next cursor.

    ``find``: returns the current files, name → path or URL (files of a folder may change).

    The cursor holds the last state, the state and content of the last launched run, and the number of runs. So content
    that returns after a change is launched again, but the same state is not launched twice.
    """
    before: dict[str, Any] = json.loads(cursor) if cursor else {"seen": {}, "settled": {}, "content": "", "runs": 0}
    try:
        paths = find()
        seen = {
            name: [state.size, state.version] for name, path in paths.items() for state in (source_files.state(path),)
        }
    except InputError as error:
        return dg.SensorResult(skip_reason=str(error), cursor=json.dumps({**before, "seen": {}}))
    after = {**before, "seen": seen}
    if seen == before["settled"]:
        return dg.SensorResult(skip_reason="the files have not changed", cursor=json.dumps(after))
    if seen != before["seen"]:
        reason = "the files are new or changing: waiting until two checks in a row find them unchanged"
        return dg.SensorResult(skip_reason=reason, cursor=json.dumps(after))
    content = hashlib.blake2b(
        "\n".join(f"{name} {source_files.digest(path)}" for name, path in sorted(paths.items())).encode(),
        digest_size=16,
    ).hexdigest()
    after = {**after, "settled": seen, "content": content}
    if content == before["content"]:
        reason = "the files were touched, but their content is the same"
        return dg.SensorResult(skip_reason=reason, cursor=json.dumps(after))
    after["runs"] = before["runs"] + 1
    request = dg.RunRequest(run_key=f"{content}-{after['runs']}", tags={"graphmill/content": content})
    return dg.SensorResult(run_requests=[request], cursor=json.dumps(after))


def snapshot_partitions(dataset: str) -> dg.DynamicPartitionsDefinition:
    """One partition for each snapshot of the dataset. The sensor adds them; so can a user, in the UI."""
    return dg.DynamicPartitionsDefinition(name=f"{dataset}_snapshots")


def evaluate_snapshots(
    cursor: str | None,
    names: Callable[[], list[str]],
    files: Callable[[str], Mapping[str, str]],
    partitions: dg.DynamicPartitionsDefinition,
) -> dg.SensorResult:
    """One tick: a run for each snapshot whose files are new or have changed, the oldest first; or the reason for none.

    ``names``: the snapshots of today. ``files``: name → path or URL of each file of a snapshot. The cursor holds that of
    :func:`evaluate` for each snapshot.
    """
    before: dict[str, str] = json.loads(cursor) if cursor else {}
    try:
        current = names()
    except InputError as error:
        return dg.SensorResult(skip_reason=str(error), cursor=cursor)
    after: dict[str, str] = {}
    requests, reasons = list[dg.RunRequest](), list[str]()
    for name in current:
        one = evaluate(before.get(name), lambda name=name: files(name))  # type: ignore[misc]
        after[name] = str(one.cursor)
        requests += [
            dg.RunRequest(run_key=f"{name}-{each.run_key}", partition_key=name, tags=each.tags)
            for each in one.run_requests or ()
        ]
        if one.skip_reason:
            reasons.append(str(one.skip_reason.skip_message))
    if not requests:
        return dg.SensorResult(
            skip_reason="; ".join(dict.fromkeys(reasons)) or "there is no snapshot yet", cursor=json.dumps(after)
        )
    added = partitions.build_add_request([str(each.partition_key) for each in requests])
    return dg.SensorResult(run_requests=requests, dynamic_partitions_requests=[added], cursor=json.dumps(after))
