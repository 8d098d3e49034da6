"""Asset checks computed in the step of the asset that they belong to: specs, results, and figures beside their past.

A separate check would be one more process. A check judges data; an exception in one is an error and stays one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg

from graphmill.orchestration.metadata import markdown_table, scalars

SeverityName = Literal["warn", "error"]
_SEVERITIES = {"warn": dg.AssetCheckSeverity.WARN, "error": dg.AssetCheckSeverity.ERROR}


@dataclass(frozen=True)
class Check:
    """One check of one asset. ``blocking``: a failure stops what is downstream in the same run."""

    name: str
    description: str
    blocking: bool = False

    def spec(self, asset: dg.AssetKey) -> dg.AssetCheckSpec:
        """The definition that the asset carries."""
        return dg.AssetCheckSpec(self.name, asset=asset, description=self.description, blocking=self.blocking)

    def result(
        self,
        asset: dg.AssetKey,
        passed: bool,
        summary: str,
        *,
        severity: SeverityName | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> dg.AssetCheckResult:
        """The verdict with one sentence on it.

        ``severity`` of a failure is an error for a blocking check and a warning else, unless given; a warning does not
        block.
        """
        return dg.AssetCheckResult(
            passed=bool(passed),
            asset_key=asset,
            check_name=self.name,
            severity=_SEVERITIES[severity or ("error" if self.blocking else "warn")],
            description=f"Passed: {summary}" if passed else summary,
            metadata=dict(metadata or {}),
        )


class PreviousRun:
    """The figures of an asset's last materialization, to stand beside the new ones."""

    def __init__(self, instance: dg.DagsterInstance, asset: dg.AssetKey) -> None:
        self.asset = asset
        event = instance.get_latest_materialization_event(asset)
        materialization = event.asset_materialization if event else None
        self._metadata = materialization.metadata if materialization else {}

    def figure(self, name: str) -> float | None:
        """The number that stood under ``name``, or None where there was none."""
        value = getattr(self._metadata.get(name), "value", None)
        if value is None:
            value = self._in_table(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def _in_table(self, name: str) -> float | None:
        """The number that stood in the table ``figures``."""
        table = self._metadata.get("figures")
        for record in table.records if isinstance(table, dg.TableMetadataValue) else ():
            if record.data.get("figure") == name:
                try:
                    return float(str(record.data.get("now")).replace(",", ""))
                except ValueError:
                    return None
        return None


def compared(
    figures: Mapping[str, Any], previous: PreviousRun, baselines: Mapping[str, Mapping[str, Any]] | None = None
) -> dg.MetadataValue:
    """A table: each figure now, in the previous run, and by each baseline (name → figure → value)."""
    rows: list[dict[str, Any]] = []
    for name, value in scalars(figures).items():
        row: dict[str, Any] = {"figure": name, "now": value, "previous": previous.figure(name)}
        row.update({baseline: values.get(name) for baseline, values in (baselines or {}).items()})
        rows.append(row)
    return dg.MetadataValue.md(markdown_table(rows))


def specs(asset: dg.AssetKey, checks: Sequence[Check]) -> list[dg.AssetCheckSpec]:
    """The specs of several checks of one asset."""
    return [check.spec(asset) for check in checks]
