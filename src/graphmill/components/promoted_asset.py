"""The asset ``<dataset>/<model>_promoted``: decides by the policy in the YAML whether the run goes live, and shows the
live version.

The asset itself decides, so a job that selects everything, the schedule and a manual materialization give the same
result.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from graphmill.components import embeddings_asset
from graphmill.components.drift_asset import DRIFT_CHECKS, STAYED
from graphmill.components.plan import POOL, ModelPlan, Reference, plan_asset
from graphmill.components.ranking_asset import KINDS
from graphmill.components.validation_asset import NAMED, groups_of
from graphmill.errors import InputError, SettingsError
from graphmill.export.index import REQUIRED_RECALL, index_problem, index_sentence
from graphmill.orchestration.checks import Check
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.page import explorer_link
from graphmill.orchestration.pipes import WorkerClient
from graphmill.orchestration.promotion import data_version, metadata
from graphmill.orchestration.run_config import config_class, to_settings
from graphmill.promotion.policy import Facts, PromotionSettings, decide
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
FINDS = Check(
    "index_finds_neighbours",
    f"The index finds {REQUIRED_RECALL:.0%} of the ten nearest neighbours that exact search finds, or search is exact. If "
    "not: promote again, which builds it again.",
    blocking=True,
)
CHECKS = (WHOLE, NOT_WORSE, FINDS)


def promoted_asset(plan: ModelPlan) -> dg.AssetsDefinition:
    """Make the promotion asset. It succeeds whatever the decision, and its data version is the live version."""
    key, gates = plan.key("promoted"), gating_checks(plan)
    names = [gate.name for gate in gates]
    if unknown := [name for name in plan.promotion.except_checks if name not in names]:
        raise SettingsError(f"promote.except_checks: there is no check '{unknown[0]}' (known: {', '.join(names)})")
    run_config = config_class(plan.promotion)

    @plan_asset(
        plan,
        "promoted",
        "release",
        inputs=("embeddings", "validation", "ranking", "drift"),
        kinds={"parquet"},
        description=(
            f"The live version of {plan.name}, in `{plan.versions_folder}/current`. Materializing asks the policy "
            f"({plan.promotion.when}); by hand: `graphmill promote` and `graphmill rollback "
            f"{plan.dataset}/{plan.name}`."
        ),
        checks=CHECKS,
        pool=POOL,
        deps=[] if plan.system.recommends else [plan.key("links")],  # the version contains this table
    )
    def promoted(
        context: dg.AssetExecutionContext,
        config: run_config,  # type: ignore[valid-type]
        embeddings: dict[str, Any],
        validation: dict[str, Any],
        ranking: dict[str, Any],
        drift: dict[str, Any],
        worker: WorkerClient,
    ) -> Iterator[dg.MaterializeResult[Reference]]:
        with user_errors():
            asked: PromotionSettings = to_settings(config, plan.promotion)
        by = f"Dagster run {context.run.run_id}"
        failed = failed_checks(context.instance, gates)
        for part, value in (("validation", validation), ("ranking", ranking), ("drift", drift)):
            if value["run_dir"] != embeddings["run_dir"]:
                failed.append(f"{part} (of another run)")
        store = Versions(plan.root / plan.versions_folder)
        with user_errors():
            nothing_to_ask = asked.when == "manual" and store.current() is None
            compared_with = store.current_name()
        if nothing_to_ask:
            found = _waits(asked, str(embeddings["run_dir"]))
        else:
            extras = {
                "mode": "promote",
                "run_dir": str(embeddings["run_dir"]),
                "folder": plan.versions_folder,
                "promote": asked.model_dump(),
                "failed_checks": failed,
                "drift": drift["multiple"] if drift["against"] == compared_with else None,
                "by": by,
            }
            found = dict(worker.run(context, extras=extras, asset_key=key, cwd=str(plan.root)).result)
        context.log.info(f"{found['outcome']}: {found['reason']}")
        yield _materialized(plan, found, by, store)

    return promoted


def gating_checks(plan: ModelPlan) -> list[dg.AssetCheckKey]:
    """The checks that must pass for a promotion: those of the embeddings, the validation, the ranking and the drift.

    ``promote.max_drift`` limits how far neighbours may move.
    """
    parts = {
        "embeddings": embeddings_asset.CHECKS,
        "validation": (NAMED, *(Check(each.name, each.text) for each in groups_of(plan))),
        "ranking": KINDS[plan.system.ranks].CHECKS,
        "drift": [each.check for each in DRIFT_CHECKS if each.check is not STAYED],
    }
    return [dg.AssetCheckKey(plan.key(part), check.name) for part, checks in parts.items() for check in checks]


def failed_checks(instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey]) -> list[str]:
    """Names of the checks that have no evaluation, or whose last one did not pass, including warnings."""
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)
    found = []
    for check in checks:
        record = records.get(check)
        status = record.status.value if record else "PLANNED"
        if status != "SUCCEEDED":
            found.append(check.name if status == "FAILED" else f"{check.name} (not evaluated)")
    return found


def _waits(asked: PromotionSettings, run: str) -> dict[str, Any]:
    decision = decide(asked, Facts(run=run))
    return {
        "outcome": decision.outcome,
        "reason": decision.reason,
        "version": "",
        "path": "",
        "champion": "",
        "comparison": {},
        "problem": "",
        "index": {},
    }


def _materialized(
    plan: ModelPlan, found: Mapping[str, Any], by: str, store: Versions
) -> dg.MaterializeResult[Reference]:
    key, compared = plan.key("promoted"), found["comparison"]
    try:
        live = store.current()
        if live is not None:
            live.verify()
        whole, said = True, f"{live.name} is whole" if live else "nothing is live yet"
    except InputError as error:
        whole, said = False, str(error)
    index = found["index"]
    worse = bool(compared) and compared["high"] < 0
    return dg.MaterializeResult(
        asset_key=key,
        value={name: found[name] for name in ("outcome", "version", "path")},
        data_version=dg.DataVersion(data_version(found)),
        metadata=metadata(found, by) | explorer_link(key),
        check_results=[
            WHOLE.result(key, whole, said),
            NOT_WORSE.result(
                key,
                not worse,
                found["reason"] if compared else found["problem"] or "nothing to compare with",
                severity=plan.checks.severity,
            ),
            FINDS.result(
                key, not index_problem(index), index_sentence(index) if index else "search is exact", metadata=index
            ),
        ],
    )
