"""The project as it is shipped: it loads, it is light, and its instance settings are understood."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import yaml
from dagster._core.instance.config import dagster_instance_config

CHAINS = {"biomed", "kg_bench", "music", "watch"}
PROBE = """
import sys
import dagster as dg
from graphmill.definitions import defs
definitions = defs()
dg.Definitions.validate_loadable(definitions)
print(sorted(key.to_user_string() for key in definitions.resolve_all_asset_keys()))
print([name for name in ("torch", "torch_geometric", "sklearn", "matplotlib") if name in sys.modules])
"""


def test_loading_the_definitions_imports_no_torch(repository: Path) -> None:
    """Every step, sensor and check process pays for what the code location imports."""
    process = subprocess.run([sys.executable, "-c", PROBE], cwd=repository, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    assets, heavy = process.stdout.strip().splitlines()[-2:]
    assert heavy == "[]"
    assert all(f"'{chain}/graph'" in assets for chain in CHAINS)


def test_every_asset_shows_what_it_is(repository: Path) -> None:
    graph = dg.load_from_defs_folder(path_within_project=repository / "src" / "graphmill").resolve_asset_graph()
    nodes = [graph.get(key) for key in graph.materializable_asset_keys]
    assert {node.key.path[0] for node in nodes} == CHAINS
    for node in nodes:
        assert node.description, node.key
        assert node.kinds, node.key
        assert node.owners, node.key
        assert node.group_name.startswith(f"{node.key.path[0]}_"), node.key


def test_validation_runs_before_a_ranking_that_is_ready_too(repository: Path) -> None:
    """The report that the ranking writes would draw and measure the vectors once more."""
    definitions = dg.load_from_defs_folder(path_within_project=repository / "src" / "graphmill")
    tags = {node.name: node.tags for node in definitions.resolve_job_def("biomed_refresh").nodes}
    priority = {name: int(of.get("dagster/priority", 0)) for name, of in tags.items()}
    assert priority["biomed__hgt_validation"] > priority["biomed__hgt_ranking"]


def test_dg_check_defs_passes(repository: Path) -> None:
    command = [str(Path(sys.executable).parent / "dg"), "check", "defs", "--use-active-venv"]
    process = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "All definitions loaded successfully" in process.stdout + process.stderr


def test_the_instance_settings_limit_the_accelerator_to_one(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text((repository / "dagster.yaml").read_text())
    settings, _ = dagster_instance_config(str(tmp_path))
    assert settings["telemetry"]["enabled"] is False
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        pools = instance.get_concurrency_config().pool_config
        assert (pools.default_pool_limit, pools.pool_granularity.value) == (1, "op")
        assert instance.run_retries_enabled
        assert instance.run_retries_retry_on_asset_or_op_failure is False
        assert instance.run_monitoring_enabled


def test_a_cancelled_worker_has_time_to_save(repository: Path) -> None:
    """Dagster must not give up on a run while its worker is still within its grace."""
    from graphmill.orchestration.pipes import WorkerClient

    monitoring = yaml.safe_load((repository / "dagster.yaml").read_text())["run_monitoring"]
    assert monitoring["cancel_timeout_seconds"] >= 2 * WorkerClient().grace_seconds


def test_the_workspace_names_the_definitions(repository: Path) -> None:
    (entry,) = yaml.safe_load((repository / "workspace.yaml").read_text())["load_from"]
    assert entry["python_module"]["module_name"] == "graphmill.definitions"
