"""Removes what old snapshots of a dataset made: tables, graphs and runs."""

import shutil

import dagster as dg

from graphmill.components.plan import DatasetPlan
from graphmill.errors import InputError
from graphmill.graph.graph_location import SNAPSHOTS
from graphmill.ingest.snapshots import checked_snapshot
from graphmill.orchestration.automation import known_snapshots
from graphmill.orchestration.home import OUTPUTS, PROMOTED
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
    folders = [path for path in (plan.root / PROMOTED / plan.dataset).glob("*") if path.is_dir()]
    try:
        live = [Versions(folder).current() for folder in folders]
        gone = [checked_snapshot(name) for name in known if name not in spared]
    except InputError as error:
        context.log.warning(f"no snapshot was removed: {error}")
        return []
    gone = [name for name in gone if name not in {version.about["snapshot"] for version in live if version}]
    outputs = plan.root / OUTPUTS / plan.dataset
    for name in gone:
        shutil.rmtree(outputs / SNAPSHOTS / name, ignore_errors=True)
        for suffix in (".json", ".parquet"):
            for path in outputs.glob(f"*/{name}{suffix}"):
                path.unlink(missing_ok=True)
        instance.delete_dynamic_partition(str(partitions.name), name)
        context.log.info(f"removed snapshot {name}: partitions.keep is {plan.snapshots.keep}")
    return gone
