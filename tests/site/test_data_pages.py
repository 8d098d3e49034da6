"""The pages on attributes, ids and growing graphs do what they show, on shipped data."""

import re
from pathlib import Path

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.components import EmbeddingModel, GraphDataset
from graphmill.components.following import FollowSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.snapshots import snapshot_names
from graphmill.ingest.sources import parse_attributes, parse_sources

MODELS = {f"graphmill.components.{kind.__name__}": kind.model() for kind in (EmbeddingModel, GraphDataset)}


def blocks(repository: Path, page: str, language: str) -> list[str]:
    text = (repository / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(line: str) -> str:
    words = line.split()
    assert words[0] == "graphmill"
    found = CliRunner().invoke(app, words[1:])
    assert found.exit_code == 0, found.exception
    return found.stdout + found.stderr


def documents(text: str) -> list[dict]:
    """The components of a ``defs.yaml``, whose fields are checked."""
    found = list(yaml.safe_load_all(text))
    for each in found:
        MODELS[each["type"]].model_validate(each["attributes"])
    return [each["attributes"] for each in found]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the sample of the pages."""
    monkeypatch.chdir(tmp_path)
    run("graphmill sample biomed kg.csv")
    return tmp_path


def test_describe_your_nodes(here: Path, repository: Path) -> None:
    exec(blocks(repository, "describe_your_nodes", "python")[0], {})
    build, train = blocks(repository, "describe_your_nodes", "bash")[0].splitlines()
    assert "attributes guessed" in run(build)
    assert train.startswith("graphmill train blend")
    graph = TypedGraph.open(Path("graph"))
    kinds = {each["name"]: each["kind"] for each in graph.attributes("disease")}
    assert kinds["year"] == "number"
    assert kinds["name"] == "text"
    (dataset,) = documents(blocks(repository, "describe_your_nodes", "yaml")[0])
    (source,) = parse_attributes(dataset["attributes"], root=here)
    assert source.settings.node_type == "disease"


def test_when_ids_do_not_match(here: Path, repository: Path) -> None:
    tables = graphmill.read_edges("kg.csv")
    ids = tables.nodes.to_pandas().query("type == 'disease'")["id"].tolist()
    old = {node: f"OLD:{node}" for node in ids}
    about = pd.DataFrame({"id": list(old.values()), "area": ["ab"[n % 2] for n in range(len(ids))]})
    about.to_csv("diseases.csv", index=False)
    refused = CliRunner().invoke(app, ["build", "kg.csv", "--attributes", "disease=diseases.csv", "-o", "graph"])
    assert "prefix 'OLD:' removed" in str(refused.exception)
    header = blocks(repository, "when_ids_do_not_match", "")[1].splitlines()[0]
    lines = [header, *(f"{before},{node}" for node, before in old.items())]
    Path("aliases.csv").write_text("\n".join(lines) + "\n")
    run("graphmill build kg.csv --attributes disease=diseases.csv --aliases aliases.csv -o graph")
    assert TypedGraph.open(Path("graph")).attributes("disease")[0]["nodes"] == len(ids)
    (dataset,) = documents(
        blocks(repository, "when_ids_do_not_match", "yaml")[0].replace(
            "  name: biomed\n", "  name: biomed\n  sources: [{name: edges, format: kg_csv, path: kg.csv}]\n"
        )
    )
    assert dataset["ids_match_min"] == 0.9


def test_a_graph_that_grows(here: Path, repository: Path) -> None:
    dataset, model = documents(blocks(repository, "a_graph_that_grows", "yaml")[0])
    assert FollowSettings(**model["follow"]).way == "auto"
    for month in ("2026-9", "2026-10"):
        Path(f"data/01_raw/{month}").mkdir(parents=True)
        Path(f"data/01_raw/{month}/kg.csv").write_bytes(Path("kg.csv").read_bytes())
    sources = parse_sources(dataset["sources"], here)
    assert snapshot_names(sources) == ["2026-9", "2026-10"]
