"""Going on, starting over, reusing, and starting from another run's vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from graphmill.errors import InputError, StoppedError
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import prepare
from graphmill.training.checkpoint import CheckpointStore
from graphmill.training.run_directory import RunDirectory
from graphmill.training.signals import StopRequest
from tests.training.cases import CASES
from tests.training.runs import Hooks, outcome, run, settings_of

CASE = "hgt-full"


@pytest.fixture
def values(graphs: dict[str, TypedGraph]) -> dict[str, Any]:
    return settings_of(CASES[CASE], graphs[CASE])


@pytest.mark.parametrize("name", ["conve-kvsall", "hgt-full"])
def test_raising_epochs_goes_on_and_equals_the_longer_run(
    name: str, graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where the rate is at its lowest is part of what is trained: stored at the first start, given here for both.
    base = settings_of(CASES[name], graphs[name], {"training": {"lr_decay_epochs": 3}})
    longer = merge(base, {"training": {"epochs": 5}})
    whole = outcome(run(longer, tmp_path / "whole"))
    first = run(base, tmp_path / "parts")
    with monkeypatch.context() as patch:
        hooks = Hooks().install(patch)
        second = run(longer, tmp_path / "parts")
    assert second["run_dir"] == first["run_dir"]
    assert hooks.step == 8, "two more epochs of four steps"
    together = outcome(second)
    assert together.steps == whole.steps
    assert all(torch.equal(together.tensors[n], t) for n, t in whole.tensors.items())


def rates_of(result: dict[str, Any]) -> list[float]:
    return [step["learning_rate"] for step in RunDirectory(result["run_dir"]).metrics.read("step")]


def test_added_epochs_have_a_schedule_of_their_own(values: dict[str, Any], tmp_path: Path) -> None:
    first = run(values, tmp_path)
    longer = merge(values, {"training": {"epochs": 6}})
    result = run(longer, tmp_path)
    before, after = rates_of(result)[:12], rates_of(result)[12:]
    assert len(after) == 12
    assert max(after) == pytest.approx(max(before)), "up to the peak again"
    assert min(after) == after[-1] < 0.2 * max(after)
    assert result["fingerprint"] == f"{first['fingerprint']}:3+3"
    assert result["data_version"] != run(longer, tmp_path / "fresh")["data_version"], "not taken for six at once"
    assert run(longer, tmp_path)["reused"]
    assert restore(result["run_dir"], "last").fingerprint == result["fingerprint"]


def test_a_later_schedule_is_resumed_bit_for_bit(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = merge(values, {"training": {"epochs": 6}})
    for root in ("whole", "parts"):
        run(values, tmp_path / root)
    whole = outcome(run(longer, tmp_path / "whole"))
    for step in (1, 5):  # in the first epoch of the second schedule, where it has no checkpoint yet, and in the next
        stop = StopRequest()
        with monkeypatch.context() as patch:
            hooks = Hooks().install(patch)
            hooks.on_gradient = lambda at, step=step, stop=stop: stop.request() if at == step else None
            with pytest.raises(StoppedError):
                run(longer, tmp_path / "parts", stop)
    parts = outcome(run(longer, tmp_path / "parts"))
    assert parts.steps == whole.steps
    assert all(torch.equal(parts.tensors[name], tensor) for name, tensor in whole.tensors.items())


def test_a_schedule_that_was_not_finished_ends_before_another_begins(values: dict[str, Any], tmp_path: Path) -> None:
    stop = StopRequest()
    with pytest.MonkeyPatch.context() as patch:
        hooks = Hooks().install(patch)
        hooks.on_gradient = lambda at: stop.request() if at == 5 else None
        with pytest.raises(StoppedError):
            run(values, tmp_path, stop)
    result = run(merge(values, {"training": {"epochs": 5}}), tmp_path)
    assert result["fingerprint"].endswith(":3+2")


def test_a_rate_that_does_not_fall_has_one_schedule(values: dict[str, Any], tmp_path: Path) -> None:
    steady = merge(values, {"training": {"lr_decay": "none"}})
    run(steady, tmp_path)
    longer = merge(steady, {"training": {"epochs": 5}})
    assert outcome(run(longer, tmp_path)).steps == outcome(run(longer, tmp_path / "fresh")).steps


def test_what_is_done_is_reused(values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(values, tmp_path)
    hooks = Hooks().install(monkeypatch)
    again = run(values, tmp_path)
    fewer = run(merge(values, {"training": {"epochs": 2}}), tmp_path)
    assert hooks.step == 0
    assert again["reused"]
    assert fewer["reused"]
    for name in ("metrics", "data_version", "epochs_done", "final_losses"):
        assert again[name] == first[name] == fewer[name]


def test_resume_never_starts_over(values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = outcome(run(values, tmp_path))
    hooks = Hooks().install(monkeypatch)
    result = run(merge(values, {"acceleration": {"resume": "never"}}), tmp_path)
    assert hooks.step == 12
    assert not result["reused"]
    assert outcome(result).steps == first.steps


def test_resume_require_refuses_where_there_is_nothing(values: dict[str, Any], tmp_path: Path) -> None:
    required = merge(values, {"acceleration": {"resume": "require"}})
    with pytest.raises(InputError, match="has no checkpoint; auto starts afresh"):
        run(required, tmp_path)
    run(values, tmp_path)
    assert run(merge(required, {"training": {"epochs": 4}}), tmp_path)["epochs_done"] == 4


def test_other_settings_are_another_run(values: dict[str, Any], tmp_path: Path) -> None:
    one = prepare(values, "test", root=str(tmp_path))
    other = prepare(merge(values, {"training": {"seed": 1}}), "test", root=str(tmp_path))
    same = prepare(merge(values, {"acceleration": {"micro_batches": 2}}), "test", root=str(tmp_path))
    assert one.run.path == same.run.path != other.run.path


def test_new_sizes_of_the_step_hold_on_a_resume(values: dict[str, Any], tmp_path: Path) -> None:
    run(values, tmp_path)
    more = merge(values, {"training": {"epochs": 4}, "acceleration": {"micro_batches": 7}})
    result = run(more, tmp_path)
    state = CheckpointStore(Path(result["run_dir"]) / "checkpoints").load().snapshot.state
    assert state["step_sizes"]["reached"]["micro_batches"] == 7


def test_older_runs_go_and_the_good_one_stays(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphmill.runs.train.KEEP_RUNS", 2)
    keep = merge(values, {"training": {"epochs": 1}})
    results = [run(merge(keep, {"training": {"seed": seed}}), tmp_path) for seed in range(4)]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {Path(result["run_dir"]).name for result in results[-2:]}


# -- init_from -------------------------------------------------------------------------------------------------------


def _smaller_shuffled(graph: TypedGraph, out: Path) -> TypedGraph:
    """The same nodes in another order, one of them gone and one new."""
    table = graph.node_table().to_pandas()
    order = table.drop(index=table.index[table["id"] == "n3"]).iloc[::-1]
    rows = [
        {"index": i, "id": r.id, "type": r.type, "name": r.name, "source": "s"}
        for i, r in enumerate(order.itertuples())
    ]
    rows.append({"index": len(rows), "id": "new", "type": "drug", "name": "new", "source": "s"})
    place = {row["id"]: i for i, row in enumerate(rows)}
    types = {t.name: t for t in graph.node_types}
    ids = table["id"].tolist()
    edges: dict[str, list[Any]] = {"relation": [], "display_relation": [], "head": [], "tail": []}
    for relation in graph.relations:
        e = graph.edges(relation.index)
        for s, d in zip(e.src, e.dst, strict=True):
            head, tail = ids[types[relation.source].offset + s], ids[types[relation.target].offset + d]
            if head in place and tail in place:
                for key, value in zip(edges, (relation.name, relation.name, place[head], place[tail]), strict=True):
                    edges[key].append(value)
    names = pa.array(edges["relation"]).dictionary_encode()
    edge_table = pa.table(
        {"relation": names, "display_relation": names, "head": pa.array(edges["head"], pa.int32()),
         "tail": pa.array(edges["tail"], pa.int32())}
    )  # fmt: skip
    nodes = pa.Table.from_pylist(rows)
    for column in ("type", "source"):
        nodes = nodes.set_column(nodes.schema.get_field_index(column), column, nodes[column].dictionary_encode())
    chosen = GraphSettings.model_validate({"split": {"valid": 0.1, "test": 0.1}})
    return build_graph(nodes, edge_table, chosen, out)


def test_init_from_takes_vectors_by_node_id(
    values: dict[str, Any], graphs: dict[str, TypedGraph], tmp_path: Path
) -> None:
    first = run(values, tmp_path / "first")
    other = _smaller_shuffled(graphs[CASE], tmp_path / "other")
    warm = merge(values, {"data": str(other.path), "training": {"init_from": first["run_dir"], "seed": 9}})
    prepared = prepare(warm, "test", root=str(tmp_path / "second"))
    assert prepared.warm_start is not None
    from graphmill.training.contract import StepSizes

    model = prepared.system.build(StepSizes())
    fresh = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    prepared.warm_start.applied_to(prepared.system)(model)
    old = CheckpointStore(Path(first["run_dir"]) / "checkpoints").load("best").snapshot.tensors
    for number, node_type in enumerate(other.node_types):
        name = f"encoder.tables.{number}"
        ids = other.node_table()["id"].to_pylist()[node_type.offset : node_type.offset + node_type.count]
        old_graph = graphs[CASE]
        old_number = [t.name for t in old_graph.node_types].index(node_type.name)
        old_type = old_graph.node_types[old_number]
        old_ids = old_graph.node_table()["id"].to_pylist()[old_type.offset : old_type.offset + old_type.count]
        for row, key in enumerate(ids):
            expected = (
                fresh[name][row] if key == "new" else old[f"model.encoder.tables.{old_number}"][old_ids.index(key)]
            )
            assert torch.equal(model.state_dict()[name][row], expected), key
    result = run(warm, tmp_path / "second")
    assert any("parameter rows taken from" in note for note in _log(result))
    again = run(merge(warm, {"training": {"init_from": f"{first['run_dir']}@3"}}), tmp_path / "second")
    assert again["epochs_done"] == 3


def _log(result: dict[str, Any]) -> list[str]:
    return (Path(result["run_dir"]) / "train.log").read_text().splitlines()


def test_init_from_says_what_is_wrong(values: dict[str, Any], graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not a run directory"):
        run(merge(values, {"training": {"init_from": str(tmp_path / "nowhere")}}), tmp_path)
    first = run(values, tmp_path / "first")
    with pytest.raises(InputError, match="there is no checkpoint of epoch 77"):
        run(merge(values, {"training": {"init_from": f"{first['run_dir']}@77"}}), tmp_path)
    stranger = run(settings_of(CASES["conve-slcwa"], graphs[CASE]), tmp_path / "stranger")
    with pytest.raises(InputError, match="nothing in common with this model"):
        run(merge(values, {"training": {"init_from": stranger["run_dir"]}}), tmp_path / "second")
