"""The partitions of a dataset with snapshots: their definition, and the sensor and the schedule that follow them."""

import json
from collections.abc import Callable, Mapping

import dagster as dg

from graphmill.errors import InputError
from graphmill.orchestration.automation import evaluate


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
    :func:`graphmill.orchestration.automation.evaluate` for each snapshot.
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
