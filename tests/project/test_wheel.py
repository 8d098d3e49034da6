"""The wheel alone, in an environment of its own and outside of any checkout: init, check, the chain, the schedule.

Only graphmill is installed in that environment; what it depends on, torch above all, are links into the environment
that runs the tests. That the wheel names all of it is tested by its metadata.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import dagster
import pytest
import yaml

from tests.components.conftest import write_kg

# Two dozen processes that import everything, one after the other: a loaded machine takes minutes.
pytestmark = pytest.mark.timeout(900)
PACKAGES = Path(dagster.__file__).parents[1]
SCRIPTS = PACKAGES.parents[2] / "bin"
FINDINGS = """
import sys
from datetime import datetime, timezone
import dagster as dg
import graphmill
sys.path.insert(0, ".")
from my_project.definitions import defs
job = defs().resolve_schedule_def("kg_auto_schedule")
with dg.DagsterInstance.ephemeral() as instance:
    at = datetime(2026, 11, 30, 3, tzinfo=timezone.utc)
    tick = job.evaluate_tick(dg.build_schedule_context(instance=instance, scheduled_execution_time=at))
print(graphmill.__file__)
print(len(tick.run_requests), job.job_name)
print(len(graphmill.load(sys.argv[1])))
"""
SMALL = {"systems": ["spectral", "transe"], "budget": "1min", "acceleration": {"device": "cpu"}}
THEIRS = "import dagster as dg\n\n@dg.asset\ndef sales():\n    return 7\n"
IN_PROCESS = json.dumps({"execution": {"config": {"in_process": {}}}})


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(repository)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    (built,) = folder.glob("*.whl")
    return built


class Environment:
    """An environment with the wheel, made with pip or with uv; its commands also get ``variables``.

    Without ``compiled`` it has no numba: compiling it all for one place takes a minute.
    """

    def __init__(self, root: Path, wheel: Path, tool: str, *, compiled: bool = False) -> None:
        self.bin, self.variables = root / "bin", dict[str, str]()
        left_out = ("graphmill", "__", *(() if compiled else ("numba", "llvmlite")))
        if tool == "uv":
            uv = str(SCRIPTS / "uv")
            self._do([uv, "venv", "-q", "--python", sys.executable, str(root)])
            self._do([uv, "pip", "install", "-q", "--no-deps", "--python", str(self.bin / "python"), str(wheel)])
        else:
            self._do([sys.executable, "-m", "venv", "--without-pip", str(root)])
            at = ["--python", str(self.bin / "python")]
            self._do([sys.executable, "-m", "pip", *at, "install", "-q", "--no-deps", "--no-index", str(wheel)])
        (purelib,) = root.glob("lib/python*/site-packages")
        for package in PACKAGES.iterdir():
            if not package.name.startswith(left_out) and package.suffix != ".pth":  # graphmill is the wheel's alone
                (purelib / package.name).exists() or (purelib / package.name).symlink_to(package)
        shutil.copy(SCRIPTS / "dg", self.bin / "dg")
        script = (self.bin / "dg").read_text().splitlines()
        (self.bin / "dg").write_text("\n".join([f"#!{self.bin / 'python'}", *script[1:]]))

    def see(self, folder: Path) -> None:
        """As an editable install does."""
        (purelib,) = self.bin.parent.glob("lib/python*/site-packages")
        (purelib / "editable.pth").write_text(f"{folder}\n")

    def run(self, *command: str, cwd: Path) -> str:
        return self._do([str(self.bin / command[0]), *command[1:]], cwd)

    @property
    def environ(self) -> dict[str, str]:
        """The variables of its commands."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return {**kept, "PATH": f"{self.bin}:{kept['PATH']}", **self.variables}

    def _do(self, command: list[str], cwd: Path | None = None) -> str:
        home = {"DAGSTER_HOME": str(cwd / ".dagster_home")} if cwd else {}
        if cwd and (cwd / "dagster.yaml").exists():
            (cwd / ".dagster_home").mkdir(exist_ok=True)
            shutil.copy(cwd / "dagster.yaml", cwd / ".dagster_home")
        process = subprocess.run(
            command, cwd=cwd, env={**self.environ, **home}, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, f"{command}\n{process.stdout[-3000:]}\n{process.stderr[-3000:]}"
        return process.stdout + process.stderr


@pytest.fixture(scope="module", params=["pip", pytest.param("uv", marks=pytest.mark.long)])
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Environment:
    return Environment(tmp_path_factory.mktemp("env") / request.param, wheel, request.param)


def small(defs: Path) -> None:
    """Its training in seconds."""
    documents = list(yaml.safe_load_all(defs.read_text()))
    for document in documents[1:]:
        document["attributes"]["settings"] = SMALL
    defs.write_text(yaml.safe_dump_all(documents, sort_keys=False))


def test_the_wheel_has_templates_and_samples_and_names_its_dependencies(wheel: Path, repository: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith("METADATA")]
        text = archive.read(metadata).decode()
    source = repository / "src"
    wanted = [p for part in ("project", "defs") for p in (source / "graphmill" / part).rglob("*") if p.is_file()]
    assert {p.relative_to(source).as_posix() for p in wanted if "__pycache__" not in p.parts} <= names
    assert "Requires-Dist: torch" in text
    assert not any(name.startswith(("tests/", "benchmarks/")) or name == "pyproject.toml" for name in names)


@pytest.mark.slow
def test_from_a_file_to_a_scheduled_chain(environment: Environment, tmp_path: Path) -> None:
    write_kg(tmp_path / "kg.csv")
    output = environment.run("graphmill", "init", "my-project", "--data", "kg.csv", cwd=tmp_path)
    assert "read as kg_csv" in output
    root = tmp_path / "my-project"
    small(root / "my_project/defs/kg/defs.yaml")
    assert "All definitions loaded" in environment.run("dg", "check", "defs", "--use-active-venv", cwd=root)
    assert "graphmill.components.GraphDataset" in environment.run("dg", "list", "components", cwd=root)
    output = environment.run(
        *("dg", "launch", "--assets", "+key:kg/auto_ranking", "--config-json", IN_PROCESS), cwd=root
    )
    assert "RUN_SUCCESS" in output
    (run,) = (root / "data/06_models/kg/auto").glob("*/embeddings/embeddings.parquet")
    place, ticked, rows = environment.run("python", "-c", FINDINGS, str(run.parent.parent), cwd=root).splitlines()[-3:]
    assert f"site-packages{os.sep}graphmill" in place
    assert ticked == "1 kg_auto_retrain"
    assert rows == "120"


@pytest.mark.slow
def test_a_sample_loads(environment: Environment, tmp_path: Path) -> None:
    environment.run("graphmill", "init", "other", "--sample", "watch", cwd=tmp_path)
    root = tmp_path / "other"
    assert "All definitions loaded" in environment.run("dg", "check", "defs", "--use-active-venv", cwd=root)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["pip"], indirect=True)
def test_in_a_project_with_assets_of_its_own_both_work(environment: Environment, tmp_path: Path) -> None:
    package = tmp_path / "theirs" / "src" / "theirs"
    (package / "defs").mkdir(parents=True)
    (tmp_path / "theirs" / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "theirs"\n'
    )
    for name in ("__init__.py", "defs/__init__.py"):
        (package / name).touch()
    (package / "definitions.py").write_text(
        "from pathlib import Path\nimport dagster as dg\n\n@dg.definitions\ndef defs():\n"
        "    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    (package / "defs" / "sales.py").write_text(THEIRS)
    root = tmp_path / "theirs"
    environment.see(root / "src")
    write_kg(tmp_path / "kg.csv")
    environment.run("graphmill", "init", ".", "--data", "../kg.csv", cwd=root)
    output = environment.run(
        *("dg", "launch", "--assets", "key:sales or +key:kg/graph", "--config-json", IN_PROCESS),
        cwd=root,
    )
    assert "RUN_SUCCESS" in output
    assert (root / "data/06_models/kg/graph/manifest.json").is_file()
    assert (package / "defs" / "sales.py").read_text() == THEIRS
