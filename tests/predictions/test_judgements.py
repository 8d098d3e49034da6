"""Judged links: how they are read, what they change in a table of links and its probabilities."""

from pathlib import Path

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.calibration import population
from graphmill.predictions.judgements import Judged, Judgements, read_judgements
from graphmill.predictions.selection import Nodes
from graphmill.predictions.top_tails import Candidates
from tests.predictions.conftest import Table, random_scores, relation_called


def judged(graph: TypedGraph, folder: Path, *rows: str) -> Judgements:
    (folder / "judgements.csv").write_text("\n".join(["head,relation,tail,judgement", *rows]) + "\n")
    return read_judgements("judgements.csv", Nodes(graph), folder)


def test_links_are_found_by_id_or_name_in_both_directions(graph: TypedGraph, tmp_path: Path) -> None:
    found = judged(
        graph, tmp_path, "n90,drug_protein,n30,Yes", "Node 31,drug_protein,node 91,no", "x,drug_protein,n30,no"
    )
    there, back = (relation_called(graph, "drug_protein", kind) for kind in ("drug", "gene/protein"))
    assert found.of(there.index).yes.tolist() == [0 * 60 + 0]
    assert found.of(there.index).no.tolist() == [1 * 60 + 1]
    assert found.of(back.index).no.tolist() == [1 * 24 + 1]
    assert len(found.notes) == 1
    assert "1 of 3 judgements" in found.notes[0]
    assert "'x'" in found.notes[0]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (["n90,drug_protein,n30,maybe"], "row 1: the judgement is 'maybe'; write yes or no"),
        (["n90,cures,n30,yes"], "has no relation 'cures'"),
        ([], "no row below its header"),
        (["n90,drug_protein,n30,yes", "node 90,drug_protein,n30,no"], "row 2: .* is judged yes and no; keep one"),
        (["n30,drug_protein,n90,yes", "n90,drug_protein,n30,no"], "is judged yes and no"),
        (["X:n90,drug_protein,X:n30,yes"], "no judged link can be one of the graph: 0 of 2 ids .*prefix 'X:' removed"),
        (["n90,drug_protein,n0,yes"], "no judged link can be one of the graph"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(graph: TypedGraph, tmp_path: Path, rows: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        judged(graph, tmp_path, *rows)


def test_calibration_counts_what_was_judged_or_leaves_it_out(graph: TypedGraph) -> None:
    relation = relation_called(graph, "drug_protein", "drug")
    scores = random_scores(graph, relation)
    plain = Candidates(graph, relation, Table(scores), ())
    heads, tails = plain.links_of(1)
    head = int(heads[0])
    opened = [t for t in range(60) if plain.splits_of(np.array([head]), np.array([t]))[0] < 0]
    yes, no = np.array([head * 60 + opened[0]]), np.array([head * 60 + int(tails[0])])

    def positives(judgements: Judged, leave: bool) -> set[float]:
        own = Candidates(graph, relation, Table(scores), (), judged=judgements, leave_judged=leave)
        points = population(own, 100, 0)
        return set(points.scores[points.positive & (points.heads == head)])

    before = positives(Judged(), False)
    marked = positives(Judged(yes, no), False)
    assert marked == (before | {scores[head, opened[0]]}) - {scores[head, tails[0]]}
    assert positives(Judged(yes, no), True) == before - {scores[head, tails[0]]}
