"""The component type ``graphmill.components.Alerts``: sends alerts when something fails, configured by a few lines of
YAML."""

from typing import Literal

import dagster as dg
from dagster import AssetCheckSeverity
from pydantic import Field

from graphmill.errors import SettingsError
from graphmill.ingest.sources import checked_name
from graphmill.orchestration.alerts import KINDS, RESOURCE, AlertTargets, Kind, alert_sensors, checked_targets
from graphmill.orchestration.loading import in_a_run


class Alerts(dg.Component, dg.Model, dg.Resolvable):
    """Sends mail, chat messages or webhooks when a run or check fails, an asset is stale, or a run does not go live."""

    targets: list[str | None] = Field(
        description="Addresses of Apprise, such as mailtos://… or slack://…; {{ env.NAME }} reads one from the environment."
    )
    name: str = Field("alerts", description="First part of the sensors' names.")
    events: list[Kind] = Field(
        default_factory=lambda: list(KINDS), description=f"Events to report: {', '.join(KINDS)}."
    )
    severity: Literal["warn", "error"] = Field(
        "error", description="Lowest severity of a failed check that is reported."
    )
    ui: str = Field("", description="Address of the Dagster UI, for links, such as http://dagster.example:3000.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the sensors, and the targets as the resource ``alerts``."""
        if not self.events:
            raise SettingsError(f"alerts: 'events' is empty; name some of {', '.join(KINDS)}")
        given = [target or "" for target in self.targets]  # None: the environment variable is not set
        targets = given if in_a_run() else checked_targets(given)
        least = AssetCheckSeverity.WARN if self.severity == "warn" else AssetCheckSeverity.ERROR
        return dg.Definitions(
            sensors=alert_sensors(checked_name(self.name, "name"), self.events, least),
            resources={RESOURCE: AlertTargets(targets=targets, ui=self.ui)},
        )
