"""NBFNet as a part of a blend: where it is one, the settings of its training, and its arrays in an export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from graphmill.arrays import array_of
from graphmill.errors import InputError
from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.nbfnet.graph import MessageGraph
from graphmill.systems.nbfnet.memory import degrees_of, reach
from graphmill.systems.nbfnet.model import NBFNet
from graphmill.systems.nbfnet.scorer import NbfnetScorer
from graphmill.systems.nbfnet.settings import NbfnetSettings, NbfnetTraining
from graphmill.systems.nbfnet.system import NbfnetSystem

NBFNET = "nbfnet"
MOST_EDGES = 800_000
"""Most edges that messages of a training query may run over, at most, for a blend to have an NBFNet by default. Training
one takes up to about ten minutes of a CPU core: 5 on Hetionet (242,000 edges) and on FB15k-237 (614,000)."""
MOST_PASSES = 7
"""Most passes over the links of a graph so small that the default number of steps would make more."""


def is_default_part(graph: TypedGraph) -> bool:
    """Whether a blend has an NBFNet by default."""
    settings, largest = NbfnetSettings(), max(t.count for t in graph.node_types)
    targets = min(settings.objective.candidates, largest)
    return reach(degrees_of(graph), settings.model, targets, targets / largest)[1] <= MOST_EDGES


def nbfnet_values(graph: TypedGraph, seed: int, device: str) -> dict[str, Any]:
    """The settings of the training: the defaults, with fewer steps on a small graph."""
    epochs, steps = (NbfnetTraining.model_fields[name].default for name in ("epochs", "steps_per_epoch"))
    most = MOST_PASSES * degrees_of(graph).edges / (NbfnetSettings.base_batch * epochs)
    return {
        "system": NBFNET,
        "preset": "none",
        "data": str(graph.path),
        "training": {"seed": seed, "steps_per_epoch": max(1, min(steps, round(most)))},
        "acceleration": {"device": device},
        "export": {"csv": False},
    }


def nbfnet_arrays(system: NbfnetSystem, model: NBFNet) -> dict[str, np.ndarray]:
    """``weights.NAME`` float32 for each of the model's weights; ``held_as`` int64 [relations]: the relation that holds the
    reverses of each, of :attr:`TrainEdges.held_as`; ``nodes_per_layer`` int64 [1]. The edges are the training links."""
    weights = {f"weights.{name}": value.detach().float().cpu().numpy() for name, value in model.state_dict().items()}
    size = np.array([system.settings.model.nodes_per_layer], np.int64)
    return weights | {"held_as": system.messages.edges.held_as, "nodes_per_layer": size}


def nbfnet_scorer(arrays: Mapping[str, np.ndarray], links: TrainingLinks) -> NbfnetScorer:
    """The scorer of :func:`nbfnet_arrays` on ``links``, which may have more nodes and edges than those of the training.

    Raises :class:`InputError` for arrays that are not those of an NBFNet on such links.
    """
    relations, width = array_of(arrays, "weights.query", (None, None), "f").shape
    depth = sum(name.startswith("weights.layers.") and name.endswith(".relation") for name in arrays)
    held_as = array_of(arrays, "held_as", (len(links.outgoing),), "i")
    messages = MessageGraph(TrainEdges.of_links(links, held_as))
    nodes = int(array_of(arrays, "nodes_per_layer", (1,), "i")[0])
    if not depth or nodes < 1 or relations != len(messages.counts):
        raise InputError(f"its NBFNet has {depth} layers of {nodes} nodes, and {relations} relations for these links")
    with torch.device("meta"):  # the weights follow
        model = NBFNet(relations, width, depth)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    weights = {
        name: torch.from_numpy(array_of(arrays, f"weights.{name}", shape, "f")) for name, shape in shapes.items()
    }
    model.load_state_dict(weights, assign=True)
    return NbfnetScorer(messages, model, nodes)
