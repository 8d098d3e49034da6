"""Windows of time: links of the future by window, and the degree of late, against counts by hand."""

import numpy as np
import pytest

from graphmill.evaluation.baselines.links import DegreeScorer
from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.parts import TIME, parts
from graphmill.evaluation.ranking.queries import first_nodes, link_queries
from graphmill.evaluation.ranking.windows import RECENT, WINDOWS, TimeWindows
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from tests.evaluation.ranking.graphs import ChanceScorer
from tests.graph.tables import edges_table, nodes_table

NODES = nodes_table(["drug"] * 10 + ["disease"] * 12)
DAY = 86_400
FIRST = 1_600_000_000
EDGES = [("treats", i % 10, 10 + i // 10) for i in range(120)]


@pytest.fixture
def build(tmp_path):
    """``build(nodes, edges, **settings)`` builds below ``tmp_path``, each time in a new directory."""
    made = iter(range(9))
    return lambda nodes, edges, **settings: build_graph(
        nodes, edges, GraphSettings(**settings), tmp_path / f"graph{next(made)}", None
    )


def dated(build, method="by_time", held=0.25):
    """A link a day; the last ones, or drawn ones, are held out."""
    times = [FIRST + DAY * day for day in range(len(EDGES))]
    split = {"method": method, "valid": 0.05, "test": held}
    return build(NODES, edges_table(EDGES, timestamp=times), split=split)


def test_each_link_of_the_future_is_in_the_window_of_its_day(build):
    graph = dated(build)
    windows = TimeWindows.of(graph, "test")
    relation = graph.relation("drug", "treats", "disease")
    edges = graph.edges(relation)
    held = np.flatnonzero(edges.split == 2)
    numbers = windows.number(relation.index, edges.src[held].astype(np.int64), edges.dst[held].astype(np.int64))
    days = (np.asarray(edges.timestamp)[held] - FIRST) // DAY - 90  # 30 days are held out
    assert (numbers == days * WINDOWS // 30).mean() > 0.85  # a bound may fall within a day
    assert np.all(np.diff(numbers[np.argsort(days)]) >= 0)
    assert set(numbers) == {0, 1, 2, 3}
    assert windows.names()[0].startswith("2020-12-1")
    inverse = graph.relation("disease", "treats", "drug")
    turned = windows.number(inverse.index, edges.dst[held].astype(np.int64), edges.src[held].astype(np.int64))
    np.testing.assert_array_equal(turned, numbers)
    assert windows.number(relation.index, np.array([0]), np.array([0])).tolist() == [-1]


def test_parts_show_the_windows_and_the_degree_of_late_beside_the_model(build):
    graph = dated(build)
    windows, queries = TimeWindows.of(graph, "test"), link_queries(graph, "test")
    late = rank_links(DegreeScorer(windows.by_recent(queries)), queries)
    result = parts(
        queries, {"model": rank_links(ChanceScorer(queries), queries), RECENT: late}, first_nodes(graph), None, windows
    )
    output = [row for row in result if row["by"] == TIME]
    assert len(output) == WINDOWS
    assert sum(row["queries"] for row in output) == queries.total
    assert all(set(row["mrr"]) == {"model", RECENT} for row in output)


def test_links_of_late_are_those_of_a_window_before_the_end_of_the_training(build):
    graph = dated(build)
    windows, relation = TimeWindows.of(graph, "test"), graph.relation("drug", "treats", "disease")
    edges = graph.edges(relation)
    train = np.asarray(edges.split) == 0
    last = edges.timestamp[train].max()
    assert last - windows.since == windows.bounds[1] - windows.bounds[0] - 1
    every = np.bincount(edges.dst[train], minlength=12)
    late = np.bincount(edges.dst[train & (edges.timestamp >= windows.since)], minlength=12)
    order = np.lexsort((every, late))
    result = windows.recent(relation.index, 12)
    assert np.all(np.diff(result[order]) >= 0)
    assert np.all(np.diff(result[order])[np.diff(late[order]) > 0] > 0)


def test_drawn_links_and_links_without_a_time_have_no_windows(build):
    assert TimeWindows.of(dated(build, "pairs"), "test") is None
    plain = build(NODES, edges_table(EDGES), split={"valid": 0.1, "test": 0.2})
    assert TimeWindows.of(plain, "test") is None


def test_years_are_shown_as_numbers(build):
    years = [1990 + day // 4 for day in range(len(EDGES))]
    graph = build(NODES, edges_table(EDGES, timestamp=years), split={"method": "by_time", "valid": 0.05, "test": 0.25})
    names = TimeWindows.of(graph, "test").names()
    assert names[0].startswith("201")
    assert names[-1].endswith("to 2019")
