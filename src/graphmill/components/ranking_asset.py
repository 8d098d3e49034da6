"""The asset ``<dataset>/<model>_ranking``: the ranking of held-out data by the model and its baselines.

The system decides what is ranked: links by relation, or items for users. The worker ranks and
writes ``ranking.json``. Each kind has its own module for display and checks.
"""

import dagster as dg

from graphmill.components import item_ranking, link_ranking
from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.verdict_check import describe
from graphmill.components.worker_asset import Step, WorkerAsset
from graphmill.errors import SettingsError
from graphmill.systems.registry import entry

KINDS = {"links": link_ranking, "items": item_ranking}
"""What is ranked → a module with the asset's ``DESCRIPTION``, its ``CHECKS``, and ``page``, which turns a report into
metadata and check results."""


def ranking_asset(plan: ModelPlan) -> WorkerAsset:
    """The ranking asset for the system's kind of ranking."""
    kind = KINDS[plan.abilities.ranks]
    items = plan.abilities.ranks == "items"
    if items and plan.ranking.truth:
        raise SettingsError(f"ranking.truth is for predicted links, and {plan.system} recommends items: remove it")
    return WorkerAsset(
        part="ranking",
        stage="validation",
        kinds={"pytorch", "markdown"},
        description=kind.DESCRIPTION,
        checks=kind.CHECKS,
        code_version="3",
        settings=plan.ranking,
        job=lambda step: {
            "mode": "rank",
            "run_dir": step.run_dir,
            "rank": step.settings.model_dump(),
        },
        page=_page,
    )


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    file = f"{step.run_dir}/ranking.json"
    report = step.read(file)
    pages = describe(step)  # the summary links the report that this writes
    metadata, results = KINDS[entry(step.plan.system).ranks].page(step, report)
    if step.plan.predicts:  # it ranks by its own kind, which may have other checks than were declared
        known = {result.check_name: result for result in results}
        none = f"{step.plan.system} has no such check"
        declared = KINDS[step.plan.abilities.ranks].CHECKS
        results = [known.get(each.name) or step.check(each, True, none) for each in declared]
    notes = {"notes": "; ".join(report["notes"]), "best_epoch": report["best_epoch"]} if "notes" in report else {}
    rest = {"epoch": report["epoch"], "report": dg.MetadataValue.path(file), **notes}
    return step.result(
        {"run_dir": step.run_dir, "report": file},
        {**metadata, **rest, **pages},
        results,
    )
