"""The asset ``<dataset>/<model>_scorer``: the weights of a system without vectors, with the nodes and relations that they
score."""

import dagster as dg
import numpy as np

from graphmill.arrays import load_safetensors
from graphmill.components.embeddings_asset import ALIGNED, BEST, alignment_of, read_vectors
from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.worker_asset import Step, WorkerAsset
from graphmill.export.manifests import export_folder
from graphmill.export.weights import NODES, RELATIONS, WEIGHTS
from graphmill.graph.typed_graph import TypedGraph
from graphmill.orchestration.checks import Check
from graphmill.orchestration.io_managers import REMEDY
from graphmill.orchestration.metadata import records, snippet
from graphmill.parquet import ParquetTable
from graphmill.verified_files import verified_file

FINITE = Check("weights_finite", "Every weight is a finite number. If not: train again.", blocking=True)
CHECKS = (FINITE, ALIGNED, BEST)


def scorer_asset(plan: ModelPlan) -> WorkerAsset:
    """The export asset of a system without vectors, or of the one that ``system: auto`` chose. Its value has the paths of
    the files."""
    return WorkerAsset(
        part="scorer",
        stage="training",
        inputs=("model",),
        kinds={"safetensors", "parquet"},
        description=(
            f"The weights of {plan.name} from its best epoch{' (or vectors)' if plan.predicts else ''}, with the nodes and "
            f"relations of {plan.dataset} that they score. Assets downstream run only if its checks pass. Next: the ranking."
        ),
        checks=CHECKS,
        job=lambda step: {"mode": "export", "run_dir": step.inputs["model"]["run_dir"]},
        page=_page,
        more={"freshness_policy": plan.freshness},
    )


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    model, exported = step.inputs["model"], step.report.result
    run_dir, epoch = str(model["run_dir"]), int(exported["epoch"])
    notes = [str(note) for note in exported.get("notes", ())]
    folder = export_folder(step.path(run_dir))
    if exported["dim"]:
        nodes, vectors = read_vectors(folder / "embeddings.parquet")
        arrays, relations = {"embeddings": vectors}, []
    else:
        arrays = load_safetensors(verified_file(folder, WEIGHTS), "np", REMEDY)
        tables = [ParquetTable(verified_file(folder, each), remedy=REMEDY).read() for each in (NODES, RELATIONS)]
        nodes, relations = tables[0], tables[1].to_pylist()
    numbers = sum(array.size for array in arrays.values())
    broken = [name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
    aligned, of_graph = alignment_of(nodes, TypedGraph.open(step.path(str(model["graph"]["path"]))).node_table())
    finite = f"{', '.join(broken)} hold NaN or infinity" if broken else f"{numbers:,} finite numbers"
    files = {name.partition(".")[0]: f"{run_dir}/{folder.name}/{name}" for name in exported["files"]}
    usage = "run.recommend(k=20)" if step.plan.abilities.recommends else "run.links(k=10)"
    rest = {
        "epoch": epoch,
        "weights": numbers,
        **({"relations": records(relations)} if relations else {}),
        "bytes": sum(int(file["bytes"]) for file in exported["files"].values()),
        **({"best_epoch": exported.get("best_epoch"), "notes": "; ".join(notes)} if notes else {}),
        **{f"{kind}_file": dg.MetadataValue.path(path) for kind, path in files.items()},
        "how_to_load": snippet(f"import graphmill\n\nrun = graphmill.load({run_dir!r})\n{usage}"),
    }
    what = "vectors" if exported["dim"] else "weights"
    return step.result(
        {**{name: model[name] for name in ("run_dir", "fingerprint", "graph")}, "files": files},
        step.page(
            f"The {what} of {step.plan.system} from epoch {epoch}: {finite}, for {nodes.num_rows:,} nodes.", rest
        ),
        [
            step.check(FINITE, not broken, finite),
            step.check(ALIGNED, aligned, of_graph),
            step.check(BEST, not notes, "; ".join(notes) or f"epoch {epoch}", metadata={"epoch": str(epoch)}),
        ],
        f"{model['data_version']}-e{epoch}",
    )
