"""Jobs, schedules, file sensors and freshness policies, as the components ask for them.

Schedules and sensors are stopped until a person starts them in the UI.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg

from graphmill.errors import InputError, SettingsError
from graphmill.ingest.files import shown
from graphmill.orchestration import files

JobTarget = Any  # what define_asset_job returns; Dagster does not export its type


def chain_job(name: str, selection: dg.AssetSelection, description: str) -> JobTarget:
    """A job over assets; all run config has valid defaults, so that a schedule or sensor can launch it."""
    return dg.define_asset_job(name, selection=selection, description=description)


def retraining_schedule(name: str, job: JobTarget, cron: str, timezone: str) -> dg.ScheduleDefinition:
    """Launch ``job`` by the clock. Raises :class:`SettingsError` for a cron expression or time zone that is none."""
    try:
        return dg.ScheduleDefinition(
            name=name,
            job=job,
            cron_schedule=cron,
            execution_timezone=timezone,
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description=(
                "Rebuilds the graph from its files and trains, on a schedule. It is off until you switch it on here. "
                "If the graph has not changed, the finished run is reused within seconds."
            ),
        )
    except dg.DagsterInvalidDefinitionError as error:
        raise SettingsError(f"schedule: {' '.join(str(error).split())}") from None


def freshness_policy(warn_hours: float, fail_hours: float) -> dg.FreshnessPolicy:
    """Warn, then fail, when an asset was last materialized so many hours ago (``warn_hours`` 0: no warning)."""
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
    find: Callable[[], Mapping[str, str]],
    interval_seconds: int,
) -> dg.SensorDefinition:
    """Launch ``job`` when the content of one of the files changed.

    ``looked_at``: the sources' paths, as shown to people; ``find``: the files at this moment, name → path or URL (a
    folder's may come and go).

    A file that is still being written is left alone: size and time must be the same at two looks. A file that was only
    touched launches nothing.
    """

    @dg.sensor(
        name=name,
        job=job,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=(
            f"Looks at {', '.join(map(shown, looked_at))} every {interval_seconds} s and runs the whole chain when "
            "their content has changed and stays so. Off until you switch it on here."
        ),
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return evaluate(context.cursor, find)

    return look


def evaluate(
    cursor: str | None, find: Callable[[], Mapping[str, str]], digest: Callable[[str], str] = files.digest
) -> dg.SensorResult:
    """One look at the files: the request or the reason for none, and the next cursor.

    The cursor holds the state seen last, the state and content that a run was last launched for, and how many runs
    there were: content that comes back after a change is launched again, the same look twice is not.
    """
    before: dict[str, Any] = json.loads(cursor) if cursor else {"seen": {}, "settled": {}, "content": "", "runs": 0}
    try:
        paths = find()
        seen = {name: [state.size, state.version] for name, path in paths.items() for state in (files.state(path),)}
    except InputError as error:
        return dg.SensorResult(skip_reason=str(error), cursor=json.dumps({**before, "seen": {}}))
    after = {**before, "seen": seen}
    if seen == before["settled"]:
        return dg.SensorResult(skip_reason="the files have not changed", cursor=json.dumps(after))
    if seen != before["seen"]:
        reason = "the files are new or changing: waiting until two checks in a row find them unchanged"
        return dg.SensorResult(skip_reason=reason, cursor=json.dumps(after))
    content = hashlib.blake2b(
        "\n".join(f"{name} {digest(path)}" for name, path in sorted(paths.items())).encode(), digest_size=16
    ).hexdigest()
    after = {**after, "settled": seen, "content": content}
    if content == before["content"]:
        reason = "the files were touched, but their content is the same"
        return dg.SensorResult(skip_reason=reason, cursor=json.dumps(after))
    after["runs"] = before["runs"] + 1
    request = dg.RunRequest(run_key=f"{content}-{after['runs']}", tags={"graphmill/content": content})
    return dg.SensorResult(run_requests=[request], cursor=json.dumps(after))
