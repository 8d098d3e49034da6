"""The check ``verdict`` of a model's asset: better, level, worse or broken. The steps that rank and validate update it."""

from typing import Any

import dagster as dg

from graphmill.components.worker_asset import Step
from graphmill.orchestration.checks import Check, PreviousRun, SeverityName
from graphmill.orchestration.page import run_pages
from graphmill.reports.verdict import ModelVerdict, run_verdict

VERDICT = Check(
    "verdict",
    "The whole model: it is better than the best simple way on held-out data, and its vectors are sound. If not: the "
    "sentence says what to do. Ranking, validation and drift update it.",
    updated_later=True,
)


def verdict_result(step: Step, verdict: ModelVerdict) -> dg.AssetCheckResult:
    """The check's result for the step's own asset: an error if the model is broken, else a warning."""
    severity: SeverityName = "error" if verdict.word == "broken" else "warn"
    return step.check(VERDICT, verdict.passed, verdict.text, severity, {"word": verdict.word})


def describe(step: Step) -> dict[str, Any]:
    """Write the run's card and report again, and update the model's check; returns metadata with the verdict.

    The check is updated only if the model's last training is of the same run.
    """
    verdict, model = run_verdict(step.path(step.run_dir)), step.plan.key("model")
    instance = step.context.instance
    if PreviousRun(instance, model).value("run_dir") == step.run_dir:
        result = verdict_result(step, verdict)
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=model,
                check_name=VERDICT.name,
                passed=result.passed,
                severity=result.severity,
                description=result.description,
                metadata=result.metadata,
            )
        )
    return {"verdict": dg.MetadataValue.md(verdict.text), **run_pages(step.plan.root, step.run_dir)}
