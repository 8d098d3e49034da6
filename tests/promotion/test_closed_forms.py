"""A version in closed form is compared on a later graph by its own weights, matched by node."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphmill.errors import InputError
from graphmill.graph.build import build_graph
from graphmill.graph.histories import Histories
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.promotion.compare import compare
from graphmill.promotion.contents import load_champion
from graphmill.promotion.policy import PromotionSettings
from graphmill.promotion.promote import promote_run
from graphmill.promotion.versions import Version, Versions
from graphmill.runs.export import Restored, export_run, restore
from graphmill.runs.train import train
from tests.training.cases import CASES, CLOSED_FORMS, CLOSED_LINKS, Case

ALL = {**CLOSED_FORMS, **CLOSED_LINKS, "blend": next(case for case in CASES.values() if case.system == "blend")}


def later(graph: TypedGraph, out: Path, renamed: str = "") -> TypedGraph:
    """The nodes of each type in another order, without three that are replaced by a new one, which has their edges."""
    table = graph.node_table()
    relations = [r for n, r in enumerate(graph.relations) if r.name not in [o.name for o in graph.relations[:n]]]
    gone = graph.node_type(relations[0].target).offset + np.arange(3)
    kept = np.concatenate([np.arange(of.offset, of.offset + of.count)[::-1] for of in graph.node_types])
    kept = kept[~np.isin(kept, gone)]
    place = np.full(len(table), len(kept))
    place[kept] = np.arange(len(kept))
    new = {"index": 0, "id": "new", "type": relations[0].target, "name": "new", "source": "synthetic"}
    nodes = pa.concat_tables([table.take(pa.array(kept)), pa.Table.from_pylist([new], table.schema)])
    nodes = nodes.set_column(0, "index", pa.array(range(len(nodes)), pa.int64())).unify_dictionaries()
    parts = []
    for relation in relations:
        edges, name = graph.edges(relation), renamed if renamed and relation is relations[0] else relation.name
        count = len(edges.src)
        # Rows with another name are kept when a user takes an item again.
        output = [name] * count if edges.position is None else [f"{name} {place}" for place in edges.position.tolist()]
        columns: dict[str, Any] = {"relation": [name] * count, "display_relation": output}
        for end, rows, kind in (("head", edges.src, relation.source), ("tail", edges.dst, relation.target)):
            columns[end] = place[np.asarray(rows) + graph.node_type(kind).offset].astype(np.int32)
        for column in ("split",) if edges.position is None else ("timestamp", "position"):
            columns[column] = np.asarray(getattr(edges, column))
        parts.append(pa.table(columns))
    edges = pa.concat_tables(parts)
    for column in ("relation", "display_relation"):
        at = edges.column_names.index(column)
        edges = edges.set_column(at, column, edges[column].combine_chunks().dictionary_encode())
    reverses = "never" if len(relations) == len(graph.relations) else "missing"
    settings = GraphSettings.model_validate({"add_reverse": reverses, "split": {"given": "keep"}})
    return build_graph(nodes, edges, settings, out)


def trained(case: Case, graph: TypedGraph, root: Path) -> Restored:
    restored = restore(train(case.job(graph).settings.model_dump(), "test", root=str(root))["run_dir"])
    export_run(restored)
    return restored


def live_and_later(name: str, folder: Path, renamed: str = "") -> tuple[Restored, Restored, Version]:
    """A run that is live, a run of a later graph, and the live version."""
    if name == "ials":
        pytest.importorskip("implicit")
    case, store = ALL[name], Versions(folder / "promoted" / "toy" / name)
    old = trained(case, case.graph(folder / "graph"), folder / "runs")
    promote_run(old.run.path, store, PromotionSettings(when="checks_pass"), person=True, force=True, by="a test")
    version = store.current()
    assert version is not None
    return old, trained(case, later(old.graph, folder / "later", renamed), folder / "runs"), version


def scores_of(system: Any, model: Any, met: list[str]) -> dict[str, float]:
    """By id the score of each item for somebody who has met some."""
    of = system.graph.node_type("item")
    ids = system.graph.node_table()["id"].slice(of.offset, of.count).to_pylist()
    histories = Histories(np.array([0, len(met)]), np.array([ids.index(each) for each in met]), np.array([-1]))
    lists, scores, _ = system.fold_in(model, histories, len(ids), "never")
    return {ids[item]: float(score) for item, score in zip(lists[0], scores[0], strict=True) if item >= 0}


@pytest.mark.parametrize("name", [name for name in CLOSED_FORMS if name != "ials"])
def test_items_that_both_graphs_have_keep_their_scores(name: str, tmp_path: Path) -> None:
    old, candidate, version = live_and_later(name, tmp_path)
    champion = load_champion(version, candidate)
    assert champion.new_rows == 1
    of = old.graph.node_type("item")
    met = old.graph.node_table()["id"].slice(of.offset + 10, 3).to_pylist()
    before, after = (scores_of(each.system, each.model, met) for each in (old, champion))
    assert after["new"] < 1e-9, "a tie is broken by popularity"
    both = sorted(before.keys() & after.keys())
    assert len(both) >= 15
    # The share of an item in all interactions changes with the items that are gone.
    close = 0.2 if name in ("markov", "repeats") else 1e-5
    assert [after[each] for each in both] == pytest.approx([before[each] for each in both], rel=close, abs=1e-6)


@pytest.mark.parametrize("name", ["ease", "ials", "markov", "spectral", "blend"])
def test_it_is_compared_with_a_run_of_the_later_graph(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same edges but for one node: what was fitted to the first graph ranks the second nearly as well."""
    monkeypatch.setattr("graphmill.promotion.compare.FEWEST", 5)
    _, candidate, version = live_and_later(name, tmp_path)
    result = compare(candidate, version)
    assert result["new_rows"] >= 1
    assert result["champion"] > 0.6 * result["candidate"]


def test_links_of_another_graph_are_no_weights(tmp_path: Path) -> None:
    _, candidate, version = live_and_later("knn", tmp_path)
    with pytest.raises(InputError, match=r"knn .*promote.when: checks_pass"):
        load_champion(version, candidate)


def test_amounts_by_relation_are_not_those_of_other_relations(tmp_path: Path) -> None:
    _, candidate, version = live_and_later("blend", tmp_path, renamed="other")
    with pytest.raises(InputError, match=r"blend .* other relations"):
        load_champion(version, candidate)
