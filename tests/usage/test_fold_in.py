"""People and items that joined after the training: recommendations from their history, and input that cannot be used."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import graphmill
from graphmill.errors import InputError, SettingsError
from graphmill.graph.histories import Histories
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from graphmill.systems.recommenders.fold_in import FoldIn, Folding
from graphmill.training.contract import StepSizes
from graphmill.usage.exported import Run
from tests.training.cases import CASES

FACTOR = ("mf", "lightgcn", "kgat", "mmgcn", "dragon")


def trained(case: str, folder: Path, epochs: int = 3) -> Run:
    chosen = next(each for name, each in CASES.items() if name.startswith(case))
    graph = chosen.graph(folder / "graph")
    values = chosen.job(graph, training={"epochs": epochs}).settings.model_dump() | {"preset": "none"}
    run = restore(train(values, "test", root=str(folder / "runs"))["run_dir"])
    export_run(run)
    return graphmill.load(run.run.path)


@pytest.fixture(scope="module")
def sasrec(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained("sasrec", tmp_path_factory.mktemp("sasrec"))


@pytest.fixture(scope="module")
def bpr(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained("mf", tmp_path_factory.mktemp("bpr"), epochs=80)


def written(folder: Path, rows: list[tuple[str, str]], times: list[int] | None = None) -> Path:
    path = folder / "history.csv"
    table = pd.DataFrame(rows, columns=["user", "item"])
    (table if times is None else table.assign(timestamp=times)).to_csv(path, index=False)
    return path


def test_a_vector_is_the_least_squares_solution() -> None:
    rng = np.random.default_rng(0)
    items, setting = rng.normal(size=(20, 4)), FoldIn(0.3, 2.0)
    met = sp.csr_matrix((np.ones(3), ([0, 0, 0], [1, 5, 7])), (2, 20))
    result = Folding(items, np.ones(20))(met, setting)
    size = np.square(items).sum(1).mean()
    rows = np.concatenate([np.sqrt(0.3) * items, items[[1, 5, 7]], np.sqrt(2.0 * size) * np.eye(4)])
    wanted = np.concatenate([np.zeros(20), np.ones(3), np.zeros(4)])
    np.testing.assert_allclose(result[0], np.linalg.lstsq(rows, wanted, rcond=None)[0], atol=1e-10)
    assert not result[1].any()


def test_without_end_regularised_it_is_the_sum_of_what_was_met() -> None:
    items = np.arange(12.0).reshape(6, 2)
    met = sp.csr_matrix((np.ones(2), ([0, 0], [1, 4])), (1, 6))
    counts = np.array([1, 4, 1, 1, 9, 1])
    np.testing.assert_allclose(Folding(items, counts)(met, FoldIn(0.0, np.inf)), [items[1] + items[4]])
    np.testing.assert_allclose(Folding(items, counts)(met, FoldIn(0.0, np.inf, 0.5)), [items[1] / 2 + items[4] / 3])


@pytest.mark.parametrize("case", FACTOR)
def test_every_recommender_folds_new_users_in(case: str, tmp_path: Path) -> None:
    run = trained(case, tmp_path)
    result = run.recommend(history=written(tmp_path, [("new", "item0"), ("new", "item5"), ("other", "item3")]), k=5)
    assert result.groupby("user_id").size().to_dict() == {"new": 5, "other": 5}
    assert not {"item0", "item5"} & set(result[result.user_id == "new"].item_id)
    assert np.isfinite(result.score).all()


def test_what_a_history_dislikes_is_left_out_for_its_user_alone(bpr: Run, tmp_path: Path) -> None:
    def lists(rated: list[tuple[str, str, int]]) -> dict[str, list[str]]:
        pd.DataFrame(rated, columns=["user", "item", "rating"]).to_csv(tmp_path / "rated.csv", index=False)
        result = bpr.recommend(history=tmp_path / "rated.csv", k=4)
        return {str(user): list(rows.item_id) for user, rows in result.groupby("user_id")}

    likes = [("new", "item0", 1), ("other", "item5", 1)]
    best = lists(likes)["new"][0]
    likes.append(("other", best, 1))
    before, after = lists(likes), lists([("new", best, -1), *likes])
    assert after["new"][:3] == before["new"][1:]
    assert after["other"] == before["other"]


def test_a_new_item_is_recommended_to_the_taste_of_those_who_met_it(bpr: Run, tmp_path: Path) -> None:
    known = [(f"user{n}", "fresh") for n in (2, 7, 12, 17, 22)]
    asks = [("new", "item2"), ("new", "item7"), ("new", "item12"), ("away", "item3"), ("away", "item8")]
    result = bpr.recommend(history=written(tmp_path, [*known, *asks]), k=30)
    rank = result[result.item_id == "fresh"].set_index("user_id")["rank"]
    assert rank["new"] <= 4 < rank["away"]
    assert "user2" not in rank.index  # it has met it


def test_a_known_users_history_goes_on_from_what_is_known_of_it(sasrec: Run, tmp_path: Path) -> None:
    expected = sasrec.recommend("u3", k=4)
    graph = sasrec._restored.graph
    ids, sequences = graph.node_table()["id"].to_pylist(), sasrec._restored.system.data.sequences  # type: ignore[attr-defined]
    row = ids.index("u3") - sequences.user_offset
    mine = slice(sequences.indptr[row], sequences.indptr[row + 1])
    met = [ids[sequences.item_offset + n] for n in sequences.items[mine]]
    alone = sasrec.recommend(history=met, k=4)
    assert alone.item_id.tolist() == expected.item_id.tolist()
    np.testing.assert_allclose(alone.score, expected.score, rtol=1e-5)
    last = int(sequences.timestamps[mine][-1]) + 10
    result = sasrec.recommend(history=written(tmp_path, [("u3", met[-1])], [last]), k=4)
    again = sasrec.recommend(history=[*met, met[-1]], k=4)
    assert result.item_id.tolist() == again.item_id.tolist()


def test_times_are_read_where_the_model_reads_them(tmp_path: Path) -> None:
    run = trained("tisasrec", tmp_path)
    with pytest.raises(InputError, match="needs the times of a history"):
        run.recommend(history=["i1", "i2"])
    result = run.recommend(history=written(tmp_path, [("new", "i1"), ("new", "i2")], [1000, 1060]), k=3)
    assert len(result) == 3


def test_the_format_of_sequences_is_read_as_well(sasrec: Run, tmp_path: Path) -> None:
    path = tmp_path / "views.txt"
    path.write_text("a i1 5\na i2 9\nb i9 7\na unheard 11\n")
    result = sasrec.recommend(history=path, format="sequence", k=2)
    assert result.groupby("user_id").size().to_dict() == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    ("history", "says"),
    [
        ([], "at least one"),
        (["item1", "nothing"], "has no item 'nothing'"),
        ([("new", "x"), ("new", "y")], "none of its 2 interactions is with an item that the model knows"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(bpr: Run, tmp_path: Path, history: list[Any], says: str) -> None:
    given = written(tmp_path, history) if history and isinstance(history[0], tuple) else history
    with pytest.raises(InputError) as error:
        bpr.recommend(history=given)
    assert says in str(error.value)


def test_a_system_of_links_does_not_recommend(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not recommend"):
        trained("complex", tmp_path, 1).recommend(history=["a"])


def test_on_the_command_line(bpr: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from graphmill.cli import app

    file = written(tmp_path, [("new", "item0"), ("new", "item5"), ("user1", "item4"), ("user1", "unheard")])
    out = tmp_path / "found.parquet"
    arguments = ["recommend", str(bpr.path), "--history", str(file), "-o", str(out), "--k", "4", "--json"]
    app(arguments, standalone_mode=False)
    result = json.loads(capsys.readouterr().out)
    assert result["users"] == 2
    assert result["known_users"] == 1
    assert result["rows"] == len(pd.read_parquet(out))
    with pytest.raises(InputError, match="go with --history"):
        app(["recommend", str(bpr.path), "-o", str(out)], standalone_mode=False)


@pytest.mark.parametrize("case", ["mf", "lightgcn", "kgat", "mmgcn", "dragon", "sasrec"])
def test_nothing_unknown_is_recommended_and_nobody_unknown_gets_a_list(case: str, tmp_path: Path) -> None:
    """Item 29 is in no training and has neither features nor facts; the history has an item that nobody knows."""
    system_case = CASES[case]
    graph = system_case.graph(tmp_path / "whole")
    relation = next(r for r in graph.relations if r.name == "interacted")
    _, system = system_case.build(graph)
    model = system.build(StepSizes()).eval()
    kind = graph.node_type(relation.target)
    known = np.asarray(system.candidates if case == "sasrec" else system.candidates())  # type: ignore[attr-defined]
    lost, kept = known[-1], known[:-1]
    if case == "sasrec":
        system.candidates = kept  # type: ignore[attr-defined]
    else:
        system.candidates = lambda: kept  # type: ignore[attr-defined, method-assign]
    _, lists, _ = system.recommend(model, kind.count, "never")  # type: ignore[attr-defined]
    assert set(lists[lists >= 0] - kind.offset) == set(kept)
    met = Histories(np.array([0, 2, 3]), np.array([kept[0], kept[1], lost]), np.full(2, -1), new_items=1)
    result, scores, _ = system.fold_in(model, met, kind.count + 1, "never")  # type: ignore[attr-defined]
    assert set(result[0][result[0] >= 0]) == set(kept)
    assert (result[1] == -1).all()
    assert np.isfinite(scores[0][result[0] >= 0]).all()


@pytest.mark.parametrize(("case", "more"), [("mf", 0), ("mmgcn", 1), ("kgat", 1)])
def test_items_with_features_or_facts_are_known_without_a_training_interaction(
    case: str, more: int, tmp_path: Path
) -> None:
    graph = CASES[case].graph(tmp_path / "graph")
    _, system = CASES[case].build(graph)
    system.view = system.view.without_items(np.array([3]))  # type: ignore[attr-defined]
    trained = int((system.view.train_by_item.counts > 0).sum())  # type: ignore[attr-defined]
    assert len(system.candidates()) == trained + more  # type: ignore[attr-defined]
