"""Asset checks that are computed in the step of their asset: specs, results, and figures of the previous run.

A separate check would need another process. A check judges data; an exception in a check stays an error.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg

from graphmill.evaluation.markdown import number

SeverityName = Literal["warn", "error"]
_SEVERITIES = {"warn": dg.AssetCheckSeverity.WARN, "error": dg.AssetCheckSeverity.ERROR}


@dataclass(frozen=True)
class Check:
    """One check of one asset. ``blocking``: a failure stops downstream assets in the same run.

    ``updated_later``: later steps report it again, which Dagster allows only for a check without partitions.
    """

    name: str
    description: str
    blocking: bool = False
    updated_later: bool = False

    def result(
        self,
        asset: dg.AssetKey,
        passed: bool,
        summary: str,
        *,
        severity: SeverityName | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> dg.AssetCheckResult:
        """The check's result with a one-sentence description.

        By default, the ``severity`` of a failure is error for a blocking check and warning for others. A warning does
        not block. ``metadata``: label → value; the first number is the check's figure, which the UI plots over time, and
        further numbers, such as bounds, are shown as text.
        """
        return dg.AssetCheckResult(
            passed=bool(passed),
            asset_key=asset,
            check_name=self.name,
            severity=_SEVERITIES[severity or ("error" if self.blocking else "warn")],
            description=f"Passed: {summary}" if passed else summary,
            metadata=_first_plotted(metadata or {}),
        )


def _first_plotted(metadata: Mapping[str, Any]) -> dict[str, Any]:
    numbers = [
        name for name, value in metadata.items() if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    texts = {name: number(metadata[name]) for name in numbers[1:]}
    plotted = {name: float(f"{metadata[name]:.4g}") for name in numbers[:1] if isinstance(metadata[name], float)}
    return {**metadata, **texts, **plotted}


class PreviousRun:
    """The figures of an asset's last materialization, for comparison with the new ones."""

    def __init__(self, instance: dg.DagsterInstance, asset: dg.AssetKey) -> None:
        self.asset = asset
        event = instance.get_latest_materialization_event(asset)
        materialization = event.asset_materialization if event else None
        self._metadata = materialization.metadata if materialization else {}

    def value(self, name: str) -> Any:
        """The previous value ``name``, or None if there was none."""
        return getattr(self._metadata.get(name), "value", None)

    def figure(self, name: str) -> float | None:
        """The previous number ``name``, or None if there was none."""
        value = self.value(name)
        if value is None:
            value = self._in_table(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def _in_table(self, name: str) -> float | None:
        """The previous number in the table ``figures``."""
        table = self._metadata.get("figures")
        for record in table.records if isinstance(table, dg.TableMetadataValue) else ():
            if record.data.get("figure") == name:
                try:
                    return float(str(record.data.get("now")).replace(",", ""))
                except ValueError:
                    return None
        return None


def specs(
    asset: dg.AssetKey, checks: Sequence[Check], partitions: dg.PartitionsDefinition | None = None
) -> list[dg.AssetCheckSpec]:
    """The specs of several checks of one asset, for its definition; ``partitions``: of the asset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # of partitions_def
        return [
            dg.AssetCheckSpec(
                c.name,
                asset=asset,
                description=c.description,
                blocking=c.blocking,
                partitions_def=None if c.updated_later else partitions,
            )
            for c in checks
        ]
