"""The system of a blend: parts from the training links, and their amounts from the validation links."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.errors import InputError
from graphmill.evaluation.baselines.neighbours import TUNING_QUERIES, setting_of
from graphmill.evaluation.ranking.ranks import Scorer
from graphmill.graph.later_nodes import LaterNodes, grown_links, neighbourhoods_of
from graphmill.graph.spectral import PRODUCTS, Neighbourhoods, SpectralVectors
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems import registry
from graphmill.systems.base_system import BaseSystem
from graphmill.systems.blend.exported import KNN, PATHS, SPECTRAL, TRIED
from graphmill.systems.blend.exported import scorer_of as scorer_of
from graphmill.systems.blend.later_nodes import from_features, grown_factors
from graphmill.systems.blend.mix import (
    FOLDS,
    CrossFittedScorer,
    Folds,
    fitted_mixes,
    folds_of,
    mix_for_few_links,
)
from graphmill.systems.blend.part import (
    FEATURES,
    POPULARITY,
    BlendScorer,
    FeatureSimilarity,
    Part,
    Popularity,
    Similarities,
    Trained,
    comparable_rows,
)
from graphmill.systems.blend.paths import PairedLinks, Paths, PathWeights
from graphmill.systems.blend.settings import BlendSettings
from graphmill.systems.blend.trained import NBFNET, chosen_parts, complex_values, nbfnet_arrays, nbfnet_values
from graphmill.systems.blend.trained import memory_parts as memory_parts
from graphmill.systems.neighbours.system import SpectralSystem
from graphmill.training.contract import EmbeddingBlock, OldRows, ParameterGroup, Phase, StepSizes

COMPLEX = "complex"


class BlendModule(nn.Module):
    """``mix`` [relations, parts]: the amount of each part; ``cross_fitted`` [folds, relations, parts]: those of
    :class:`CrossFittedScorer`. ``parts``: the models of those that are systems."""

    def __init__(self, relations: int, parts: int, *, paths: bool, systems: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.mix: Tensor
        self.cross_fitted: Tensor
        self.register_buffer("mix", torch.ones(relations, parts))
        self.register_buffer("cross_fitted", torch.ones(FOLDS, relations, parts))
        self.paths = PathWeights(relations) if paths else None
        self.parts: Any = nn.ModuleDict(systems).requires_grad_(False)


class BlendSystem(BaseSystem[BlendModule]):
    """One step in closed form fits the parts and their amounts, after :meth:`part_runs` are trained."""

    algorithm_version = 6
    can_checkpoint = False
    embeds_from_features = True
    """A new node with features needs no edge."""

    def __init__(self, graph: TypedGraph, settings: BlendSettings, batching: str) -> None:
        super().__init__(graph, settings)
        self.settings: BlendSettings = settings
        self.phases = [Phase("blend", 1, closed_form=True)]
        self.names = [POPULARITY, *chosen_parts(graph, settings.model)]
        self.links = TrainingLinks.of_graph(graph)
        self.trained = {name: self._system(name, values) for name, values in self.part_runs().items()}
        shared = {"data": str(graph.path), "training": {"seed": settings.training.seed}}
        self.fitted = {name: self._system(name, {"system": name, **shared}) for name in self.names if name == KNN}
        width = {"model": {"embedding_dim": settings.model.embedding_dim}}
        self.vectors: SpectralSystem = self._system(SPECTRAL, {"system": SPECTRAL, **shared, **width})
        self.fitted[SPECTRAL] = self.vectors
        self._parts: tuple[nn.Module, dict[str, Part]] | None = None

    def _system(self, name: str, values: Mapping[str, Any]) -> Any:
        """The system of a part."""
        settings = registry.settings_model(name).model_validate(dict(values))
        return registry.create(name, self.graph, settings, "full")

    def part_runs(self) -> dict[str, dict[str, Any]]:
        """:meth:`graphmill.training.contract.System.part_runs`: ComplEx's and NBFNet's."""
        seed, device = self.settings.training.seed, self.settings.acceleration.device
        values_of = {COMPLEX: complex_values, NBFNET: nbfnet_values}
        return {name: values_of[name](self.graph, seed, device) for name in self.names if name in values_of}

    # ---------------------------------------------------------------- model

    def build(self, step_sizes: StepSizes) -> BlendModule:
        """A blend whose parts are not yet fitted."""
        self.step_sizes = step_sizes
        step_sizes.can_checkpoint = False
        models = {name: system.build(step_sizes) for name, system in (self.fitted | self.trained).items()}
        return BlendModule(len(self.graph.relations), len(self.names), paths=PATHS in self.names, systems=models)

    def take_parts(self, model: BlendModule, parts: Mapping[str, nn.Module]) -> None:
        """:meth:`graphmill.training.contract.System.take_parts`."""
        for name, part in parts.items():
            model.parts[name].load_state_dict(part.state_dict())

    def to(self, device: torch.device) -> None:
        """The trained parts are scored on the device, the others on the host."""
        super().to(device)
        for system in self.trained.values():
            system.to(device)

    def parameter_groups(self, model: BlendModule, phase: Phase) -> list[ParameterGroup]:
        """None."""
        return []

    def row_keys(self, model: BlendModule) -> dict[str, tuple[str, list[str]]]:
        """Those of the trained parts."""
        keys: dict[str, tuple[str, list[str]]] = {}
        for name, system in self.trained.items():
            of_part = system.row_keys(model.parts[name])
            keys |= {f"parts.{name}.{key}": (f"{name}.{label}", rows) for key, (label, rows) in of_part.items()}
        return keys

    def carry_over(self, model: BlendModule, tensors: Mapping[str, Tensor], old: OldRows) -> int:
        """Put the spectral vectors of a blend of another graph into ``model``; returns the number of nodes that it lacks.

        Raises:
            InputError: its amounts are of other relations or parts.
        """
        if not old.same_relations:
            raise InputError("a blend weighs its parts by relation, and the live version's graph has other relations")
        if set(tensors) != set(model.state_dict()) or tensors["mix"].shape != model.mix.shape:
            raise InputError(
                "on this graph the blend of the live version would have other parts: name them (model.parts)"
            )
        prefix = f"parts.{SPECTRAL}."
        of_part = {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
        return self.vectors.carry_over(model.parts[SPECTRAL], of_part, old)

    # ---------------------------------------------------------------- fitting

    def solve(self, model: BlendModule, poll: Callable[[], None]) -> None:
        """Fits spectral vectors, paths and weights of paths to the training links, and settings and amounts to the
        validation links. ``poll`` may raise to end it."""
        seed, self._parts = self.settings.training.seed, None
        for name, system in self.fitted.items():
            system.solve(model.parts[name], poll)
        if model.paths is not None:
            model.paths.fit(self.paired, seed)
        scorer = self.scorer(model)
        scorer.poll = poll
        valid = self.ranking_queries("valid", TUNING_QUERIES)
        mixes = fitted_mixes(scorer, valid, self.folds, seed)
        if FEATURES in self.names:
            scorer.mix, place = mixes[0], self.names.index(FEATURES)
            few = mix_for_few_links(scorer, valid, seed, FEATURES)[:, place]
            changed = few != mixes[0, :, place]
            mixes[:, changed, place] = few[changed]
        model.mix.copy_(torch.from_numpy(mixes[0]))
        model.cross_fitted.copy_(torch.from_numpy(mixes[1:]))

    def seconds_to_solve(self) -> float:
        """By the time of one of the products that make the spectral vectors, a third or so of the work; without
        :meth:`part_runs`."""
        matrix, began = self.entries.matrix, time.perf_counter()
        matrix @ np.ones((matrix.shape[1], self.settings.model.embedding_dim), np.float32)
        return 3 * PRODUCTS * (time.perf_counter() - began)

    @cached_property
    def folds(self) -> Folds:
        """The folds of the heads."""
        return folds_of(self.graph)

    @property
    def entries(self) -> Neighbourhoods:
        """The neighbourhoods of the graph's nodes."""
        return self.vectors.entries

    @cached_property
    def paired(self) -> PairedLinks:
        """The training links with their pairs."""
        return PairedLinks.of_graph(self.graph)

    # ---------------------------------------------------------------- evaluation and export

    def parts_of(self, model: BlendModule) -> dict[str, Part]:
        """The parts by name, made once."""
        if self._parts is None or self._parts[0] is not model:
            parts: dict[str, Part] = {POPULARITY: Popularity(self.links)}
            for name in self.names[1:]:
                if name in self.fitted:
                    parts[name] = Similarities(self.fitted[name].scorer(model.parts[name]), TRIED[name])
                elif model.paths is not None and name == PATHS:
                    weights = model.paths.weights.float().cpu().numpy()
                    parts[name] = Paths(self.links, model.paths.channels.cpu().numpy(), weights)
                elif name == FEATURES:
                    parts[name] = FeatureSimilarity(self.links, comparable_rows(self.graph))
                else:
                    parts[name] = Trained(self.trained[name].scorer(model.parts[name]))
            self._parts = model, parts
        return self._parts[1]

    def spectral(self, model: BlendModule) -> SpectralVectors:
        """The spectral vectors."""
        return self.vectors.spectral(model.parts[SPECTRAL])

    def scorer(self, model: BlendModule) -> BlendScorer:
        """The blend's scores."""
        return BlendScorer(self.links, self.parts_of(model), model.mix.float().cpu().numpy())

    def scorer_for(self, model: BlendModule, split: str) -> BlendScorer:
        """On validation links, by amounts that were chosen on others."""
        if split != "valid":
            return self.scorer(model)
        return CrossFittedScorer(self.links, self.parts_of(model), model.cross_fitted.float().cpu().numpy(), self.folds)

    def baselines(self, model: BlendModule) -> dict[str, Scorer]:
        """The parts that are baselines of a ranking, as they rank alone."""
        parts = self.parts_of(model)
        return {n: p.scorer for n, p in parts.items() if isinstance(p, Similarities | Trained) and n != NBFNET}

    def scoring(self, model: BlendModule) -> dict[str, np.ndarray]:
        """The arrays for scores besides the exported vectors: the training links; ``mix.PART`` float32 [relations] for each
        part; ``spectral.setting`` and ``knn.setting`` float32 [5]; ``paths.channels`` int32 [relations, 64, 2] and
        ``paths.weights`` float32 [relations, 64]; ``features.rows`` float32 [nodes, f]; ``complex.vectors`` float32
        [nodes, d] and ComplEx's own arrays; ``nbfnet.NAME`` for those of :func:`nbfnet_arrays`."""
        return self._arrays(model, self.links)

    def _arrays(
        self,
        model: BlendModule,
        links: TrainingLinks,
        vectors: Mapping[str, np.ndarray] | None = None,
        later: LaterNodes | None = None,
    ) -> dict[str, np.ndarray]:
        weighted = any(setting_of(model.parts[name].array("setting")).weighted for name in self.fitted)
        mix, arrays = model.mix.float().cpu().numpy(), links.arrays(weighted=weighted)
        shared = set(arrays)
        arrays |= {f"mix.{name}": np.ascontiguousarray(mix[:, n]) for n, name in enumerate(self.names)}
        arrays |= {f"{name}.setting": model.parts[name].array("setting") for name in self.fitted}
        if model.paths is not None:
            arrays["paths.channels"] = model.paths.channels.cpu().numpy()
            arrays["paths.weights"] = model.paths.weights.float().cpu().numpy()
        if FEATURES in self.names:
            arrays["features.rows"] = comparable_rows(self.graph, later)
        for name, system in self.trained.items():
            if name == NBFNET:
                of_part = nbfnet_arrays(system, model.parts[name])
            else:
                of_part = {key: value for key, value in system.scoring(model.parts[name]).items() if key not in shared}
                of_part["vectors"] = (vectors or {}).get(name, self._table(model, name))
            arrays |= {f"{name}.{key}": value for key, value in of_part.items()}
        return arrays

    def _table(self, model: BlendModule, name: str) -> np.ndarray:
        return np.concatenate([block.vectors for block in self.trained[name].embeddings(model.parts[name])])

    def embeddings(self, model: BlendModule) -> Iterator[EmbeddingBlock]:
        """The spectral vectors."""
        return self.vectors.embeddings(model.parts[SPECTRAL])

    def embed_later(self, model: BlendModule, later: LaterNodes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """:meth:`graphmill.usage.embed.EmbedsLater.embed_later`: projected, of nodes without edges from their
        features, and of ComplEx by regression."""
        spectral = self.spectral(model)
        matrix = neighbourhoods_of(later, self.graph, spectral.entries)
        vectors, alone = spectral.projected(matrix), np.diff(matrix.indptr) == 0
        if FEATURES in self.names and alone.any():
            rows = comparable_rows(self.graph, later)
            vectors[alone] = from_features(later, self.graph, rows, spectral.all())[alone]
        links, tables = grown_links(later, self.links, self.graph), {}
        if COMPLEX in self.trained:  # NBFNet needs but the edges
            relations = self.trained[COMPLEX].scoring(model.parts[COMPLEX])["relations"]
            tables[COMPLEX] = grown_factors(later, self.graph, links, self._table(model, COMPLEX), relations)
        return vectors, self._arrays(model, links, tables, later)

    def health(self, model: BlendModule) -> dict[str, float]:
        """Participation ratio, mean cosine and the smallest within-type rank of the spectral vectors."""
        return self.vectors.health(model.parts[SPECTRAL])
