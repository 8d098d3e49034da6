"""What a run exports, checked before other assets use it: ``<dataset>/<model>_embeddings``, its vectors in all formats; or
``<model>_scorer``, the weights of a system without vectors, with the nodes and relations that they score."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graphmill.arrays import load_safetensors
from graphmill.atomic_files import copy_atomically, writing
from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.worker_asset import Step, WorkerAsset
from graphmill.errors import InputError
from graphmill.evaluation.health.figures import quick_health, row_figures
from graphmill.export.manifests import export_folder
from graphmill.export.weights import NODES, RELATIONS, WEIGHTS
from graphmill.graph.co_occurrence import neighbourhood_groups
from graphmill.graph.typed_graph import TypedGraph
from graphmill.orchestration.automation import known_snapshots
from graphmill.orchestration.checks import Check
from graphmill.orchestration.io_managers import REMEDY
from graphmill.orchestration.metadata import COLUMNS_KEY, column_schema, records, snippet
from graphmill.parquet import ParquetTable
from graphmill.reports.validation import types_without_vectors
from graphmill.verified_files import verified_file

BLOCK_ROWS = 4096
COLUMNS = {
    "node_index": "the source's own node number, or the row number if it has none",
    "node_id": "the source's id, unchanged",
    "node_name": "the source's name",
    "node_type": "node type",
    "embedding": "the vector, float32",
}

FINITE = Check("finite", "Every number is finite. If not: see the model's checks on its loss.", blocking=True)
SHAPE = Check(
    "shape",
    "There is one row for each node of the graph, of width model.embedding_dim. If not: materialize the model and "
    "this asset again.",
    blocking=True,
)
ALIGNED = Check(
    "ids_aligned",
    "Each row has the index, id and type of its node in the graph. If not: the graph was rebuilt; train again.",
    blocking=True,
)
ALIVE = Check(
    "no_dead_rows",
    "No row of a node with a training edge is zero or vanishingly small. If some are: the training was too short, or no "
    "message reaches these nodes.",
    blocking=True,
)
SPREAD = Check(
    "not_collapsed",
    "The rows are not all nearly the same vector. If they are: the validation says what to change first.",
    blocking=True,
)
BEST = Check(
    "of_best_epoch",
    "The vectors are those of the best epoch. If not: its checkpoint is damaged; continue the training, or start it "
    "again.",
)
CHECKS = (FINITE, SHAPE, ALIGNED, ALIVE, SPREAD, BEST)
WEIGHTS_FINITE = Check("weights_finite", "Every weight is a finite number. If not: train again.", blocking=True)
SCORER_CHECKS = (WEIGHTS_FINITE, ALIGNED, BEST)


def embeddings_asset(plan: ModelPlan) -> WorkerAsset:
    """The export asset. Its value has the paths of the files."""
    return WorkerAsset(
        part="embeddings",
        stage="training",
        inputs=("model",),
        kinds={"parquet", "csv"},
        description=(
            f"One vector for each node of {plan.dataset}, from the best epoch, for other programs: see `how_to_load`. "
            "Assets downstream run only if its checks pass. Next: the validation."
        ),
        checks=CHECKS,
        job=lambda step: {"mode": "export", "run_dir": step.inputs["model"]["run_dir"]},
        page=_page,
        more={"freshness_policy": plan.freshness},
    )


def read_vectors(path: Path) -> tuple[pa.Table, NDArray[np.float32]]:
    """The table without its vectors, and the vectors, float32 (rows × dimensions), as a view of the mapped file."""
    table = ParquetTable(path, mapped=True, remedy=REMEDY).read()
    column = table["embedding"].combine_chunks()
    vectors = column.flatten().to_numpy(zero_copy_only=True).reshape(len(column), column.type.list_size)
    return table.drop_columns(["embedding"]), vectors


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    model, exported = step.inputs["model"], step.report.result
    directory = Path(str(model["run_dir"])) / "embeddings"
    files = {Path(name).suffix[1:]: str(directory / name) for name in exported["files"]}
    rows, vectors = read_vectors(step.path(files["parquet"]))
    graph = TypedGraph.open(step.path(str(model["graph"]["path"])))
    alignment = exported.get("alignment") or {}
    space = "" if "problem" in alignment else alignment.get("to", "")
    epoch, notes = int(exported["epoch"]), [str(note) for note in exported.get("notes", ())]
    results = _check_results(step, rows, vectors, graph)
    newest = not step.plan.partitions_def or known_snapshots(step.context.instance, step.plan.partitions_def)[-1:] == [
        step.snapshot
    ]
    published = _publish(step.plan, files) if newest and all(result.passed for result in results) else ""
    best = "; ".join(notes) or f"epoch {epoch}"
    results.append(step.check(BEST, not notes, best, metadata={"epoch": str(epoch)}))
    rest = {
        "dagster/row_count": rows.num_rows,
        COLUMNS_KEY: column_schema(ParquetTable(step.path(files["parquet"]), remedy=REMEDY).schema, COLUMNS),
        "dimensions": vectors.shape[1],
        "epoch": epoch,
        **_alignment_metadata(alignment),
        **({"best_epoch": exported.get("best_epoch"), "notes": "; ".join(notes)} if notes else {}),
        "bytes": sum(int(file["bytes"]) for file in exported["files"].values()),
        **{f"{kind}_file": dg.MetadataValue.path(path) for kind, path in files.items()},
        **({"published": dg.MetadataValue.path(published)} if published else {}),
        "how_to_load": _how_to_load(model, rows, files["parquet"]),
    }
    bad = ", ".join(str(result.check_name) for result in results if not result.passed)
    verdict = f"**Look at {bad}.**" if bad else "Every row is finite, not zero, and belongs to its id."
    summary = (
        f"{vectors.shape[0]:,} vectors of {vectors.shape[1]} numbers, one for each node of {step.plan.dataset}, from epoch "
        f"{epoch}. {verdict}"
    )
    return step.result(
        {**{name: model[name] for name in ("run_dir", "fingerprint", "graph")}, "files": files},
        step.page(summary, rest),
        results,
        f"{model['data_version']}-e{epoch}" + (f"-{space}" if space else ""),
    )


def _alignment_metadata(alignment: Mapping[str, Any]) -> dict[str, Any]:
    if not alignment:
        return {}
    if "problem" in alignment:
        return {"not_aligned": f"to {alignment['to']}: {alignment['problem']}"}
    where = "the vectors are turned" if alignment["in_place"] else "embeddings_aligned.parquet is turned"
    page = {"aligned_to": f"{alignment['to']}: {where}", "alignment_residual": float(alignment["residual"])}
    return {**page, "shared_nodes": int(alignment["shared"])}


def _how_to_load(model: Mapping[str, Any], rows: pa.Table, parquet: str) -> dg.MetadataValue:
    counts = rows["node_id"].value_counts()
    # An id that occurs in only one type, because load() needs the type for any other id.
    example = next((each["values"] for each in counts.to_pylist() if each["counts"] == 1), rows["node_id"][0].as_py())
    return snippet(f"""
import graphmill

run = graphmill.load({str(model["run_dir"])!r})
run[{example!r}]                    # one vector
run.neighbors({example!r}, k=10)    # the nearest nodes by cosine
frame = run.to_pandas()

# or without graphmill
import pandas as pd
frame = pd.read_parquet({parquet!r})
""")


def _publish(plan: ModelPlan, files: Mapping[str, str]) -> str:
    """Copy the CSV to the file in the YAML, atomically; returns its path, "" if there is none."""
    if not plan.publish:
        return ""
    if "csv" not in files:
        raise InputError("'publish' in the defs.yaml copies the CSV, but export.csv is off: set export.csv: true")
    with writing(plan.root / plan.publish):
        copy_atomically(plan.root / files["csv"], plan.root / plan.publish)
    return plan.publish


def _check_results(
    step: Step, rows: pa.Table, vectors: NDArray[np.float32], graph: TypedGraph
) -> list[dg.AssetCheckResult]:
    neighbourhoods = neighbourhood_groups(graph) if len(vectors) == graph.num_nodes else None
    figures, bounds = row_figures(vectors, BLOCK_ROWS, neighbourhoods), step.plan.checks
    dim, lonely = int(step.report.result["dim"]), int(figures.unconnected.sum())
    names, codes = np.unique(texts(rows["node_type"]), return_inverse=True)
    without = types_without_vectors(codes, names.tolist(), vectors)
    counted = ~np.isin(names[codes], without)
    broken, dead = int((~figures.finite).sum()), int((figures.dead & counted).sum())
    absent = f"; the system has no vectors for {', '.join(without)}" if without else ""
    absent += f"; and {lonely:,} of nodes without a training edge, of which nothing is known" if lonely else ""
    live, collapse = vectors[figures.live], bounds.complete_cosine_min
    cosine = quick_health(live, np.zeros(len(live), np.int64), seed=0)["mean_cosine"] if len(live) > 1 else 1.0
    shape = f"{vectors.shape[0]} × {vectors.shape[1]}, expected {graph.num_nodes} × {dim}"
    spread = f"mean cosine {cosine:.3f} of up to 4,096 rows; a complete collapse begins at {collapse:g} on"
    return [
        step.check(FINITE, broken == 0, f"{broken} rows hold NaN or infinity", metadata={"rows": broken}),
        step.check(SHAPE, vectors.shape == (graph.num_nodes, dim), shape),
        step.check(ALIGNED, *alignment_of(rows, graph.node_table())),
        step.check(ALIVE, dead <= bounds.dead_rows_max, f"{dead} dead rows{absent}", metadata={"rows": dead}),
        step.check(SPREAD, cosine < collapse, spread, metadata={"mean cosine": float(cosine)}),
    ]


def texts(column: pa.ChunkedArray) -> NDArray[np.object_]:
    """A column's values as strings."""
    return column.cast(pa.string()).to_numpy(zero_copy_only=False)


def alignment_of(rows: pa.Table, nodes: pa.Table) -> tuple[bool, str]:
    """Whether the exported ids are those of the graph, and the first difference."""
    if rows.num_rows != nodes.num_rows:
        return False, f"{rows.num_rows} rows for {nodes.num_rows} nodes"
    for exported, known in (("node_index", "index"), ("node_id", "id"), ("node_type", "type")):
        left, right = texts(rows[exported]), texts(nodes[known])
        different = np.flatnonzero(left != right)
        if len(different):
            row = int(different[0])
            return False, f"row {row}: {exported} is {left[row]!r}, the graph's {known} is {right[row]!r}"
    return True, f"all {rows.num_rows} rows"


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
        checks=SCORER_CHECKS,
        job=lambda step: {"mode": "export", "run_dir": step.inputs["model"]["run_dir"]},
        page=_scorer_page,
        more={"freshness_policy": plan.freshness},
    )


def _scorer_page(step: Step) -> dg.MaterializeResult[Reference]:
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
            step.check(WEIGHTS_FINITE, not broken, finite),
            step.check(ALIGNED, aligned, of_graph),
            step.check(BEST, not notes, "; ".join(notes) or f"epoch {epoch}", metadata={"epoch": str(epoch)}),
        ],
        f"{model['data_version']}-e{epoch}",
    )
