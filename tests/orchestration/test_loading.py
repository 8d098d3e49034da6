"""A running chain depends on its own file alone; wherever a person looks, a broken file is an error."""

import multiprocessing
import sys
from pathlib import Path

import dagster as dg
import pytest

from graphmill.orchestration import loading
from graphmill.orchestration.loading import load_project

DATASET = """
type: graphmill.components.GraphDataset
attributes:
  name: {name}
  sources: [{{name: edges, format: kg_csv, path: data/kg.csv}}]
---
type: graphmill.components.EmbeddingModel
attributes: {{dataset: {name}, system: hgt}}
"""
BROKEN = {
    "no YAML": "type: [",
    "no mapping": "- 1",
    "an unknown setting": DATASET.format(name="b").replace("system: hgt", "system: hgt, settings: {epoch: 1}"),
    "an unknown system": DATASET.format(name="b").replace("system: hgt", "system: nothing"),
    "an unknown component": "type: graphmill.components.Nothing",
    "a name that is taken": DATASET.format(name="b").replace("system: hgt", "system: hgt, name: graph"),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of two datasets and a resource of its own; each test's package has a name of its own."""
    name = f"tiny_{abs(hash(str(tmp_path)))}"
    package = tmp_path / "src" / name
    for dataset in "ab":
        (package / "defs" / dataset).mkdir(parents=True)
        (package / "defs" / dataset / "defs.yaml").write_text(DATASET.format(name=dataset).lstrip())
    (package / "__init__.py").touch()
    (package / "defs" / "own.py").write_text(
        "import dagster as dg\nfrom graphmill.orchestration.pipes import WorkerClient\n"
        "defs = dg.Definitions(resources={'worker': WorkerClient(max_retries=7)})\n"
    )
    (tmp_path / "pyproject.toml").write_text(f'[tool.dg.project]\nroot_module = "{name}"\n')
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    return package


def jobs(definitions: dg.Definitions) -> set[str]:
    return {job.name for job in definitions.get_repository_def().get_all_jobs() if not job.name.startswith("__")}


OF_A = {"a_build_graph", "a_refresh", "a_hgt_retrain"}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_file_of_another_dataset_is_left_out_in_a_run_and_nowhere_else(
    broken: str, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "defs" / "b" / "defs.yaml").write_text(BROKEN[broken])
    with pytest.raises(Exception):  # noqa: B017, PT011 - Dagster's, of many kinds
        load_project(package)
    monkeypatch.setattr(loading, "in_a_run", lambda: True)
    result = load_project(package)
    assert jobs(result) == OF_A
    assert result.resources is not None
    assert result.resources["worker"].max_retries == 7, "the project's own"


def test_a_broken_file_of_its_own_is_an_error_in_a_run_too(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "in_a_run", lambda: True)
    (package / "defs" / "a" / "defs.yaml").write_text("type: [")
    assert "a_hgt_retrain" not in jobs(load_project(package)), "Dagster says that the job is not there"


def test_whole_projects_load_alike_everywhere(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = jobs(load_project(package))
    assert everything > OF_A
    monkeypatch.setattr(loading, "in_a_run", lambda: True)
    assert jobs(load_project(package)) == everything


def _in_child(source: str, package: str, answers: "multiprocessing.Queue[set[str]]") -> None:
    sys.path.insert(0, source)
    answers.put(jobs(load_project(Path(package))))


def test_the_processes_of_a_run_know_that_they_are(package: Path) -> None:
    assert not loading.in_a_run()
    (package / "defs" / "b" / "defs.yaml").write_text("type: [")
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    child = spawn.Process(target=_in_child, args=(str(package.parent), str(package), answers))
    child.start()
    assert answers.get(timeout=280) == OF_A
    child.join()
