"""The asset ``<dataset>/<model>_ranking``: the ranking of held-out data by the model and its baselines.

The system decides what is ranked: links by relation, triples on both sides, or items for users. The worker ranks and
writes ``ranking.json``. Each kind has its own module for display and checks.
"""

import json
from collections.abc import Iterator
from typing import Any

import dagster as dg

from graphmill.components import item_ranking, link_ranking, triple_ranking
from graphmill.components.plan import POOL, ModelPlan, Reference, plan_asset
from graphmill.orchestration.checks import PreviousRun
from graphmill.orchestration.page import run_pages
from graphmill.orchestration.pipes import WorkerClient

KINDS = {"links": link_ranking, "triples": triple_ranking, "items": item_ranking}
"""What is ranked → a module with the asset's ``DESCRIPTION``, its ``CHECKS``, and ``shown``, which turns a report into
metadata and check results."""


def ranking_asset(plan: ModelPlan) -> dg.AssetsDefinition:
    """Make the ranking asset for the system's kind of ranking."""
    key, kind = plan.key("ranking"), KINDS[plan.system.ranks]

    @plan_asset(
        plan,
        "ranking",
        "validation",
        inputs=("embeddings",),
        kinds={"pytorch", "markdown"},
        description=kind.DESCRIPTION,
        checks=kind.CHECKS,
        code_version="2",
        pool=POOL,
    )
    def ranking(
        context: dg.AssetExecutionContext, embeddings: dict[str, Any], worker: WorkerClient
    ) -> Iterator[dg.MaterializeResult[Reference]]:
        previous = PreviousRun(context.instance, key)
        run_dir = str(embeddings["run_dir"])
        worker.run(context, extras={"mode": "rank", "run_dir": run_dir}, asset_key=key, cwd=str(plan.root))
        report = json.loads((plan.root / run_dir / "ranking.json").read_text(encoding="utf-8"))
        metadata, results = kind.shown(plan, run_dir, report, previous)
        notes = {"notes": "; ".join(report["notes"]), "best_epoch": report["best_epoch"]} if "notes" in report else {}
        yield dg.MaterializeResult(
            asset_key=key,
            value={"run_dir": run_dir, "report": f"{run_dir}/ranking.json"},
            metadata={**metadata, **notes, **run_pages(plan.root, run_dir)},
            check_results=results,
        )

    return ranking
