"""The pages on attributes, ids and growing graphs do what they show, on shipped data."""

import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.components import EmbeddingModel, GraphDataset
from graphmill.components.following import FollowSettings
from graphmill.components.promoted_asset import gating_checks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.snapshots import snapshot_names
from graphmill.ingest.sources import parse_attributes, parse_sources
from tests.components.conftest import WorkerHere

MODELS = {f"graphmill.components.{kind.__name__}": kind.model() for kind in (EmbeddingModel, GraphDataset)}


def blocks(repository: Path, page: str, language: str) -> list[str]:
    text = (repository / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    result = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for word, block in result if word == language]


def run(line: str) -> str:
    words = shlex.split(line)
    assert words[0] == "graphmill"
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, result.exception
    return result.stdout + result.stderr


def documents(text: str) -> list[dict]:
    """The components of a ``defs.yaml``, whose fields are checked."""
    result = list(yaml.safe_load_all(text))
    for each in result:
        MODELS[each["type"]].model_validate(each["attributes"])
    return [each["attributes"] for each in result]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the sample of the pages."""
    monkeypatch.chdir(tmp_path)
    run("graphmill sample biomed kg.csv")
    return tmp_path


def test_describe_your_nodes(here: Path, repository: Path) -> None:
    exec(blocks(repository, "describe_your_nodes", "python")[0], {})
    commands, embed = blocks(repository, "describe_your_nodes", "bash")
    build, train = commands.splitlines()
    assert "attributes guessed" in run(build)
    graph = TypedGraph.open(Path("graph"))
    kinds = {each["name"]: each["kind"] for each in graph.attributes("disease")}
    assert kinds["year"] == "number"
    assert kinds["name"] == "text"
    small = ("preset=none", "training.epochs=1", "training.steps_per_epoch=1", "model.embedding_dim=8")
    run(" ".join([train, *(f"--set {each}" for each in (*small, "model.hidden_dim=8", "model.num_heads=2"))]))
    (report,) = Path().rglob("report.json")
    run(embed.strip().replace("RUN", str(report.parent)))
    (made,) = [each for each in report.parent.rglob("embeddings.parquet") if each.parent.name != "embeddings"]
    rows = {row["node_id"]: row["embedding"] for row in pq.read_table(made).to_pylist()}
    assert all(any(rows[f"new {number}"]) for number in (1, 2, 3))
    (dataset,) = documents(blocks(repository, "describe_your_nodes", "yaml")[0])
    (source,) = parse_attributes(dataset["attributes"], root=here)
    assert source.settings.node_type == "disease"


def test_when_ids_do_not_match(here: Path, repository: Path) -> None:
    exec(blocks(repository, "when_ids_do_not_match", "python")[0], {})
    sample, build = (each.strip() for each in blocks(repository, "when_ids_do_not_match", "bash"))
    assert sample == "graphmill sample biomed kg.csv"
    output = [line.split() for line in run(build).splitlines()]
    table, aliases, *_ = blocks(repository, "when_ids_do_not_match", "")
    assert all(line.split() in output for line in table.splitlines())
    ids = pd.read_csv("diseases.csv", dtype=str)["id"]
    lines = [aliases.splitlines()[0], *(f"{node},{node.removeprefix('MONDO:')}" for node in ids if ":" in node)]
    Path("aliases.csv").write_text("\n".join(lines) + "\n")
    for way in ("--aliases aliases.csv", "--repair-ids 'prefix MONDO:'"):
        run(f"{build} {way}")
        assert TypedGraph.open(Path("graph")).attributes("disease")[0]["nodes"] == len(ids)
    (dataset,) = documents(
        blocks(repository, "when_ids_do_not_match", "yaml")[0].replace(
            "  name: biomed\n", "  name: biomed\n  sources: [{name: edges, format: kg_csv, path: kg.csv}]\n"
        )
    )
    assert dataset["ids_match_min"] == 0.9


def test_a_graph_that_grows(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a training that is shorter than the page's, whose checks may fail."""
    text = blocks(repository, "a_graph_that_grows", "yaml")[0]
    dataset, model = documents(text)
    assert FollowSettings(**model["follow"]).way == "auto"
    months, script = blocks(repository, "a_graph_that_grows", "python")
    sample, versions = (each.strip() for each in blocks(repository, "a_graph_that_grows", "bash"))
    settings = {"preset": "none", "model": {"embedding_dim": 8}, "training": {"epochs": 2}}
    settings["evaluation"] = {"baselines": []}
    with create_defs_folder_sandbox() as sandbox, dg.instance_for_test():
        root = sandbox.project_root
        monkeypatch.chdir(root)
        run(sample)
        exec(months, {})
        assert snapshot_names(parse_sources(dataset["sources"], root)) == ["2026-9", "2026-10"]
        context: Any = SimpleNamespace(project_root=root, path=root, defs_module_path=root / "defs")
        checks = sorted({each.name for each in gating_checks(EmbeddingModel(**model).plan(context))})
        promote = model["promote"] | {"except_checks": checks}
        parts = list(yaml.safe_load_all(text))
        parts[1]["attributes"] = model | {"settings": settings, "promote": promote}
        folder = Path(sandbox.scaffold_component(GraphDataset))
        (folder / "defs.yaml").write_text(yaml.safe_dump_all(parts))
        with sandbox.build_all_defs() as every:
            here = {**(every.resources or {}), "worker": WorkerHere()}
            defs = dg.Definitions(assets=every.assets, jobs=every.jobs, sensors=every.sensors, resources=here)
            module: Any = SimpleNamespace(defs=lambda: defs)
            monkeypatch.setitem(sys.modules, "months", SimpleNamespace(definitions=module))
            monkeypatch.setitem(sys.modules, "months.definitions", module)
            exec(script, {})
        output = run(versions)
    assert "1 node (drug DB02649) and" in output
