"""The asset ``<dataset>/<model>_promoted``: decides by the policy in the YAML whether the run goes live, and shows the
live version.

The asset itself decides, so a job that selects everything, the schedule and a manual materialization give the same
result.
"""

from collections.abc import Sequence

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter

from graphmill.components import embeddings_asset, ranking_asset
from graphmill.components.drift_asset import NOT_LOST
from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.validation_asset import checks_of
from graphmill.components.worker_asset import Job, Step, WorkerAsset
from graphmill.errors import InputError, SettingsError
from graphmill.orchestration.checks import Check
from graphmill.orchestration.promotion import data_version, metadata
from graphmill.promotion.policy import Facts, decide
from graphmill.promotion.versions import Versions

WHOLE = Check(
    "version_is_whole",
    "Every file of the live version is unchanged since its promotion. If not: run graphmill rollback, then promote a "
    "run again.",
    blocking=True,
)
NOT_WORSE = Check(
    "not_worse_than_the_live_one",
    "The run is not clearly worse than the live version on validation. If it is: keep the live version.",
)


def promoted_asset(plan: ModelPlan) -> WorkerAsset:
    """The promotion asset. It succeeds whatever the decision, and its data version is the live version."""
    names = [gate.name for gate in gating_checks(plan)]
    if unknown := [name for name in plan.promotion.except_checks if name not in names]:
        raise SettingsError(f"promote.except_checks: there is no check '{unknown[0]}' (known: {', '.join(names)})")
    return WorkerAsset(
        part="promoted",
        stage="release",
        inputs=("export", *judging_parts(plan)),
        kinds={"parquet"},
        description=(
            f"The live version of {plan.name}, in `{plan.versions_folder}/current`. Materializing asks the policy "
            f"({plan.promotion.when}); by hand: `graphmill promote` and `graphmill rollback "
            f"{plan.dataset}/{plan.name}`."
        ),
        settings=plan.promotion,
        checks=(WHOLE, NOT_WORSE),
        job=_job,
        page=_page,
        more={"deps": [plan.key("links")] if not plan.abilities.recommends else []},  # the version contains this table
    )


def _by(step: Step) -> str:
    return f"Dagster run {step.context.run.run_id}"


def _job(step: Step) -> Job | None:
    policy, drift = step.settings, step.inputs["drift"]
    store = Versions(step.path(step.plan.versions_folder))
    compared_with = store.current_name()
    if policy.when == "manual" and store.current() is None:
        return None
    failed = failed_checks(step.context.instance, gating_checks(step.plan), step.snapshot)
    for part in judging_parts(step.plan):
        if step.inputs[part]["run_dir"] != step.run_dir:
            failed.append(f"{part} (of another run)")
    return {
        "mode": "promote",
        "run_dir": step.run_dir,
        "folder": step.plan.versions_folder,
        "promote": policy.model_dump(),
        "failed_checks": failed,
        "drift": drift["changed"] if drift["against"] == compared_with else None,
        "by": _by(step),
        "snapshot": step.snapshot,
    }


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    outcome = dict(step.report.result)
    if not outcome:  # the policy waits for a command, and nothing is live
        decision = decide(step.settings, Facts(run=str(step.run_dir)))
        outcome = {"outcome": decision.outcome, "reason": decision.reason, "comparison": {}}
        outcome |= dict.fromkeys(("version", "path", "champion", "problem"), "")
    step.context.log.info(f"{outcome['outcome']}: {outcome['reason']}")
    compared = outcome["comparison"]
    try:
        live = Versions(step.path(step.plan.versions_folder)).current()
        if live is not None:
            live.verify()
        whole, state = True, f"{live.name} is whole" if live else "nothing is live yet"
    except InputError as error:
        whole, state = False, str(error)
    worse = bool(compared) and compared["high"] < 0
    reason = outcome["reason"] if compared else outcome["problem"] or "nothing to compare with"
    return step.result(
        {name: outcome[name] for name in ("outcome", "version", "path")},
        metadata(outcome, _by(step), step.key),
        [
            step.check(WHOLE, whole, state),
            step.check(NOT_WORSE, not worse, reason),
        ],
        data_version(outcome),
    )


def judging_parts(plan: ModelPlan) -> tuple[str, ...]:
    """The parts whose checks judge the export."""
    return ("validation", "ranking", "drift") if plan.abilities.vectors else ("ranking", "drift")


def gating_checks(plan: ModelPlan) -> list[dg.AssetCheckKey]:
    """The checks that must pass for a promotion: those of the export, the validation, the ranking and the drift.

    ``promote.max_drift`` limits how many neighbours may change.
    """
    parts = {
        "embeddings": embeddings_asset.CHECKS,
        "scorer": embeddings_asset.SCORER_CHECKS,
        "validation": checks_of(plan),
        "ranking": ranking_asset.CHECKS,
        "drift": (NOT_LOST,),
    }
    judging = (plan.export_part, *judging_parts(plan))
    return [dg.AssetCheckKey(plan.key(part), check.name) for part in judging for check in parts[part]]


def failed_checks(instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], snapshot: str = "") -> list[str]:
    """Names of the checks that have no evaluation of this snapshot, or whose last one did not pass, including warnings."""
    only = PartitionKeyFilter(key=snapshot) if snapshot else None
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks, partition_filter=only)
    failed = []
    for check in checks:
        record = records.get(check)
        status = record.status.value if record else "PLANNED"
        if status != "SUCCEEDED":
            failed.append(check.name if status == "FAILED" else f"{check.name} (not evaluated)")
    return failed
