"""The entry of the kit's commands: what is wrong with the instance's folder, settings or variables is one sentence."""

import shutil
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from graphmill.orchestration.instance import main, open_instance

VARIABLES = {
    "POSTGRES_USER": "graphmill",
    "POSTGRES_PASSWORD": "s3cret",
    "POSTGRES_HOST": "127.0.0.1",
    "POSTGRES_PORT": "5432",
    "POSTGRES_DB": "graphmill",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path) -> Path:
    """A kit's folder with all variables that its ``dagster.yaml`` reads."""
    pytest.importorskip("dagster_postgres")
    shutil.copy(repository / "deploy/dagster.yaml", tmp_path)
    for name, value in {**VARIABLES, "DAGSTER_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says, which ends with exit code 2; an instance that opens would become the command instead."""
    assert main(["true"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert VARIABLES["POSTGRES_PASSWORD"] not in line
    return line


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "is not set"), ("", "is not set"), ("deploy", "a relative path"), ("/no/such", "no such folder")],
)
def test_a_home_that_is_no_folder(
    home: Path, value: str | None, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    if value is not None:
        monkeypatch.setenv("DAGSTER_HOME", value)
    line = sentence(capsys)
    assert said in line
    assert "dagster.yaml" in line


@pytest.mark.parametrize("names", [[name] for name in VARIABLES] + [["POSTGRES_DB", "POSTGRES_PORT"]])
def test_variables_that_are_not_set(
    home: Path, names: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in names:
        monkeypatch.delenv(name)
    assert f": {', '.join(names)}, which {home}/dagster.yaml reads" in sentence(capsys)


@pytest.mark.parametrize("port", ["http", "", "5432.5"])
def test_a_port_that_is_no_number(
    home: Path, port: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POSTGRES_PORT", port)
    assert f"POSTGRES_PORT is '{port}', and {home}/dagster.yaml reads it as a number" in sentence(capsys)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("storage: [", "while parsing"),
        ("- 3", "to parse to dictionary"),
        ("storrage: 3", 'unexpected config entry "storrage"'),
        ("storage: {postgres: {postgres_dbx: 3}}", 'unexpected config entry "postgres_dbx"'),
        ("storage: {custom: {module: no_such_module, class: Storage, config: {}}}", "no_such_module"),
    ],
)
def test_a_dagster_yaml_that_cannot_be_used(
    home: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "dagster.yaml").write_text(text)
    line = sentence(capsys)
    assert f"Dagster cannot use {home}/dagster.yaml (" in line
    assert said in line


@pytest.mark.parametrize("said", ['type "jobs" already exists', "duplicate key value violates unique constraint"])
def test_tables_that_another_process_makes_at_the_moment_are_waited_for(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is planted: in ``tests/project/test_kit.py`` real processes start together, but seldom collide."""
    made, instance = [], dg.DagsterInstance.ephemeral()

    def get() -> dg.DagsterInstance:
        made.append(said)
        if len(made) < 3:
            raise RuntimeError("no tables") from sa.exc.ProgrammingError("CREATE TABLE jobs", {}, Exception(said))
        return instance

    monkeypatch.setattr(dg.DagsterInstance, "get", get)
    monkeypatch.setattr("graphmill.orchestration.instance.time.sleep", lambda _: None)
    with open_instance() as opened:
        assert opened is instance
    assert len(made) == 3
