"""The parts of a blend: which a graph gets, the settings of the trained ones (ComplEx, NBFNet), and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from graphmill.arrays import array_of
from graphmill.errors import InputError
from graphmill.evaluation.baselines.train_edges import TrainEdges
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.blend.settings import PARTS, BlendModel, BlendSettings
from graphmill.systems.factor.memory import has_reverses, scores_per_link
from graphmill.systems.factor.memory import memory_parts as complex_parts
from graphmill.systems.factor.settings import FactorSettings
from graphmill.systems.nbfnet.graph import MessageGraph
from graphmill.systems.nbfnet.memory import degrees_of, reach
from graphmill.systems.nbfnet.memory import memory_parts as nbfnet_parts
from graphmill.systems.nbfnet.model import NBFNet
from graphmill.systems.nbfnet.settings import NbfnetSettings, NbfnetTraining
from graphmill.systems.nbfnet.system import NbfnetScorer, NbfnetSystem
from graphmill.systems.neighbours.settings import KnnSettings, SpectralModel, SpectralSettings
from graphmill.systems.neighbours.system import NEIGHBOURHOODS
from graphmill.systems.neighbours.system import memory_parts as neighbours_parts
from graphmill.training.planning import Part, Setup, ranking_part


def chosen_parts(graph: TypedGraph, model: BlendModel) -> list[str]:
    """The parts beside popularity: those of the settings, or all that suit the graph. Features are left out where it has
    none."""
    wanted = model.parts or [name for name in PARTS if name != NBFNET or is_default_part(graph)]
    return [name for name in wanted if name != "features" or any(graph.feature_sets(t.name) for t in graph.node_types)]


def memory_parts(graph: TypedGraph, settings: BlendSettings, setup: Setup) -> list[Part]:
    """The parts of one process."""
    wanted = chosen_parts(graph, settings.model)
    width = SpectralModel(embedding_dim=settings.model.embedding_dim)
    spectral = neighbours_parts(graph, SpectralSettings(model=width), setup)
    # Sparse neighbourhoods, steps of paths and, while their weights are fitted, a second copy of the edges.
    compared = [p for p in neighbours_parts(graph, KnnSettings(), setup) if p.name == NEIGHBOURHOODS]
    widths = [sum(rows.shape[1] for n in graph.feature_sets(t.name) if (rows := graph.features(t.name, n)) is not None)
              for t in graph.node_types]  # fmt: skip
    trained, remedy = [], "name model.parts, without {}"
    if "complex" in wanted:
        factors = FactorSettings.model_validate(complex_values(graph, 0, "cpu"))
        held = [p for p in complex_parts(graph, factors, setup) if p.when != "evaluation"]
        trained += [replace(part, remedy=remedy.format("complex")) for part in held]
    if NBFNET in wanted:
        network = NbfnetSettings.model_validate(nbfnet_values(graph, 0, "cpu"))
        held = [p for p in nbfnet_parts(graph, network, setup) if p.name != ranking_part(0, 0).name]
        trained += [replace(part, name=f"NBFNet: {part.name}", remedy=remedy.format(NBFNET)) for part in held]
    return [
        *spectral,
        *(compared if {"knn", "paths"} & set(wanted) else []),
        Part("features of nodes", "evaluation", 2 * graph.num_nodes * max(widths) * ("features" in wanted)),
        *trained,
    ]


MINUTES = 1.2
"""Largest time of the training, in minutes of one CPU core. It is counted by the amount of work, so that every machine does
the same."""
EPOCHS, MOST_PASSES = 14, 35
"""Equal parts of the training, of which the best by validation is taken; and the most passes over the links of a graph so
small that the time would allow more."""
DENSE, LARGE = 70, 100_000
"""Links a node from which a graph is dense, and links from which a sparse one is large."""
FLOP_A_SECOND, BYTES_A_SECOND = 25e9, 4e9
"""Assumed rates of one core, which turn the minutes into an amount of work."""
QUERIES = 500
"""Validation links of a relation on which an epoch is judged."""


def complex_values(graph: TypedGraph, seed: int, device: str) -> dict[str, Any]:
    """The settings, by the size of the graph."""
    edges = sum(relation["split"]["train"] for relation in graph.manifest["relations"])
    links = edges if has_reverses(graph) else 2 * edges
    values: dict[str, Any] = {
        "system": "complex",
        "data": str(graph.path),
        "preset": "none",
        "objective": {"n3": n3_of(links, graph.num_nodes), "relation_weight": 0.0},
        "training": {"seed": seed, "epochs": EPOCHS, "patience_epochs": 0},
        "acceleration": {"device": device, "precision": "fp32"},
        "evaluation": {"eval_every": 2, "max_queries": QUERIES},
        "export": {"csv": False},
    }
    steps = min(
        60 * MINUTES / _seconds_a_step(graph, values), MOST_PASSES * math.ceil(links / FactorSettings.base_batch)
    )
    values["training"]["steps_per_epoch"] = max(1, round(steps / EPOCHS))
    return values


def _seconds_a_step(graph: TypedGraph, values: dict[str, Any]) -> float:
    settings = FactorSettings.model_validate(values)
    width, scores = settings.model.embedding_dim, settings.step_size() * scores_per_link(graph, settings)
    # Three products of scores and vectors; ten passes over the scores, and eight over all vectors.
    return 6 * scores * width / FLOP_A_SECOND + (10 * scores + 8 * graph.num_nodes * width) * 4 / BYTES_A_SECOND


def n3_of(links: int, nodes: int) -> float:
    """λ of the N3 norm: the more links determine the vectors, the less norm they need. ``links``: in both directions."""
    if links >= DENSE * nodes:
        return 0.02
    return 0.05 if links >= LARGE else 0.1


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
