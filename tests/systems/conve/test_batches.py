"""Queries and their known tails, and how an epoch is cut into steps."""

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.conve.data import ConveData, triples_of
from tests.systems.conve.graphs import system_on


class TestQueries:
    def test_every_training_triple_is_a_label_in_both_directions_and_nothing_else_is(self, small: TypedGraph) -> None:
        data = ConveData(small)
        m = data.num_relations
        result = set()
        for q in range(data.num_queries):
            rows, tails = data.positives(np.array([q]))
            assert set(rows.tolist()) == {0}
            result |= {(int(data.query_head[q]), int(data.query_relation[q]), int(t)) for t in tails}
        triples = [tuple(t) for t in triples_of(small, "train").tolist()]
        assert result == set(triples) | {(t, r + m, h) for h, r, t in triples}
        assert len(data.tails) == 2 * len(triples)

    def test_positives_of_several_queries_count_rows_within_them(self, small: TypedGraph) -> None:
        data = ConveData(small)
        queries = np.array([5, 0, 3])
        rows, tails = data.positives(queries)
        for row, query in enumerate(queries):
            assert tails[rows == row].tolist() == data.positives(np.array([query]))[1].tolist()


class TestSteps:
    @pytest.mark.parametrize("negatives", ["all", "sampled"])
    def test_an_epoch_sees_every_row_once_in_steps_of_even_size(self, small: TypedGraph, negatives) -> None:
        system = system_on(small, objective={"negatives": negatives}, acceleration={"batch_size": 10})
        phase = system.phases[0]
        batches = [system.step(phase, 0, i) for i in range(phase.steps_per_epoch)]
        sizes = [len(b.head) for b in batches]
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= 10
        assert sum(sizes) == system.rows
        labels = sum(len(b.row) for b in batches) if negatives == "all" else sum(sizes)
        assert labels == len(system.data.tails)

    def test_a_sampled_step_has_the_true_tail_first_and_no_known_one_after(self, small: TypedGraph) -> None:
        system = system_on(small, objective={"negatives": "sampled", "negatives_per_positive": 6})
        batch = system.step(system.phases[0], 0, 0)
        data = system.data
        known = set(
            zip(
                data.query_head[data.label_query].tolist(),
                data.query_relation[data.label_query].tolist(),
                data.tails.tolist(),
                strict=True,
            )
        )
        for h, r, row in zip(batch.head.tolist(), batch.relation.tolist(), batch.candidates.tolist(), strict=True):
            assert (h, r, row[0]) in known
            assert not any((h, r, t) in known for t in row[1:])

    def test_rows_are_never_split_because_the_norms_look_at_all_of_them(self, small: TypedGraph) -> None:
        system = system_on(small)
        batch = system.step(system.phases[0], 0, 0)
        (chunk,) = batch.split(8)
        assert chunk.parts == 8
        assert len(chunk.head) == len(batch.head)


def test_a_graph_without_training_edges_is_refused(small: TypedGraph, monkeypatch) -> None:
    monkeypatch.setattr(
        "graphmill.systems.conve.data.triples_of", lambda graph, split: np.zeros((0, 3), dtype=np.int64)
    )
    with pytest.raises(InputError, match="no training edges"):
        ConveData(small)
