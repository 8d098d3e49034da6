"""Sends alerts: on failed runs, failed checks, stale assets, and runs that did not go live.

There are two sensors: Dagster's own for failed runs, and one for checks, ages and promotion decisions. Apprise delivers
the messages to its addresses (mail, Slack, Teams, a webhook, …).
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import dagster as dg
from dagster import AssetCheckSeverity
from pydantic import Field

from graphmill.errors import ResourceError, SettingsError

Kind = Literal["failed_run", "failed_check", "stale_asset", "kept_champion"]
KINDS: tuple[Kind, ...] = ("failed_run", "failed_check", "stale_asset", "kept_champion")
RESOURCE = "alerts"
LOOK_SECONDS = 60
SHOWN = 20
"""Largest number of alerts that one message describes in full."""
_PROMOTED = "_promoted"


@dataclass(frozen=True)
class Alert:
    """One alert. ``mark`` identifies its cause, so that it is sent only once."""

    kind: Kind
    about: str
    text: str
    mark: str

    @property
    def key(self) -> str:
        """The alert's key in the sensor's cursor."""
        return f"{self.kind} {self.about}"


class AlertTargets(dg.ConfigurableResource):
    """The targets of alerts: addresses of Apprise, such as ``mailtos://…`` or ``slack://…``."""

    targets: list[str] = Field(
        description="Addresses of Apprise. They contain tokens, so read them from the environment."
    )
    ui: str = Field(
        default="", description="Address of the Dagster UI, for links, such as http://dagster.example:3000."
    )

    def send(self, title: str, lines: Sequence[str]) -> None:
        """Send one message to every target.

        Raises:
            ResourceError: no target accepted it. If some did, it is not sent again.
        """
        import apprise

        described = [*lines[:SHOWN], *([f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else [])]
        sent = []
        for target in self.targets:
            sender = apprise.Apprise()
            sender.add(target)
            sent.append(bool(sender.notify(title=title, body="\n".join(described))))
        if not any(sent):
            where = ", ".join(_scheme(target) for target in self.targets)
            raise ResourceError(f"no target accepted the alert ({where}): it is sent again at the next check")

    def link(self, path: str) -> str:
        """A link to a page of the UI, in brackets, or ""."""
        return f" ({self.ui.rstrip('/')}/{path})" if self.ui else ""


def checked_targets(targets: Sequence[str]) -> list[str]:
    """``targets`` if Apprise accepts them all; raises :class:`SettingsError` otherwise. The message does not repeat an
    address."""
    if not targets:
        raise SettingsError("alerts: targets is empty; name one, such as mailtos://USER:PASSWORD@example.org")
    if find_spec("apprise") is None:
        raise SettingsError('alerts need Apprise: pip install "graphmill[alerts]"')
    import apprise

    for number, target in enumerate(targets, 1):
        if not target or apprise.Apprise.instantiate(target) is None:
            raise SettingsError(
                f"alerts: target {number} ({_scheme(target)}) is not an address of Apprise; if it comes from the "
                "environment, is the variable set? See https://github.com/caronc/apprise/wiki"
            )
    return list(targets)


def alert_sensors(name: str, kinds: Sequence[Kind], least: AssetCheckSeverity) -> list[dg.SensorDefinition]:
    """Make the sensors for alerts of these ``kinds``. ``least``: lowest severity of failed checks."""
    sensors = []
    if "failed_run" in kinds:

        @dg.run_failure_sensor(
            name=f"{name}_runs",
            default_status=dg.DefaultSensorStatus.RUNNING,
            description="Reports each failed run.",
        )
        def runs(context: dg.RunFailureSensorContext, alerts: AlertTargets) -> None:
            run = context.dagster_run
            why = _cause(context)
            alerts.send(f"Run failed: {run.job_name}", [f"{why}{alerts.link(f'runs/{run.run_id}')}"])

        sensors.append(runs)
    looked_at = [kind for kind in kinds if kind != "failed_run"]
    if looked_at:

        @dg.sensor(
            name=f"{name}_looks",
            minimum_interval_seconds=LOOK_SECONDS,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description=f"Reports once each {', '.join(kind.replace('_', ' ') for kind in looked_at)}.",
        )
        def checks_sensor(context: dg.SensorEvaluationContext, alerts: AlertTargets) -> dg.SensorResult:
            return check(context, alerts, looked_at, least)

        sensors.append(checks_sensor)
    return sensors


def check(
    context: dg.SensorEvaluationContext, targets: AlertTargets, kinds: Sequence[Kind], least: AssetCheckSeverity
) -> dg.SensorResult:
    """Send alerts that are new since the last call. The first call only records the present state."""
    graph = context.repository_def.asset_graph if context.repository_def else None
    alerts: list[Alert] = []
    if graph is not None:
        if "failed_check" in kinds:
            alerts += failed_checks(context.instance, list(graph.asset_check_keys), least)
        if "stale_asset" in kinds:
            policies = {key: graph.get(key).freshness_policy for key in graph.materializable_asset_keys}
            alerts += stale_assets(context.instance, policies, time.time())
        if "kept_champion" in kinds:
            promoted = [key for key in graph.materializable_asset_keys if key.path[-1].endswith(_PROMOTED)]
            alerts += kept_champions(context.instance, promoted)
    before: Mapping[str, str] | None = json.loads(context.cursor) if context.cursor else None
    new = [] if before is None else [alert for alert in alerts if before.get(alert.key) != alert.mark]
    if new:
        title = new[0].text if len(new) == 1 else f"{len(new)} alerts"
        targets.send(title.splitlines()[0][:120], [_line(alert, targets) for alert in new])
    return dg.SensorResult(
        skip_reason=f"told of {len(new)}" if new else "nothing new",
        cursor=json.dumps({alert.key: alert.mark for alert in alerts}),
    )


def failed_checks(
    instance: dg.DagsterInstance, keys: Sequence[dg.AssetCheckKey], least: AssetCheckSeverity
) -> Iterator[Alert]:
    """Checks whose last evaluation failed."""
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    for key, record in records.items():
        if record.status.value != "FAILED":
            continue
        event = record.event.dagster_event if record.event else None
        evaluation = event.asset_check_evaluation_data if event else None
        severity = evaluation.severity if evaluation else AssetCheckSeverity.ERROR
        if least == AssetCheckSeverity.ERROR and severity != AssetCheckSeverity.ERROR:
            continue
        asset = key.asset_key.to_user_string()
        why = (evaluation.description if evaluation else "") or "no description"
        yield Alert("failed_check", f"{asset} {key.name}", f"{asset}: check {key.name} failed. {why}", str(record.id))


def stale_assets(instance: dg.DagsterInstance, policies: Mapping[dg.AssetKey, Any], now: float) -> Iterator[Alert]:
    """Assets that are older than their freshness policy allows. Assets that were never materialized do not count."""
    wanted = {key: policy for key, policy in policies.items() if getattr(policy, "fail_window", None) is not None}
    for record in instance.get_asset_records(list(wanted)):
        last = record.asset_entry.last_materialization_record
        if last is None:
            continue
        key, age = record.asset_entry.asset_key, now - last.timestamp
        allowed = wanted[key].fail_window.to_timedelta().total_seconds()
        if age > allowed:
            asset = key.to_user_string()
            text = f"{asset} is stale: it is {age / 3600:.0f} hours old, at most {allowed / 3600:g} are allowed"
            yield Alert("stale_asset", asset, text, str(last.storage_id))


def kept_champions(instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]) -> Iterator[Alert]:
    """Promotions whose last decision was to keep the live version."""
    for record in instance.get_asset_records(list(keys)):
        last = record.asset_entry.last_materialization_record
        described = last.asset_materialization.metadata if last and last.asset_materialization else {}
        if last is not None and getattr(described.get("decision"), "value", "") == "kept":
            asset = record.asset_entry.asset_key.to_user_string()
            reason = getattr(described.get("reason"), "value", "")
            text = f"{asset}: the new run did not go live. {reason}"
            yield Alert("kept_champion", asset, text, str(last.storage_id))


def _line(alert: Alert, targets: AlertTargets) -> str:
    asset = alert.about.split(" ")[0]
    return f"{alert.text}{targets.link(f'assets/{asset}')}"


def _cause(context: dg.RunFailureSensorContext) -> str:
    """The message of the failed step, else of the run."""
    for event in context.get_step_failure_events():
        data = event.step_failure_data
        if data.user_failure_data is not None and data.user_failure_data.description:
            return f"{event.step_key}: {data.user_failure_data.description}"
        if data.error is not None:
            error = data.error.cause or data.error
            return f"{event.step_key}: {error.message.strip()}"
    return (context.failure_event.message or "").strip() or f"run {context.dagster_run.run_id} failed"


def _scheme(target: str) -> str:
    scheme, separator, _ = target.partition("://")
    return f"{scheme}://…" if separator else "without ://"
