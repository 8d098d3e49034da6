"""What a finished run is used for: tables of links, explanations, scores, new nodes, histories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.settings import LinkSettings
from graphmill.runs.export import Restored
from graphmill.usage.explain import explain_link
from graphmill.usage.exported import Run
from graphmill.usage.links import link_model, write_links

CASES = (
    *("lightgcn", "kgat", "mmgcn", "dragon", "conve-kvsall", "complex"),
    *("hgt-full", "hgt-features", "hgt-softmax", "sasrec", "tisasrec-mhc"),
)
"""The training cases whose runs differ in this: not other batchings of the same model."""


def predicts(run_dir: str) -> None:
    """Links of a relation by the checkpoint's model (before an export, which would be the model otherwise), explained."""
    model = link_model(run_dir)
    few = {"relations": ["|".join(model.graph.relations[0].key)]}
    few |= {"k": 2, "median_heads": 4, "probability_heads": 20, "path_links": 2, "explained_links": 1, "csv": False}
    write_links(model, LinkSettings.model_validate(few))


def use(restored: Restored, folder: Path) -> None:
    """Everything that the system of an exported run has."""
    graph, system = restored.graph, restored.system
    run, ids = Run(restored.run.path), restored.graph.node_table()["id"].to_pylist()
    if not restored.entry.recommends:
        relation = graph.relations[0]
        name = "|".join(relation.key)
        head, tail = (ids[graph.node_type(kind).offset + 1] for kind in (relation.source, relation.target))
        run.score([head], name, [tail])
        if system.name == "hgt":
            explain_link(restored, head, name, tail, verify=True)
    elif system.name != "tisasrec":  # its histories are files with times
        first = graph.node_type("item").offset
        run.recommend(history=ids[first : first + 3], k=2)
    if restored.entry.new_nodes:
        run.embed(**_joining(graph, system.name, folder), output=folder / "later")


def _joining(graph: TypedGraph, system: str, folder: Path) -> dict[str, Any]:
    """The files of one new node: its features if they are the vectors, else its edges."""
    folder.mkdir(exist_ok=True)
    if system in ("mmgcn", "dragon"):
        files = {}
        for name in ("image", "text"):
            output = graph.features("item", name)
            assert output is not None
            columns = [f"f{n}" for n in range(output.shape[1])]
            files[name] = folder / f"{name}.csv"
            files[name].write_text(f"{','.join(['id', *columns])}\nnew{',0.5' * len(columns)}\n")
        return {"features": files}
    ids = graph.node_table()["id"].to_pylist()
    wanted = "genre" if system == "kgat" else graph.relations[0].name
    relation = next(r for r in graph.relations if r.name == wanted)
    tail = ids[graph.node_type(relation.target).offset + 1]
    path = folder / "edges.csv"
    header = "head,head_type,relation,tail,tail_type"
    path.write_text(f"{header}\nnew,{relation.source},{relation.name},{tail},{relation.target}\n")
    columns = {
        f"{end}_{what}": end + more for end in ("head", "tail") for what, more in (("id", ""), ("type", "_type"))
    }
    return {"edges": path, "columns": columns | {"relation": "relation"}}
