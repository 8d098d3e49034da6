"""The asset ``<dataset>/which_model`` of ``system: auto``: all systems that suit the graph are trained within a budget, and
validation chooses one."""

import dagster as dg

from graphmill.components.plan import WHICH, ModelPlan, Reference
from graphmill.components.worker_asset import Step, WorkerAsset
from graphmill.orchestration.checks import Check
from graphmill.orchestration.metadata import records
from graphmill.systems.auto import FEWEST, FILE

DECIDED = Check(
    "queries_decide",
    f"The choice rests on {FEWEST} validation queries or more. If not: hold out more (graph.split.valid).",
)


def which_model_asset(plan: ModelPlan) -> WorkerAsset:
    """The asset of the choice. Its value has the chosen system's settings."""
    return WorkerAsset(
        part=WHICH,
        stage="training",
        inputs=("graph",),
        kinds={"pytorch", plan.system},
        description=(
            "Trains all systems that suit the data within a budget of time, and chooses one by validation. The test split "
            f"is read for that one alone. The choice stays until the data, the settings or the budget change. Next: "
            f"{plan.name}_model takes the chosen run."
        ),
        settings=plan.settings,
        hidden=("system", "data", "acceleration.device"),
        given=lambda inputs, accelerator: {"data": inputs["graph"]["path"], **accelerator.overrides()},
        checks=(DECIDED,),
        job=lambda step: {"mode": "choose", "settings": step.settings.model_dump(), "run_root": step.run_root},
        page=_page,
        trains=True,
    )


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    choice, result = step.read(f"{step.run_root}/{FILE}"), step.report.result
    metric, queries, run_dir = choice["metric"], int(choice["queries"]), str(result["run_dir"])
    names = ("settings", "seconds", "memory", "size", "state", "reason")
    systems = [
        {"system": each["system"], metric: each["figure"], "low": each["low"], "high": each["high"]}
        | {name: each[name] for name in names}
        | {"has": ", ".join(each["abilities"])}
        for each in choice["candidates"]
    ]
    chosen = next(each for each in choice["candidates"] if each["run"] == choice["run"])
    rest = {"system": choice["system"], "systems": records(systems), "run_dir": dg.MetadataValue.path(run_dir)}
    return step.result(
        {"system": choice["system"], "settings": step.read(f"{run_dir}/settings.json") | {"preset": "none"}},
        step.page(choice["sentence"], rest, plotted={metric: chosen["figure"], "queries": queries}),
        [step.check(DECIDED, queries >= FEWEST, f"{queries:,} validation queries", "warn")],
        str(result["data_version"]),
    )
