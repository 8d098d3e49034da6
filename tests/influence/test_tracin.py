"""TracInCP over checkpoints: against per-example gradients, in both directions."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphmill.errors import SettingsError
from graphmill.influence.tracin import TracedCheckpoint, influence, top
from graphmill.training.contract import StepSizes
from tests.influence.test_dots import labels_of, reference
from tests.systems.conve.graphs import random_graph, system_on
from tests.systems.conve.test_model import lively

RATES = (0.3, 0.1)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory):
    graph = random_graph(Path(tmp_path_factory.mktemp("tracin")) / "graph", entities=8, relations=2, triples=45, seed=5)
    system = system_on(graph, model={"embedding_dim": 12, "output_channels": 3, "kernel_height": 2})
    models = [lively(system.build(StepSizes()), seed).double().eval() for seed in (1, 2)]
    checkpoints = [
        TracedCheckpoint(epoch, rate, lambda model=model: system.tracer(model))
        for epoch, (rate, model) in enumerate(zip(RATES, models, strict=True))
    ]
    return system, models, checkpoints


def triple_gradients(system, model, split: str) -> torch.Tensor:
    """A triple's gradient is that of both its labels."""
    result = reference(system, model, labels_of(system, split))
    return result.view(2, -1, result.shape[1]).sum(0)


@pytest.fixture(scope="module")
def expected(setup) -> torch.Tensor:
    system, models, _ = setup
    return sum(
        rate * triple_gradients(system, m, "test") @ triple_gradients(system, m, "train").T
        for rate, m in zip(RATES, models, strict=True)
    )


class TestInfluence:
    @pytest.mark.parametrize("batch_size", [1, 7, 1000])
    def test_it_is_the_sum_over_checkpoints_of_rate_times_dot_product(self, setup, expected, batch_size) -> None:
        system, _, checkpoints = setup
        train, test = system.traced_triples("train"), system.traced_triples("test")
        result = influence(system, checkpoints, train, test, batch_size)
        np.testing.assert_allclose(result, expected.numpy(), rtol=1e-8, atol=1e-10)
        assert (result > 0).any()
        assert (result < 0).any()

    def test_no_checkpoint_is_refused(self, setup) -> None:
        system = setup[0]
        with pytest.raises(SettingsError, match="keep_influence"):
            influence(system, [], system.traced_triples("train"), system.traced_triples("test"))


class TestTop:
    def test_proponents_fall_opponents_rise_and_signs_are_kept_apart(self) -> None:
        proponents, opponents = top(np.array([0.5, -2.0, 0.0, 3.0, -0.1, 0.5]), 3)
        assert proponents.tolist() == [3, 0, 5]
        assert opponents.tolist() == [1, 4]
