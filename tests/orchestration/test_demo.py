"""The demo tells what it does, ends with the checks, and leaves its history where ``make ui`` looks for it."""

import io
from pathlib import Path

import dagster as dg
import pytest
from rich.console import Console

from graphmill.errors import EXIT_CHECK_FAILED, EXIT_OK, EXIT_USER_ERROR
from graphmill.orchestration import demo, ui
from graphmill.orchestration.home import dagster_home, project_root


def definitions(fails: bool = False) -> dg.Definitions:
    key = dg.AssetKey(["toy", "graph"])

    @dg.asset(key=key, check_specs=[dg.AssetCheckSpec("sound", asset=key)])
    def graph(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        if fails:
            raise dg.Failure("the file has no header")
        context.log.info("half way")
        check = dg.AssetCheckResult(passed=False, check_name="sound", description="one pair leaks")
        return dg.MaterializeResult(metadata={"nodes": 1200, "edges": 3.5}, check_results=[check])

    return dg.Definitions(assets=[graph], jobs=[dg.define_asset_job("toy_refresh", dg.AssetSelection.all())])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    return dagster_home(tmp_path)


def run(chain: str, defs: dg.Definitions) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=120)
    code = demo.run(chain, defs, console)
    return code, console.file.getvalue()  # type: ignore[attr-defined]


def test_it_tells_and_ends_with_the_checks(home: Path) -> None:
    code, text = run("toy", definitions())
    assert code == EXIT_OK
    assert "half way" in text
    assert "0 of 1 checks passed" in text
    assert "toy/graph · sound: one pair leaks" in text
    assert "make ui" in text
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.get_latest_materialization_event(dg.AssetKey(["toy", "graph"])) is not None


def test_a_failure_is_one_sentence(home: Path) -> None:
    code, text = run("toy", definitions(fails=True))
    assert code == EXIT_CHECK_FAILED
    assert "the file has no header" in text
    assert "Traceback" not in text


def test_an_unknown_chain_names_those_there_are(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["musik"]) == EXIT_USER_ERROR
    assert "'musik' (known: biomed" in capsys.readouterr().out


def test_the_home_gets_the_projects_settings_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    home = dagster_home(tmp_path)
    assert home == tmp_path / ".dagster_home"
    (home / "dagster.yaml").write_text("# mine\n")
    dagster_home(tmp_path)
    assert (home / "dagster.yaml").read_text() == "# mine\n"


def test_the_project_is_where_one_stands_or_the_checkout(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert project_root() == repository
    (tmp_path / "workspace.yaml").touch()
    assert project_root() == tmp_path


def test_another_dagster_project_is_found_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `create-dagster` writes it: no workspace.yaml, the package below src."""
    package = tmp_path / "src" / "elsewhere"
    (package / "defs").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "elsewhere"\n'
    )
    for name in ("__init__.py", "defs/__init__.py"):
        (package / name).touch()
    (package / "definitions.py").write_text(
        "from pathlib import Path\nimport dagster as dg\n\n@dg.definitions\ndef defs():\n"
        "    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    (package / "defs" / "sales.py").write_text("import dagster as dg\n\n@dg.asset\ndef sales():\n    return 7\n")
    monkeypatch.chdir(package / "defs")
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    assert project_root() == tmp_path
    keys = demo.load(project_root()).resolve_all_asset_keys()
    assert [key.to_user_string() for key in keys] == ["sales"]
    assert ui._target(tmp_path)[:2] == ["-m", "elsewhere.definitions"]
