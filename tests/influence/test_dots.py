"""ConvE's factored gradients and their dot products against torch.func's per-example gradients, in float64."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, vmap

from graphmill.influence.tracin import pairwise
from graphmill.systems.conve.data import both_directions
from graphmill.systems.conve.model import ConvE
from graphmill.training.contract import StepSizes
from tests.systems.conve.graphs import random_graph, system_on
from tests.systems.conve.reference import plain_feature_map
from tests.systems.conve.test_model import lively


@pytest.fixture(
    scope="module",
    params=["bce", "softmax"],
)
def setup(request, tmp_path_factory: pytest.TempPathFactory):
    graph = random_graph(Path(tmp_path_factory.mktemp("traced")) / "graph", entities=7, relations=2, triples=40, seed=3)
    model_settings = {
        "embedding_dim": 12,
        "output_channels": 3,
        "kernel_height": 2,
    }
    system = system_on(graph, model=model_settings, objective={"loss": request.param})
    return system, lively(system.build(StepSizes())).double().eval()


class PlainTower(torch.nn.Module):
    """The tower in operations that torch.func can differentiate example by example."""

    def __init__(self, model: ConvE) -> None:
        super().__init__()
        self.model = model

    def forward(self, head: torch.Tensor, relation: torch.Tensor) -> torch.Tensor:
        m = self.model
        picture = m.input_norm(m.picture(m.entities[head], m.relations[relation]))
        maps = plain_feature_map(picture, m.convolution, m.feature_norm, 0.0, False)
        return torch.relu(m.output_norm(m.projection(maps)))


def reference(system, model, labels: np.ndarray) -> torch.Tensor:
    """[n, parameters]: gradients of each label's loss, one by one through torch.func."""
    names = [name for name, _ in model.named_parameters()]
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    held = {f"model.{n}": b for n, b in model.named_buffers()}
    tower = PlainTower(model)
    one, zero = system.targets
    softmax = system.settings.objective.loss == "softmax"
    smoothing, number = system.settings.objective.label_smoothing, system.data.num_entities
    if softmax:
        one, zero = 1.0, 0.0
    data = system.data
    targets = torch.full((len(labels), data.num_entities), zero, dtype=torch.float64)
    counts = torch.ones_like(targets)  # which entities' terms are in the loss
    for i, (_, _, t) in enumerate(labels.tolist()):
        targets[i, t], counts[i] = one, torch.nn.functional.one_hot(torch.tensor(t), data.num_entities)

    def loss(parameters, head, relation, target, count):
        x = functional_call(
            tower, ({f"model.{n}": p for n, p in parameters.items()}, held), (head[None], relation[None])
        )
        scores = x[0] @ parameters["entities"].T
        scores = scores + parameters["entity_bias"]
        if softmax:
            smoothed = (1.0 - smoothing) * target + smoothing * target.sum() / number
            return -(smoothed * torch.log_softmax(scores, dim=0)).sum()
        return ((torch.nn.functional.softplus(scores) - target * scores) * count).sum()

    columns = [torch.from_numpy(labels[:, i].copy()) for i in range(2)]
    result = vmap(grad(loss), in_dims=(None, 0, 0, 0, 0))(parameters, *columns, targets, counts)
    return torch.cat([result[name].flatten(1) for name in names], dim=1)


def labels_of(system, split: str) -> np.ndarray:
    return both_directions(system.traced_triples(split), system.data.num_relations)


def test_dot_products_of_labels_are_those_of_per_example_gradients(setup) -> None:
    system, model = setup
    tracer = system.tracer(model)
    train, test = labels_of(system, "train"), labels_of(system, "test")
    left, right = reference(system, model, train), reference(system, model, test)
    mine = pairwise(tracer.label_gradients(train), tracer.label_gradients(test))
    torch.testing.assert_close(mine, left @ right.T, rtol=1e-8, atol=1e-10)
