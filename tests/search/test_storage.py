"""Where studies are: a file in the project, or the PostgreSQL that Dagster is on, beside its tables."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from graphmill.errors import InputError
from graphmill.orchestration.searching import studies_address
from graphmill.search.asked_trials import ask, waiting
from graphmill.search.storage import SCHEMA, VARIABLE, open_storage
from graphmill.search.study import open_search
from tests.project.test_kit import SECRETS, Postgres

pytest.importorskip("optuna")
VALUES = {"system": "mf", "data": "graph", "search": {"space": {"model.embedding_dim": [4, 8]}, "trials": 3}}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    if shutil.which("initdb") is None:
        pytest.skip("there is no PostgreSQL of the system's packages")
    pytest.importorskip("dagster_postgres")
    made = Postgres()
    yield made
    made.stop()
    shutil.rmtree(made.folder, ignore_errors=True)


def test_a_study_is_beside_dagsters_tables(postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    database = {
        "username": "graphmill",
        "password": SECRETS["POSTGRES_PASSWORD"],
        "hostname": "127.0.0.1",
        "port": postgres.port,
        "db_name": "graphmill",
        "scheme": "postgresql+psycopg2",
    }
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump({"storage": {"postgres": {"postgres_db": database}}}))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        address = studies_address(instance)
        assert str(postgres.port) in address
        search = open_search(VALUES, "test", str(tmp_path / "toy" / "mf"), address=address)
        key = ask(search, search.study())
        assert key
        # Another process, which knows the address from the environment, sees the same study, and another one its own.
        monkeypatch.setenv(VARIABLE, address)
        again = open_search(VALUES, "test", str(tmp_path / "toy" / "mf"))
        assert list(waiting(again.study())) == [key]
        assert not waiting(open_search(VALUES, "test", str(tmp_path / "other" / "mf")).study())
        instance.add_dynamic_partitions("toy_mf_trials", [key])
        assert not list(search.folder.glob("study.db"))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:  # its tables, and their version, are as they were
        assert instance.get_dynamic_partitions("toy_mf_trials") == [key]
        assert SCHEMA in str(open_storage(tmp_path).engine_kwargs)


def test_without_one_it_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    search = open_search(VALUES, "test", str(tmp_path))
    ask(search, search.study())
    assert (search.folder / "study.db").is_file()
    assert studies_address(dg.DagsterInstance.ephemeral()) == ""


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("somewhere", r"GRAPHMILL_STUDIES is not the address of a database; write it as postgresql://USER@HOST/NAME"),
        ("postgresql://me:secret@127.0.0.1:9/x", r"postgresql\+psycopg2://me:\*\*\*@127.0.0.1:9/x cannot be used: "),
        ("nosuchdatabase://host/x", "not the address of a database|cannot be used"),
    ],
)
def test_a_database_that_is_away_is_one_sentence(tmp_path: Path, address: str, sentence: str) -> None:
    pytest.importorskip("psycopg2")
    with pytest.raises(InputError, match=sentence) as told:
        open_storage(tmp_path, address)
    assert "secret" not in str(told.value)
    assert "\n" not in str(told.value)
