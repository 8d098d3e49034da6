"""The asset ``<dataset>/<model>_influence``: the training triples that caused the model's predictions (TracIn)."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.worker_asset import Step, WorkerAsset
from graphmill.orchestration.checks import Check
from graphmill.orchestration.metadata import markdown_table, records, snippet

SPREAD = Check(
    "several_checkpoints",
    "The influences are summed over several checkpoints, not only over the last. If not: raise acceleration.keep_influence.",
)
_LISTS = {"proponents": "top_influences", "opponents": "top_opponents"}
MOST_TRIPLES = 12
MOST_INFLUENCES = 3


def influence_asset(plan: ModelPlan) -> WorkerAsset:
    """The influence asset. The worker writes JSON into the run directory's folder ``influence``."""
    return WorkerAsset(
        part="influence",
        stage="validation",
        kinds={"pytorch"},
        description="Explains the model: the training triples that made held-out triples likely or unlikely (TracIn).",
        settings=plan.influence,
        checks=(SPREAD,),
        job=lambda step: {"mode": "influence", "run_dir": step.run_dir, "influence": step.settings.model_dump()},
        page=_page,
    )


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    file = f"{step.run_dir}/influence/{step.settings.split}.json"
    about = step.read(file)
    checkpoints, triples = about["checkpoints"], about["results"]
    figures = {
        "explained_triples": about["num_test_triples"],
        "training_triples": about["num_training_triples"],
        "checkpoints": len(checkpoints),
    }
    rest = {
        "dagster/row_count": sum(len(each[name]) for each in triples for name in _LISTS.values()),
        **_explained(triples),
        "summed_over": records([{k: c[k] for k in ("epoch", "learning_rate", "loss")} for c in checkpoints]),
        "json": dg.MetadataValue.path(file),
        "how_to_load": snippet(
            f"import json\nimport pandas as pd\n\nresults = json.load(open({file!r}))['results']\n"
            "frame = pd.json_normalize(results, 'top_influences', ['test_triple'])"
        ),
    }
    kept = f"summed over {len(checkpoints)} checkpoints; a higher acceleration.keep_influence keeps more of them"
    return step.result(
        {"run_dir": step.run_dir, "json": file},
        step.page(_summary(about), rest, plotted=figures),
        [step.check(SPREAD, len(checkpoints) > 1, kept, "warn")],
    )


def _summary(about: Mapping[str, Any]) -> str:
    """A summary: what was analysed, and the first triple to look at."""
    training, over = f"{about['num_training_triples']:,} training triples", f"{len(about['checkpoints'])} checkpoints"
    counted = f"{about['num_test_triples']:,} triples explained by {training}, summed over {over}."
    strongest = [{**row, "of": each["test_triple"]} for each in about["results"] for row in each["top_influences"]]
    if not strongest:
        return counted
    best = max(strongest, key=lambda row: float(row["influence"]))
    return f"{counted} The strongest: **{best['train_triple']}** makes **{best['of']}** likelier."


def _explained(triples: Sequence[Mapping[str, Any]]) -> dict[str, dg.MetadataValue]:
    """Titled tables: for each held-out triple the training triples for and against it, the strongest first."""
    tables: dict[str, dg.MetadataValue] = {}
    for title, name in _LISTS.items():
        lines = [
            {
                "explained triple": each["test_triple"],
                f"{title[:-1]} in training": row["train_triple"],
                "influence": row["influence"],
            }
            for each in triples[:MOST_TRIPLES]
            for row in each[name][:MOST_INFLUENCES]
        ]
        tables[title] = dg.MetadataValue.md(markdown_table(lines))
    return tables
