"""Datasets from several files and from other tools' exports: what is read, shown, versioned and watched."""

from pathlib import Path

import pandas as pd
import pytest

from graphmill.errors import SettingsError
from graphmill.graph.typed_graph import TypedGraph
from tests.components.conftest import Project, failure

PAIRS = [(f"d{n}", f"x{(3 * n) % 7}") for n in range(14)]


def kg_files(folder: Path) -> dict:
    pd.DataFrame(PAIRS, columns=["head", "tail"]).to_parquet(folder / "treats.parquet")
    lines = [f'{{"head": "x{n}", "tail": "g{n % 3}"}}' for n in range(7)]
    (folder / "linked.jsonl").write_text("\n".join(lines) + "\n")
    drugs = pd.DataFrame({"id": [f"d{n}" for n in range(14)], "w": range(14), "name": "drug"})
    drugs.to_csv(folder / "drugs.csv", sep=";", index=False)
    return {
        "edges": [
            {"file": "treats.parquet", "relation": "treats", "tail_type": "disease"},
            {"file": "linked.jsonl", "relation": "linked", "head_type": "disease", "tail_type": "gene"},
        ],
        "nodes": [{"file": "drugs.csv", "type": "drug", "name_column": "name"}],
    }


FEATURES = {
    "kg_files": {"path": "data/kg/drugs.csv", "node_type": "drug", "columns": ["w"]},
    "kgx": {"path": "data/weights.csv", "node_type": "Drug"},
    "neo4j": {"path": "data/kg/Drug.csv", "node_type": "Drug", "key_column": ":ID(Drug)"},
}
"""Files of numbers, of which two are node files as well."""


def kgx(folder: Path) -> dict:
    ids = [*(f"d{n}" for n in range(14)), *(f"x{n}" for n in range(7))]
    kinds = [{"d": "Drug", "x": "Disease"}[i[0]] for i in ids]
    nodes = pd.DataFrame({"id": ids, "category": [f"biolink:{k}|biolink:NamedThing" for k in kinds], "w": 1.5})
    nodes.to_csv(folder / "nodes.tsv", sep="\t", index=False)
    edges = pd.DataFrame(PAIRS, columns=["subject", "object"]).assign(predicate="biolink:treats")
    edges.to_csv(folder / "edges.tsv", sep="\t", index=False)
    nodes[:14][["id", "w"]].to_csv(folder.parent / "weights.csv", index=False)
    return {}


def neo4j(folder: Path) -> dict:
    for end, name in enumerate(("Drug", "Disease")):
        ids = dict.fromkeys(pair[end] for pair in PAIRS)
        pd.DataFrame({f":ID({name})": list(ids), "w:float": 1.0}).to_csv(folder / f"{name}.csv", index=False)
    edges = pd.DataFrame(PAIRS, columns=[":START_ID(Drug)", ":END_ID(Disease)"]).assign(**{":TYPE": "treats"})
    edges.to_csv(folder / "treats.csv", index=False)
    return {}


@pytest.mark.parametrize("write", [kg_files, kgx, neo4j])
def test_a_folder_becomes_a_graph_with_features(project: Project, write) -> None:
    folder = project.root / "data" / "kg"
    folder.mkdir(parents=True)
    source = {"name": "kg", "format": "kg_files", "path": "data/kg", **write(folder)}
    features = {"name": "weights", "format": "node_features", **FEATURES[write.__name__]}
    result = project.materialize(project.dataset(sources=[source, features]))
    assert result.success, failure(result)
    raw = project.metadata("toy/raw_kg")
    assert {r.data["file"] for r in raw["files"].records} == {f.name for f in folder.iterdir()}
    graph = TypedGraph.open(project.root / project.value("toy/graph")["path"])
    kinds = {kind.name.lower() for kind in graph.node_types}
    assert {"drug", "disease"} <= kinds
    drug = next(kind.name for kind in graph.node_types if kind.name.lower() == "drug")
    assert graph.features(drug).shape == (14, 1)


def test_a_parquet_file_of_edges(project: Project) -> None:
    path = project.root / "data" / "edges.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(PAIRS, columns=["source", "target"]).assign(relation="treats").to_parquet(path)
    columns = {"head_id": "source", "tail_id": "target", "relation": "relation", "head_type_constant": "drug",
               "tail_type_constant": "disease"}  # fmt: skip
    source = {"name": "edges", "format": "kg_csv", "path": "data/edges.parquet", "columns": columns}
    result = project.materialize(project.dataset(sources=[source]))
    assert result.success, failure(result)
    assert project.metadata("toy/edges")["dagster/row_count"] == len(PAIRS)


def test_a_changed_file_of_several_is_another_version(project: Project) -> None:
    folder = project.root / "data" / "kg"
    folder.mkdir(parents=True)
    source = {"name": "kg", "format": "kg_files", "path": "data/kg", **kg_files(folder)}
    definitions = project.dataset(sources=[source])
    project.materialize(definitions)
    before = project.data_version("toy/raw_kg")
    (folder / "linked.jsonl").write_text('{"head": "x1", "tail": "g1"}\n')
    project.materialize(definitions, only='key:"toy/raw_kg"')
    assert project.data_version("toy/raw_kg") != before


def test_a_mistake_in_a_list_of_files_is_one_sentence(project: Project) -> None:
    source = {"name": "kg", "format": "kg_files", "path": "data/kg", "edges": [{"relation": "r"}]}
    with pytest.raises(SettingsError, match="edges: entry 1 has no file"):
        project.dataset(sources=[source])
