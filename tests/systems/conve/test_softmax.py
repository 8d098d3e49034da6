"""ConvE by a softmax: the loss is torch's cross-entropy of every known tail, and a training by it learns."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from graphmill.training.contract import StepSizes
from tests.systems.conve.graphs import frequency_mrr, system_on
from tests.systems.conve.test_training import LEARNS, PLAIN


def made(graph: TypedGraph, **objective):
    system = system_on(graph, objective={"loss": "softmax", **objective}, acceleration={"batch_size": 10})
    model = system.build(StepSizes()).eval()
    batch = system.step(system.phases[0], 0, 0)
    return system, model, batch


class TestTheLoss:
    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    @pytest.mark.parametrize("parts", [1, 3])
    def test_kvsall_is_the_cross_entropy_of_each_known_tail(self, small: TypedGraph, smoothing, parts) -> None:
        system, model, batch = made(small, label_smoothing=smoothing)
        (chunk,) = batch.split(parts)
        (term,) = system.terms(model, chunk, system.encode(model, chunk))
        with torch.no_grad():
            scores = model.scores(model(torch.from_numpy(batch.head), torch.from_numpy(batch.relation)))
        tails = torch.from_numpy(batch.column)
        wanted = F.cross_entropy(scores[batch.row], tails, reduction="sum", label_smoothing=smoothing)
        torch.testing.assert_close(term.sum.detach(), wanted)
        assert (term.name, batch.weights) == ("softmax", {"softmax": float(len(batch.row))})

    def test_slcwa_is_the_cross_entropy_among_the_drawn_tails_that_are_not_known(self, small: TypedGraph) -> None:
        system, model, batch = made(small, negatives="sampled", negatives_per_positive=6)
        (term,) = system.terms(model, batch, system.encode(model, batch))
        with torch.no_grad():
            scores = model.scores(model(torch.from_numpy(batch.head), torch.from_numpy(batch.relation)))
        wanted = 0.0
        for row, tails in zip(scores, batch.candidates, strict=True):
            wanted -= float(torch.log_softmax(row[tails[tails >= 0]], 0)[0])
        assert term.sum.item() == pytest.approx(wanted, rel=1e-5)
        assert batch.weights == {"softmax": float(len(batch.head))}

    def test_two_processes_share_a_step(self, small: TypedGraph) -> None:
        system, model, batch = made(small)
        sums = [t.sum for t in system.terms(model, batch, system.encode(model, batch))]
        for rank in range(2):
            mine = batch.shard(rank, 2)
            sums += [-t.sum for t in system.terms(model, mine, system.encode(model, mine))]
        assert abs(sum(sums).item()) < 1e-4


@pytest.mark.parametrize("negatives", ["all", "sampled"])
def test_a_training_ranks_held_out_triples_far_above_their_frequency(
    sample: TypedGraph, tmp_path: Path, negatives: str
) -> None:
    few = {"training": {"epochs": 10}, "evaluation": {"eval_every": 10}, "data": str(sample.path)}
    objective = {**(PLAIN if negatives == "all" else {}), "loss": "softmax", "negatives": negatives}
    report = train({**merge(LEARNS, few), "objective": objective}, "test", root=str(tmp_path))
    assert report["metrics"]["test_mrr"] > 3 * frequency_mrr(sample)
    assert np.isfinite(report["final_losses"]["softmax"])
