"""``graphmill doctor PROJECT``: each thing that is wrong is named with its place, and nothing else is."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.errors import InputError
from graphmill.project.examination import examine_project
from graphmill.promotion.policy import PromotionSettings
from graphmill.promotion.promote import promote_run, versions_folder
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from tests.training.cases import CASES
from tests.training.runs import settings_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a graph, a run and a live version."""
    root = tmp_path_factory.mktemp("project")
    outputs, case = root / "data" / "06_models" / "toy", CASES["hgt-full"]
    values = settings_of(case, case.graph(outputs / "graph"))
    run = train(values, "test", root=str(outputs / "hgt"))["run_dir"]
    export_run(restore(run))
    promote_run(run, versions_folder(run), PromotionSettings(), by="me", person=True, force=True)
    return root


@pytest.fixture
def project(whole: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", f"{whole}/.", tmp_path / "project"], check=True)
    return tmp_path / "project"


def problems(root: Path) -> list[tuple[str, str]]:
    return [(each.what, each.detail) for each in examine_project(root) if not each.ok]


def one(root: Path, pattern: str) -> Path:
    [found] = list(root.glob(f"data/{pattern}"))
    return found


def test_a_whole_project_has_no_problem_and_the_command_says_so(project: Path) -> None:
    assert problems(project) == []
    done = CliRunner().invoke(app, ["doctor", str(project), "--json"])
    assert done.exit_code == 0
    assert [each["what"] for each in json.loads(done.stdout)] == ["files", "versions"]
    assert isinstance(CliRunner().invoke(app, ["doctor", str(project / "nowhere")]).exception, InputError)


@pytest.mark.parametrize(
    ("pattern", "whats"),
    [
        ("06_models/toy/graph/nodes.arrow", ["files"]),
        ("06_models/toy/hgt/*/embeddings/embeddings.parquet", ["files"]),
        ("06_models/toy/hgt/*/settings.json", ["files"]),
        ("07_promoted/toy/hgt/0001-*/weights.safetensors", ["versions"]),
        ("07_promoted/toy/hgt/0001-*/version.json", ["versions"]),
    ],
)
def test_a_flipped_bit_is_found_and_the_file_named(project: Path, pattern: str, whats: list[str]) -> None:
    path = one(project, pattern)
    data, status = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    found = problems(project)
    assert [what for what, _ in found] == whats
    assert path.name in found[0][1]
    assert CliRunner().invoke(app, ["doctor", str(project)]).exit_code == 1


def test_a_damaged_checkpoint_and_a_link_to_no_version(project: Path) -> None:
    checkpoint = sorted(project.glob("data/06_models/toy/hgt/*/checkpoints/*.safetensors"))[-1]
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    current = one(project, "07_promoted/toy/hgt/current")
    current.unlink()
    current.symlink_to("0009-12345678")
    found = problems(project)
    assert [what for what, _ in found] == ["files", "versions"]
    texts = [text for _, text in found]
    assert f"{checkpoint} is damaged" in texts[0]
    assert "graphmill rollback toy/hgt VERSION" in texts[1]
