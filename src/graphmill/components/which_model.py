"""The component type ``graphmill.components.WhichModel``: the asset ``<dataset>/which_model``, which compares the systems
that suit a dataset and names one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from graphmill.components.names import partitions_of
from graphmill.components.plan import Reference
from graphmill.components.worker_asset import Job, Step, WorkerAsset
from graphmill.ingest.sources import checked_name
from graphmill.orchestration.checks import Check
from graphmill.orchestration.defaults import shared_resources
from graphmill.orchestration.home import OUTPUTS
from graphmill.orchestration.metadata import records, scalars
from graphmill.usage.choice_names import AUTO, FEWEST, FILE, seconds_of

PART = "which_model"
DECIDED = Check(
    "queries_decide",
    f"The choice rests on {FEWEST} validation queries or more. If not: hold out more (graph.split.valid).",
)


@dataclass(frozen=True)
class ChoicePlan:
    """Names and paths of the asset."""

    dataset: str
    budget: str
    root: Path
    owners: list[str] = field(default_factory=list)
    partitions_def: dg.DynamicPartitionsDefinition | None = None

    def key(self, part: str) -> dg.AssetKey:
        """``<dataset>/<part>``."""
        return dg.AssetKey([self.dataset, part])


class WhichModel(dg.Component, dg.Model, dg.Resolvable):
    """Trains all systems that suit a dataset by their defaults, within a budget of time, and names the one to use."""

    dataset: str = Field(description="Name of the GraphDataset.")
    budget: str = Field("10min", description="Time for the trainings of one materialization, such as 90s, 10min or 2h.")
    owners: list[str] = Field(default_factory=list, description='People ("a@b.org") or teams ("team:ml").')

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the asset."""
        seconds_of(self.budget)
        name = checked_name(self.dataset, "dataset")
        plan: Any = ChoicePlan(name, self.budget, context.project_root, self.owners, partitions_of(context, name))
        return dg.Definitions(assets=[ASSET.build(plan)], resources=shared_resources(context))


def _job(step: Step) -> Job:
    plan: Any = step.plan
    return {
        "mode": "choose",
        "graph": step.inputs["graph"]["path"],
        "budget": plan.budget,
        "run_root": f"{OUTPUTS}/{plan.dataset}/{AUTO}",
        "overrides": step.accelerator.applied({}),
    }


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    found = step.report.result
    file = f"{found['folder']}/{FILE}"
    choice = step.read(file)
    metric = choice["metric"]
    rows = [
        {"system": each["system"], metric: each["figure"], "low": each["low"], "high": each["high"]}
        | {name: each[name] for name in ("seconds", "memory", "size", "state", "reason")}
        | {"has": ", ".join(each["abilities"])}
        for each in choice["candidates"]
    ]
    best = next(each for each in choice["candidates"] if each["system"] == choice["system"])
    figures = {f"valid_{metric}": best["figure"], f"test_{metric}": choice["test"].get(metric)}
    rest = {
        "systems": records(rows),
        "system": choice["system"],
        "run_dir": dg.MetadataValue.path(choice["run"]),
        "report": dg.MetadataValue.path(file),
    }
    value = {"system": choice["system"], "run_dir": choice["run"], "report": file}
    enough, queries = choice["queries"] >= FEWEST, f"{choice['queries']:,} validation queries"
    return step.result(
        value,
        step.page(choice["sentence"], rest, plotted=scalars(figures)),
        [step.check(DECIDED, enough, queries, "warn")],
    )


ASSET = WorkerAsset(
    part=PART,
    stage="training",
    inputs=("graph",),
    kinds={"pytorch", "markdown"},
    description=(
        "All systems that suit the data, trained by their defaults within a budget: validation figures with intervals, "
        "time, memory, size, and which one to use. The test split is read for the chosen one alone. Finished trainings are "
        "reused."
    ),
    checks=(DECIDED,),
    job=_job,
    page=_page,
    on_demand=True,
)
