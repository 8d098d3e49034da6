"""Shows a promotion or rollback in Dagster, from the asset or after a command: its metadata, and the event.

``python -m graphmill.orchestration.promotion DAGSTER_HOME`` (the event as JSON on stdin) is the command by which
``graphmill promote`` and ``graphmill rollback`` record their result in the event log.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import dagster as dg

from graphmill.errors import EXIT_OK, GraphmillError
from graphmill.orchestration.instance import open_instance
from graphmill.orchestration.metadata import markdown_table, rounded, scalars, snippet
from graphmill.orchestration.page import in_words, links

NO_VERSION = "none"


def data_version(outcome: Mapping[str, Any]) -> str:
    """The live version as data version. It does not change if the champion was kept."""
    return str(outcome["version"]) or NO_VERSION


def metadata(outcome: Mapping[str, Any], by: str, asset: dg.AssetKey) -> dict[str, Any]:
    """The asset's metadata on a decision: outcome, reason, the metric of both, and how to read the live version."""
    compared = outcome.get("comparison") or {}
    figures = ("candidate", "champion", "difference", "low", "high", "queries", "left_out")
    page: dict[str, Any] = {
        "summary": in_words(_summary(outcome), links(asset)),
        "decision": outcome["outcome"],
        "reason": outcome["reason"],
        "live_version": outcome["version"] or NO_VERSION,
        "live_before": outcome["champion"] or NO_VERSION,
        "by": by,
        **{name: rounded(value) for name, value in scalars({name: compared.get(name) for name in figures}).items()},
    }
    if compared:
        page["metric"] = compared["metric"]
        page["figures"] = dg.MetadataValue.md(markdown_table(_figure_rows(outcome, compared)))
    elif outcome.get("problem"):
        page["not_compared"] = outcome["problem"]
    if outcome["version"]:
        page["version_path"] = dg.MetadataValue.path(str(outcome["path"]))
        link = f"{os.path.dirname(outcome['path'])}/current"
        page["how_to_load"] = snippet(f"import graphmill\n\nlive = graphmill.load({link!r})\nlive.card()")
    return page


def _summary(outcome: Mapping[str, Any]) -> str:
    """A summary: the decision, its reason, and the live version."""
    reason = str(outcome["reason"]).strip().rstrip(".")
    live = f"Live now: `{outcome['version']}`." if outcome["version"] else "Nothing is live yet."
    return f"**{str(outcome['outcome']).capitalize()}**: {reason}. {live}"


def _figure_rows(outcome: Mapping[str, Any], compared: Mapping[str, Any]) -> list[dict[str, Any]]:
    name = compared["metric"]
    interval = f"{compared['difference']:+.4f} ({compared['low']:+.4f} to {compared['high']:+.4f})"
    rows = [
        {
            "figure": f"{name}, validation, the same {compared['queries']:,} queries",
            "candidate": compared["candidate"],
            "live before": compared["champion"],
            "gain (95 % interval)": interval,
        }
    ]
    test = outcome["test"]
    if name in test["candidate"]:
        mine, theirs = test["candidate"][name], test["champion"].get(name)
        label = f"{name}, test, each on its own data: decides nothing"
        rows.append({"figure": label, "candidate": mine, "live before": theirs, "gain (95 % interval)": ""})
    return rows


def record(instance: dg.DagsterInstance, event: Mapping[str, Any]) -> None:
    """Record a command's result in the event log, as a materialization of ``<dataset>/<model>_promoted``."""
    outcome, key = event["decision"], dg.AssetKey([event["dataset"], f"{event['model']}_promoted"])
    instance.report_runless_asset_event(
        dg.AssetMaterialization(
            asset_key=key,
            description=f"by command: {outcome['reason']}",
            metadata=metadata(outcome, str(event["by"]), key),
            tags={"dagster/data_version": data_version(outcome)},
        )
    )


def main(arguments: list[str]) -> int:
    """Record the event on stdin in the instance of the given DAGSTER_HOME."""
    os.environ["DAGSTER_HOME"] = os.path.abspath(arguments[0])
    try:
        with open_instance() as instance:
            record(instance, json.load(sys.stdin))
    except GraphmillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
