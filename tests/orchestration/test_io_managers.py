"""Tables travel as Parquet and references as JSON; nothing is pickled."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphmill.orchestration.io_managers import ArtifactStore

TABLE = pa.table({"id": ["007", "7"], "type": pa.array(["drug", "gene"]).dictionary_encode(), "n": [1, 2]})


def run(base: str, value: Any, consumer_type: Any = Any, **options: Any) -> tuple[dg.ExecuteInProcessResult, list[Any]]:
    """Materialize ``made`` and, from a fresh manager, ``used``; what ``used`` received is returned."""
    received: list[Any] = []

    @dg.asset(key=["kg", "made"])
    def made() -> Any:
        return value

    @dg.asset(ins={"made": dg.AssetIn(["kg", "made"])})
    def used(made: consumer_type) -> None:
        received.append(made)

    resources = {"io_manager": ArtifactStore(base_path=base)}
    return dg.materialize([made, used], resources=resources, **options), received


def test_a_table_comes_back_with_its_types(tmp_path: Path) -> None:
    result, (received,) = run(str(tmp_path), TABLE)
    assert received.equals(TABLE)
    assert received.schema == TABLE.schema
    assert pq.read_table(tmp_path / "kg" / "made.parquet").num_rows == 2
    (event,) = result.asset_materializations_for_node("kg__made")
    assert event.metadata["path"].value == str(tmp_path / "kg" / "made.parquet")


def test_a_path_in_the_project_is_shown_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workspace.yaml").write_text("load_from: []\n")
    monkeypatch.chdir(tmp_path)
    result, _ = run(str(tmp_path / "data" / "06_models"), TABLE)
    (event,) = result.asset_materializations_for_node("kg__made")
    assert event.metadata["path"].value == "data/06_models/kg/made.parquet"


def test_a_small_value_is_json(tmp_path: Path) -> None:
    reference = {"path": "data/graph", "content_hash": "abc", "edges": 3}
    _, (received,) = run(str(tmp_path), reference)
    assert received == reference
    assert json.loads((tmp_path / "kg" / "made.json").read_text()) == reference


def test_an_earlier_table_does_not_shadow_a_new_value(tmp_path: Path) -> None:
    run(str(tmp_path), TABLE)
    _, (received,) = run(str(tmp_path), {"a": 1})
    assert received == {"a": 1}


def test_a_store_elsewhere_is_refused() -> None:
    with pytest.raises(dg.DagsterResourceFunctionError) as refused:
        run("memory://artifacts", TABLE)
    assert "must be a directory of this machine" in str(refused.value.__cause__)


def test_what_is_neither_table_nor_plain_is_refused_by_name(tmp_path: Path) -> None:
    result, _ = run(str(tmp_path), object(), raise_on_error=False)
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    assert "asset 'made' returned a object" in str(failure.step_failure_data.error)
    assert not list((tmp_path / "kg").iterdir())


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(str(tmp_path), TABLE)

    def fail(table: pa.Table, file: Any, **_: Any) -> None:
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(pq, "write_table", fail)
    result, _ = run(str(tmp_path), TABLE.slice(1), raise_on_error=False)
    assert not result.success
    assert [file.name for file in (tmp_path / "kg").iterdir()] == ["made.parquet"]
    assert pq.read_table(tmp_path / "kg" / "made.parquet").equals(TABLE)


@pytest.mark.parametrize(("value", "file"), [(TABLE, "made.parquet"), ({"a": 1}, "made.json")])
def test_a_damaged_value_is_one_sentence(tmp_path: Path, value: Any, file: str) -> None:
    run(str(tmp_path), value)
    whole = (tmp_path / "kg" / file).read_bytes()
    (tmp_path / "kg" / file).write_bytes(whole[: len(whole) // 2])
    made = dg.AssetSpec(["kg", "made"])

    @dg.asset(ins={"made": dg.AssetIn(["kg", "made"])})
    def used(made: Any) -> None:
        pass

    store = {"io_manager": ArtifactStore(base_path=str(tmp_path))}
    result = dg.materialize([made, used], resources=store, raise_on_error=False, selection=[used])
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    said = failure.step_failure_data.user_failure_data.description
    assert said.startswith(str(tmp_path / "kg" / file))
    assert said.endswith("; materialize the asset again")


def test_partitions_are_files_of_their_own(tmp_path: Path) -> None:
    parts = dg.StaticPartitionsDefinition(["2024.1", "2024.2"])

    @dg.asset(partitions_def=parts)
    def made(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"part": [context.partition_key]})

    store = {"io_manager": ArtifactStore(base_path=str(tmp_path))}
    for key in parts.get_partition_keys():
        assert dg.materialize([made], resources=store, partition_key=key).success
    assert sorted(file.name for file in (tmp_path / "made").iterdir()) == ["2024.1.parquet", "2024.2.parquet"]


def test_a_missing_input_says_what_to_materialize(tmp_path: Path) -> None:
    made = dg.AssetSpec("made")

    @dg.asset
    def used(made: pa.Table) -> None:
        pass

    store = {"io_manager": ArtifactStore(base_path=str(tmp_path))}
    result = dg.materialize([made, used], resources=store, raise_on_error=False, selection=[used])
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    assert "materialize the asset 'made' first" in str(failure.step_failure_data.error)
