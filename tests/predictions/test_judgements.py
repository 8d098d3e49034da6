"""Judged links: how they are read, what they change in a table of links and its probabilities, and figures against them."""

from pathlib import Path

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.calibration import population
from graphmill.predictions.figures import agreement, matrix_figures
from graphmill.predictions.judgements import Judged, Judgements, read_judgements
from graphmill.predictions.selection import Nodes
from graphmill.predictions.top_tails import Candidates
from tests.predictions.conftest import Table, random_scores, relation_called


def judged(graph: TypedGraph, folder: Path, *rows: str) -> Judgements:
    (folder / "judgements.csv").write_text("\n".join(["head,relation,tail,judgement", *rows]) + "\n")
    return read_judgements(str(folder / "judgements.csv"), Nodes(graph))


def test_links_are_found_by_id_or_name_in_both_directions(graph: TypedGraph, tmp_path: Path) -> None:
    result = judged(
        graph, tmp_path, "n90,drug_protein,n30,Yes", "Node 31,drug_protein,node 91,no", "x,drug_protein,n30,no"
    )
    forth, back = (relation_called(graph, "drug_protein", kind) for kind in ("drug", "gene/protein"))
    assert result.of(forth.index).yes.tolist() == [0 * 60 + 0]
    assert result.of(forth.index).no.tolist() == [1 * 60 + 1]
    assert result.of(back.index).no.tolist() == [1 * 24 + 1]
    assert {n: each.all.tolist() for n, each in result.written.items()} == {forth.index: [0], back.index: [1 * 24 + 1]}
    assert (result.rows, len(result.notes)) == (3, 1)
    assert "1 of 3 judgements" in result.notes[0]
    assert "'x'" in result.notes[0]


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
        candidates = Candidates(graph, relation, Table(scores), (), judged=judgements, leave_judged=leave)
        points = population(candidates, 100, 0)
        return set(points.scores[points.positive & (points.heads == head)])

    before = positives(Judged(), False)
    marked = positives(Judged(yes, no), False)
    assert marked == (before | {scores[head, opened[0]]}) - {scores[head, tails[0]]}
    assert positives(Judged(yes, no), True) == before - {scores[head, tails[0]]}


def test_figures_of_the_matrix_are_those_of_brute_force(graph: TypedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    relation = relation_called(graph, "disease_protein", "disease")
    scores = random_scores(graph, relation)
    edges = graph.edges(relation.index)
    held = edges.split == 2
    scores[edges.src[held][::2], edges.dst[held][::2]] += 1 << 20  # half of them are above everything
    monkeypatch.setattr("graphmill.predictions.figures.PAIRS", (20, 100))
    monkeypatch.setattr("graphmill.predictions.top_tails.BLOCK_SCORES", 200)
    candidates = Candidates(graph, relation, Table(scores), (0, 1))
    result = matrix_figures(candidates, np.arange(30), 2)
    scores[edges.src[~held], edges.dst[~held]] = -np.inf
    links = sorted(set(zip(edges.src[held].tolist(), edges.dst[held].tolist(), strict=True)))
    order = np.argsort(-scores, axis=None, kind="stable")
    for n in (20, 100):
        top = {(int(p) // 60, int(p) % 60) for p in order[:n]}
        assert result[f"recall@{n}"]["value"] == pytest.approx(np.mean([pair in top for pair in links]))
    best = {h: set(np.argsort(-scores[h], kind="stable")[:10].tolist()) for h in range(30)}
    hits = [any(t in best[h] for g, t in links if g == h) for h in sorted({h for h, _ in links})]
    assert result["hits_by_head"]["value"] == pytest.approx(np.mean(hits))
    assert result["hits_by_head"]["low"] <= np.mean(hits) <= result["hits_by_head"]["high"]
    counts = np.bincount([t for tails in best.values() for t in tails], minlength=60)
    assert result["hub_share"] == pytest.approx(np.sort(counts)[-10:].sum() / counts.sum())
    assert result["links"] == len(links)


def test_agreement_is_high_where_true_links_score_high(graph: TypedGraph) -> None:
    relation = relation_called(graph, "drug_protein", "drug")
    scores = random_scores(graph, relation)
    candidates = Candidates(graph, relation, Table(scores), (0,))
    opened = [
        [t for t in np.argsort(-scores[h]) if candidates.splits_of(np.array([h]), np.array([t]))[0] < 0]
        for h in range(24)
    ]
    yes, no = (np.sort([h * 60 + int(opened[h][at]) for h in range(24)]) for at in (0, -1))
    heads, tails = candidates.links_of(0)
    trained = np.array([heads[0] * 60 + tails[0]])
    result = agreement([(candidates, Judged(np.sort(np.concatenate([yes, trained])), no))])
    assert result["auc"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert result["trained"] == 1
    assert (result["yes"]["links"], result["no"]["links"]) == (24, 24)
    assert result["yes"]["hits"]["value"] == 1.0
    assert result["no"]["hits"]["value"] == 0.0
    assert result["yes"]["rank"]["value"] < 0.1 < 0.9 < result["no"]["rank"]["value"]
    upside_down = agreement([(candidates, Judged(no, yes))])
    assert upside_down["auc"]["value"] == 0.0
