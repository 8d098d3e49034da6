"""The asset ``<dataset>/<model>_scorer``: the weights of a system without vectors, with the nodes and relations that they
score."""

import dagster as dg
import numpy as np

from graphmill.arrays import load_safetensors
from graphmill.components.embeddings_asset import ALIGNED, BEST, alignment_of
from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.worker_asset import Step, WorkerAsset
from graphmill.errors import InputError
from graphmill.export.manifests import SCORER
from graphmill.export.weights import NODES, RELATIONS, WEIGHTS
from graphmill.graph.typed_graph import TypedGraph
from graphmill.orchestration.checks import Check
from graphmill.orchestration.io_managers import REMEDY
from graphmill.orchestration.metadata import records, snippet
from graphmill.parquet import ParquetTable
from graphmill.verified_files import verified_file

WHOLE = Check(
    "files_whole",
    "Every file has the size and the SHA-256 of the manifest, and every weight is finite. If not: materialize this asset "
    "again.",
    blocking=True,
)
CHECKS = (WHOLE, ALIGNED, BEST)


def scorer_asset(plan: ModelPlan) -> WorkerAsset:
    """The export asset of a system without vectors. Its value has the paths of the files."""
    return WorkerAsset(
        part="scorer",
        stage="training",
        inputs=("model",),
        kinds={"safetensors", "parquet"},
        description=(
            f"The weights of {plan.name} from its best epoch, with the nodes and relations of {plan.dataset} that they "
            "score. Assets downstream run only if its checks pass. Next: the ranking."
        ),
        checks=CHECKS,
        job=lambda step: {"mode": "export", "run_dir": step.inputs["model"]["run_dir"]},
        page=_page,
        more={"freshness_policy": plan.freshness},
    )


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    model, exported = step.inputs["model"], step.report.result
    run_dir, epoch = str(model["run_dir"]), int(exported["epoch"])
    folder, notes = step.path(run_dir) / SCORER, [str(note) for note in exported.get("notes", ())]
    numbers, problem = 0, ""
    try:
        arrays = load_safetensors(verified_file(folder, WEIGHTS), "np", REMEDY)
        numbers = sum(array.size for array in arrays.values())
        broken = [name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
        problem = f"{broken[0]} holds NaN or infinity" if broken else ""
        nodes = ParquetTable(verified_file(folder, NODES), remedy=REMEDY).read()
        relations = ParquetTable(verified_file(folder, RELATIONS), remedy=REMEDY).read()
        graph = TypedGraph.open(step.path(str(model["graph"]["path"])))
        aligned, of_graph = alignment_of(nodes, graph.node_table())
        listed = records(relations.to_pylist())
    except InputError as error:
        problem, aligned, of_graph, listed = str(error), False, "the files are damaged", records([])
    files = {name.partition(".")[0]: f"{run_dir}/{SCORER}/{name}" for name in exported["files"]}
    rest = {
        "epoch": epoch,
        "weights": numbers,
        "relations": listed,
        "bytes": sum(int(file["bytes"]) for file in exported["files"].values()),
        **({"best_epoch": exported.get("best_epoch"), "notes": "; ".join(notes)} if notes else {}),
        **{f"{kind}_file": dg.MetadataValue.path(path) for kind, path in files.items()},
        "how_to_load": snippet(f"import graphmill\n\nrun = graphmill.load({run_dir!r})\n{_usage(step.plan)}"),
    }
    verdict = f"**{problem}**" if problem else "Every file is whole, and the nodes are those of the graph."
    return step.result(
        {**{name: model[name] for name in ("run_dir", "fingerprint", "graph")}, "files": files},
        step.page(f"{numbers:,} weights of {step.plan.system} from epoch {epoch}. {verdict}", rest),
        [
            step.check(WHOLE, not problem, problem or f"{numbers:,} finite numbers in {len(files)} files"),
            step.check(ALIGNED, aligned, of_graph),
            step.check(BEST, not notes, "; ".join(notes) or f"epoch {epoch}", metadata={"epoch": str(epoch)}),
        ],
        f"{model['data_version']}-e{epoch}",
    )


def _usage(plan: ModelPlan) -> str:
    return "run.recommend(k=20)" if plan.abilities.scores_items else "run.links(k=10)"
