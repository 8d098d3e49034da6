"""Removes what old snapshots of a dataset made: graphs, tables, and runs that no kept snapshot has."""

import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg

from graphmill.components.plan import DatasetPlan
from graphmill.graph.graph_location import SNAPSHOTS
from graphmill.orchestration.home import OUTPUTS, PROMOTED
from graphmill.orchestration.snapshots import known_snapshots
from graphmill.promotion.versions import Versions

PARTITION = "dagster/partition"


def remove_old(context: dg.AssetExecutionContext, plan: DatasetPlan) -> list[str]:
    """Remove all but the newest ``partitions.keep`` snapshots from disk and from Dagster; returns their names.

    The step's own snapshot, those of live versions, and those with an unfinished run are kept. Promoted versions are
    complete in themselves, and are not touched.
    """
    partitions = plan.partitions_def
    if plan.snapshots is None or partitions is None or not plan.snapshots.keep:
        return []
    known, instance = known_snapshots(context.instance, partitions), context.instance
    unfinished = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING]
    runs = instance.get_runs(dg.RunsFilter(statuses=[*unfinished, dg.DagsterRunStatus.STARTED]))
    spared = {*known[-plan.snapshots.keep :], context.partition_key, *(run.tags.get(PARTITION) for run in runs)}
    live = (Versions(folder).current() for folder in (plan.root / PROMOTED / plan.dataset).glob("*"))
    spared |= {str(version.about.get("snapshot", "")) for version in live if version}
    outputs, gone = plan.root / OUTPUTS / plan.dataset, [name for name in known if name not in spared]
    kept = {run for name in known if name not in gone for run in _runs(outputs, name)}
    for name in gone:
        for run in _runs(outputs, name) - kept:
            shutil.rmtree(plan.root / run, ignore_errors=True)
        if not any(f"/{SNAPSHOTS}/{name}/" in _graph(plan.root / run) for run in kept):
            shutil.rmtree(outputs / SNAPSHOTS / name, ignore_errors=True)
        for suffix in (".json", ".parquet"):
            for path in outputs.glob(f"*/{name}{suffix}"):
                path.unlink(missing_ok=True)
        instance.delete_dynamic_partition(str(partitions.name), name)
        context.log.info(f"removed snapshot {name}: partitions.keep is {plan.snapshots.keep}")
    return gone


def _runs(outputs: Path, snapshot: str) -> set[str]:
    """The run directories of a snapshot's models, relative to the project."""
    return {str(_read(path).get("run_dir", "")) for path in outputs.glob(f"*_model/{snapshot}.json")} - {""}


def _graph(run: Path) -> str:
    """The path of the graph on which a run was trained; a run with the data of an older snapshot is reused."""
    return str(_read(run / "manifest.json").get("data", {}).get("path", ""))


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        return {}
