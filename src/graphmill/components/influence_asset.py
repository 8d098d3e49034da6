"""The asset ``<dataset>/<model>_influence``: the training triples that caused the model's predictions (TracIn)."""

import csv
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.worker_asset import Step, WorkerAsset
from graphmill.influence.settings import CSV_COLUMNS
from graphmill.orchestration.checks import Check
from graphmill.orchestration.metadata import COLUMNS_KEY, markdown_table, records, snippet

SPREAD = Check(
    "several_checkpoints",
    "The influences are summed over several checkpoints, not only over the last. If not: raise acceleration.keep_influence.",
)
_PARTS = {"Head": "head", "Rel": "relation", "Tail": "tail"}
_SIDES = {"Test": "explained triple", "Train": "training triple"}
COLUMNS = {
    **{
        f"{side}{part}{suffix}": f"{role} of the {of}: {what}"
        for suffix, what in (("", "id"), ("_label", "name"))
        for side, of in _SIDES.items()
        for part, role in _PARTS.items()
    },
    "TracInScore": "influence; above 0: the training triple made the explained triple likelier",
}
MOST_TRIPLES = 12
MOST_INFLUENCES = 3


def influence_asset(plan: ModelPlan) -> WorkerAsset:
    """The influence asset. The worker writes JSON and CSV into the run directory's folder ``influence``."""
    return WorkerAsset(
        part="influence",
        stage="validation",
        kinds={"pytorch", "csv"},
        description="Explains the model: the training triples that made held-out triples likely or unlikely (TracIn).",
        settings=plan.influence,
        checks=(SPREAD,),
        job=lambda step: {"mode": "influence", "run_dir": step.run_dir, "influence": step.settings.model_dump()},
        page=_page,
    )


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    settings, stem = step.settings, f"{step.run_dir}/influence/{step.settings.mode}"
    about = step.read(f"{stem}.json")
    with step.path(f"{stem}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    checkpoints = about["checkpoints"]
    figures = {
        "mode": settings.mode,
        "explained_triples": about["num_test_triples"],
        "training_triples": about["num_training_triples"],
        "checkpoints": len(checkpoints),
    }
    columns = [
        dg.TableColumn(name, "float" if name == "TracInScore" else "string", COLUMNS[name]) for name in CSV_COLUMNS
    ]
    rest = {
        "dagster/row_count": len(rows),
        COLUMNS_KEY: dg.TableSchema(columns=columns),
        **_explained(rows),
        "summed_over": records([{k: c[k] for k in ("epoch", "learning_rate", "loss")} for c in checkpoints]),
        "json": dg.MetadataValue.path(f"{stem}.json"),
        "csv": dg.MetadataValue.path(f"{stem}.csv"),
        "how_to_load": snippet(f"import pandas as pd\n\nframe = pd.read_csv({f'{stem}.csv'!r})"),
    }
    kept = f"summed over {len(checkpoints)} checkpoints; a higher acceleration.keep_influence keeps more of them"
    return step.result(
        {"run_dir": step.run_dir, "json": f"{stem}.json", "csv": f"{stem}.csv"},
        step.page(_summary(about, rows), rest, plotted=figures),
        [step.check(SPREAD, len(checkpoints) > 1, kept, "warn")],
    )


def _summary(about: Mapping[str, Any], rows: Sequence[Mapping[str, str]]) -> str:
    """A summary: what was analysed, and the first triple to look at."""
    training, over = f"{about['num_training_triples']:,} training triples", f"{len(about['checkpoints'])} checkpoints"
    counted = f"{about['num_test_triples']:,} triples explained by {training}, summed over {over}."
    best = max(rows, key=lambda row: float(row["TracInScore"]), default=None)
    if best is None or float(best["TracInScore"]) <= 0:
        return counted
    return f"{counted} The strongest: **{_triple(best, 'Train')}** makes **{_triple(best, 'Test')}** likelier."


def _explained(rows: Sequence[Mapping[str, str]]) -> dict[str, dg.MetadataValue]:
    """Titled tables: for each held-out triple the training triples for and against it, the strongest first."""
    by_triple: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in rows:
        by_triple.setdefault(tuple(row[name] for name in CSV_COLUMNS[:6]), []).append(row)
    tables: dict[str, dg.MetadataValue] = {}
    for title, sign in (("proponents", 1), ("opponents", -1)):
        lines: list[dict[str, Any]] = []
        for influences in list(by_triple.values())[:MOST_TRIPLES]:
            ordered = sorted(influences, key=lambda row: -sign * float(row["TracInScore"]))
            strongest = [row for row in ordered if sign * float(row["TracInScore"]) > 0][:MOST_INFLUENCES]
            lines += [
                {
                    "explained triple": _triple(row, "Test"),
                    f"{title[:-1]} in training": _triple(row, "Train"),
                    "influence": float(row["TracInScore"]),
                }
                for row in strongest
            ]
        tables[title] = dg.MetadataValue.md(markdown_table(lines))
    return tables


def _triple(row: Mapping[str, str], prefix: str) -> str:
    head, relation, tail = (row[f"{prefix}{part}_label"] for part in ("Head", "Rel", "Tail"))
    return f"{head} → {relation} → {tail}"
