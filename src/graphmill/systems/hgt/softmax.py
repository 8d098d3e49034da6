"""HGT with a softmax over candidate targets: spectral vectors that are not trained, beside vectors that the layers learn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.spectral import neighbourhoods
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.factor.batch import FactorBatch
from graphmill.systems.factor.model import FactorTables
from graphmill.systems.factor.system import FactorSystem
from graphmill.systems.hgt.batch import LINK, HgtBatch
from graphmill.systems.hgt.complex_part import complex_settings
from graphmill.systems.hgt.later_nodes import grown_factors, grown_links, learned_later, neighbourhoods_of
from graphmill.systems.hgt.model import HGT
from graphmill.systems.hgt.pair_features import PairFeatures, PathWeights
from graphmill.systems.hgt.part_weights import fit_mix
from graphmill.systems.hgt.settings import HgtSettings
from graphmill.systems.hgt.softmax_decoder import Ends, SoftmaxDecoder
from graphmill.systems.hgt.softmax_ends import LinkEnds, LinkEndsOnDevice
from graphmill.systems.hgt.softmax_links import Asked, asked_of, padded, side_by_side
from graphmill.systems.hgt.softmax_scorer import Factors, SoftmaxScorer, scoring_arrays
from graphmill.systems.hgt.spectral import NeighbourSums, SpectralTable, SpectralVectors
from graphmill.systems.hgt.system import HgtSystem
from graphmill.training.contract import Compilable, EmbeddingBlock, Encoded, Execution, ParameterGroup, Phase, Term

if TYPE_CHECKING:
    from graphmill.evaluation.ranking.queries import LinkQueries
    from graphmill.graph.typed_graph import TypedGraph

LEARNED_LENGTH = 0.5
"""Length of the learned part of a vector, beside a spectral part of at most 1."""


_FACTORS = "factors."
COMPLEX = "complex"
"""Name of the phase that trains the ComplEx part. The names of its tables begin with ``factors.``."""


class SoftmaxModule(nn.Module):
    """What a checkpoint stores: spectral table, encoder of the learned part, decoder, ComplEx's tables, weights of paths.

    Encoder, ComplEx's tables and weights of paths are None unless the settings ask for them.
    """

    def __init__(
        self,
        table: SpectralTable,
        encoder: HGT | None,
        decoder: SoftmaxDecoder,
        factors: FactorTables | None = None,
        paths: PathWeights | None = None,
    ) -> None:
        super().__init__()
        self.table = table
        self.encoder = encoder
        self.decoder = decoder
        self.factors = factors
        self.paths = paths


class HgtSoftmaxSystem(HgtSystem):
    """Has the graph, steps and layers of :class:`HgtSystem`, with another loss, another decoder and vectors in two parts.

    An embedding is the spectral part [embedding_dim − learned_dim] and the learned one [learned_dim] side by side. The
    layers read the spectral part as a feature of every node. With ``model.complex_dim`` a phase of its own trains ComplEx
    on the same links, and its score becomes a part of a link's score. With ``model.pair_features`` features of the pair
    from the training edges become a part too.
    """

    algorithm_version = 10

    def __init__(self, graph: TypedGraph, settings: HgtSettings, batching: str) -> None:
        super().__init__(graph, settings, batching)
        self.learned = settings.model.learned_dim
        self.width = settings.model.embedding_dim - self.learned
        self.entries = neighbourhoods(graph)
        self.sums = NeighbourSums.of_data(self.data)
        self._vectors: tuple[Tensor, SpectralVectors] | None = None
        self._seen: tuple[Tensor | None, int] = (None, 0)
        self._features: PairFeatures | None = None
        self.chooses_score = bool(settings.complex_width or settings.model.pair_features) or self.chooses_score
        self.complex: FactorSystem | None = None
        if settings.complex_width:
            self.complex = FactorSystem(graph, complex_settings(graph, settings), "full")
            own = self.complex.phases[0]
            training = self.complex.settings.training
            self.phases.append(Phase(COMPLEX, own.steps_per_epoch, own.batch_size, own.batch_size, training))

    # ---------------------------------------------------------------- model

    def build(self, execution: Execution) -> SoftmaxModule:  # type: ignore[override]
        """Initialise on the CPU from the seed, and compute the spectral table."""
        m = self.settings.model
        self.execution = execution
        table = SpectralTable(self.graph.num_nodes, self.width)
        if self.width:
            table.fill(self.entries, self.settings.training.seed & 0xFFFF_FFFF)
        encoder = None
        if self.learned:
            own = {n: rows.shape[1] for n, rows in self.features.items()}
            widths = {n: own.get(n, 0) + self.width for n in range(len(self.graph.node_types))}
            encoder = self._encoder(execution, self.learned, {n: width for n, width in widths.items() if width})
        decoder = SoftmaxDecoder(
            len(self.data.relations),
            self.width,
            self.learned,
            sums=m.neighbour_sums,
            weighted=m.decoder == "distmult",
            popularity=m.popularity,
            mixed=self.complex is not None or m.pair_features,
        )
        factors = self.complex.build(execution) if self.complex else None
        paths = PathWeights(len(self.data.relations)) if m.pair_features else None
        return SoftmaxModule(table, encoder, decoder, factors, paths)

    def to(self, device: torch.device) -> None:
        """Move graph, features and degrees to the device."""
        super().to(device)
        self.__dict__.pop("ends", None)
        if self.complex is not None:
            self.complex.to(device)

    def parameter_groups(self, model: nn.Module, phase: Any) -> list[Any]:
        """As for any HGT, without what is not trained. ComplEx's phase trains only its tables, without weight decay."""
        if phase.name == COMPLEX:
            names, tables = zip(*((n, p) for n, p in model.named_parameters() if n.startswith(_FACTORS)), strict=True)
            return [ParameterGroup(list(names), list(tables), 0.0)]
        groups = super().parameter_groups(model, phase)
        trained = [
            (g, [i for i, p in enumerate(g.parameters) if p.requires_grad and not g.names[i].startswith(_FACTORS)])
            for g in groups
        ]
        return [
            type(g)([g.names[i] for i in rows], [g.parameters[i] for i in rows], g.decay) for g, rows in trained if rows
        ]

    def row_keys(self, model: nn.Module) -> dict[str, tuple[str, list[str]]]:
        """As for any HGT; weights that read spectral vectors also name the graph, because they hold for its basis only."""
        relations = ["|".join(r.key) for r in self.graph.relations]
        out = super().row_keys(model)
        for name in list(out):
            if name.startswith("decoder."):
                out[name] = (f"softmax.{name}", relations)
            elif name.startswith("encoder.features.") and self.width:
                out[name] = (f"{out[name][0]}@{self.graph.content_hash}", [])
        if self.complex is not None:
            own = self.complex.row_keys(model.factors)  # type: ignore[arg-type]
            out |= {_FACTORS + name: (_FACTORS + label, keys) for name, (label, keys) in own.items()}
        return out

    # ---------------------------------------------------------------- a step

    def step(self, phase: Phase, epoch: int, index: int) -> HgtBatch:
        """The links, candidates and messages of one step; in ComplEx's phase its links."""
        if self.complex is not None and phase.name == COMPLEX:
            return self.complex.step(phase, epoch, index)  # type: ignore[return-value]
        return super().step(phase, epoch, index)

    def encode(self, model: nn.Module, batch: HgtBatch) -> Encoded | None:  # type: ignore[override]
        """Spectral vectors of all nodes without the step's pairs, and learned vectors of the nodes that the step reads; in
        ComplEx's phase the vectors that it reads."""
        if self.complex is not None and isinstance(batch, FactorBatch):
            return self.complex.encode(model.factors, batch)
        spectral = self.ends.vectors(self.spectral(model), batch.masked)
        encoder: HGT | None = model.encoder  # type: ignore[assignment]
        if encoder is None:
            return Encoded({"spectral": spectral})
        found = self._encoded(encoder, batch, self.inputs(encoder, spectral))
        return Encoded({**found.tensors, "spectral": spectral})

    @cached_property
    def ends(self) -> LinkEnds:
        """Makes the step's spectral vectors and sums over neighbours: on the host for the CPU, else on the device."""
        sums = bool(self.settings.model.neighbour_sums and self.width)
        on = LinkEnds if self.device.type == "cpu" else LinkEndsOnDevice
        return on(self.data, self.sums, max(self.graph.num_pairs, 1), self.device, with_sums=sums)

    def inputs(self, encoder: HGT, spectral: Tensor) -> dict[int, Tensor]:
        """The layers' input features per type: the data's features and the spectral vectors, side by side."""
        out = {}
        # One copy for all types, pinned where copies are: separate copies would wait once per type.
        placed = self._tensor(spectral.numpy()) if spectral.device.type == "cpu" else spectral
        for number, t in enumerate(self.graph.node_types):
            parts = [self.features[number]] if number in self.features else []
            if self.width:
                parts.append(placed[t.offset : t.offset + t.count][self.own_rows(number)])
            if parts:
                out[number] = torch.cat([part.to(encoder.tables[number].dtype) for part in parts], 1)
        return out

    def spectral(self, model: nn.Module) -> SpectralVectors:
        """The vectors that are not trained, from the model's table."""
        table: SpectralTable = model.table  # type: ignore[assignment]
        # The columns follow from the table. They are made once, and again after other weights are loaded. Values are only
        # compared after a write: to compare them in every step would make it wait for an accelerator.
        version = (table.values, table.values._version)
        if self._vectors is None or not (
            (self._seen[0] is version[0] and self._seen[1] == version[1]) or torch.equal(self._vectors[0], table.values)
        ):
            self._vectors = (table.values.clone(), SpectralVectors(self.entries, table))
        self._seen = version
        return self._vectors[1]

    def terms(self, model: nn.Module, chunk: HgtBatch, encoded: Encoded | None) -> list[Any]:
        """The mean over relations of the mean over links of −log softmax; in ComplEx's phase its own terms."""
        if self.complex is not None and isinstance(chunk, FactorBatch):
            return list(self.complex.terms(model.factors, chunk, encoded))
        assert encoded is not None
        if not len(chunk.relation):
            return []
        masked = self.ends.left_out(chunk.masked)
        total = None
        with torch.autocast(self.device.type, enabled=False):
            for group in side_by_side(asked_of(chunk, self.data), self.device):
                part = self._sum(model.decoder, chunk, group, encoded, masked)  # type: ignore[arg-type]
                total = part if total is None else total + part
        assert total is not None
        return [Term(LINK, total, float(chunk.share.sum()))]

    def _sum(
        self, decoder: SoftmaxDecoder, chunk: HgtBatch, group: list[Asked], encoded: Encoded, masked: np.ndarray
    ) -> Tensor:
        """Σ share · −log softmax over the links of some relations; padding has weight 0."""
        links, candidates = max(len(a.links) for a in group), max(len(a.candidates) for a in group)
        # The host converts to the scores' dtype: MPS has no float64.
        wide = np.float64 if decoder.strength.dtype == torch.float64 else np.float32
        degrees = [np.log1p(self.data.relations[a.relation].degree[a.candidates]).astype(np.float32) for a in group]
        absent = np.array([len(a.candidates) for a in group])[:, None] <= np.arange(candidates)
        tails = padded([chunk.tail_degree[a.links] for a in group], links)
        relation, degree, share, barred, no_candidate, *ends = self._tensors(
            np.array([a.relation for a in group]),
            np.concatenate([tails, padded(degrees, candidates)], 1),
            padded([chunk.share[a.links].astype(wide) for a in group], links),
            np.concatenate([self._known(a, candidates) + n * links * candidates for n, a in enumerate(group)]),
            absent,
            *self.ends.arrays(group, (links, candidates), encoded, masked),
        )
        made = self.ends.tensors(ends, encoded)
        left, targets = self._split(encoded, made, (links, links + candidates))
        right, scores = decoder.own_and_others(relation, left, targets, degree)
        # Known targets of a head are no wrong answers; the link's own target is scored separately.
        scores = scores.flatten().index_fill(0, barred, -torch.inf).view(scores.shape)
        if absent.any():
            scores = scores.masked_fill(no_candidate[:, None], -torch.inf)
        losses = torch.logsumexp(torch.cat([right[..., None], scores], -1), -1) - right
        return (losses * share).sum()

    def _known(self, asked: Asked, candidates: int) -> np.ndarray:
        """int64: flat positions in the scores [links, ``candidates``] that are training targets of the link's head."""
        rows, known = self.sums.known(asked.relation, asked.heads)
        place = np.searchsorted(asked.candidates, known)
        hit = place < len(asked.candidates)
        hit[hit] = asked.candidates[place[hit]] == known[hit]
        return rows[hit] * candidates + place[hit]

    def _split(self, encoded: Encoded, ends: list[Tensor], sizes: tuple[int, ...]) -> list[Ends]:
        """Split each of ``ends`` by ``sizes``: heads, and tails with candidates."""
        vectors, rows, sums, counts = ends
        fields = [vectors, sums, counts]
        if "z" in encoded.tensors:
            fields.append(table_rows(encoded.tensors["z"], rows) * self.learned_scale)
        parts = zip(*(field.split(list(sizes), 1) for field in fields), strict=True)
        return [Ends(v, learned[0] if learned else None, s, n) for v, s, n, *learned in parts]

    @property
    def learned_scale(self) -> float:
        """The factor that makes the encoder's rows the learned part of an embedding."""
        return float(LEARNED_LENGTH / max(self.learned, 1) ** 0.25)

    # ---------------------------------------------------------------- evaluation and export

    def scorer(self, model: nn.Module) -> SoftmaxScorer:  # type: ignore[override]
        """Scores from embeddings that are computed once, in eval mode, and their sums over all training edges."""
        vectors = np.concatenate([b.vectors for b in self.embeddings(model)])
        decoder: SoftmaxDecoder = model.decoder  # type: ignore[assignment]
        factors, features = self.factors_of(model), self.features_of(model)
        return SoftmaxScorer(vectors, self.width, decoder, self.sums, self.device, factors, features)

    def features_of(self, model: nn.Module) -> PairFeatures | None:
        """The pair features, made once for the model's weights of paths; None without them."""
        paths = self.paths_of(model)
        if paths is None:
            return None
        channels, weights = paths.channels.cpu().numpy(), paths.weights.float().cpu().numpy()
        if self._features is None or not np.array_equal(self._features.weights, weights):
            self._features = PairFeatures(self.sums, channels, weights)
        return self._features

    def paths_of(self, model: nn.Module) -> PathWeights | None:
        """The weights of paths, fitted to the graph's training links if they are not yet; None without them."""
        paths: PathWeights | None = model.paths  # type: ignore[assignment]
        if paths is not None:
            paths.fit(self.sums, self.settings.training.seed)
        return paths

    def factors_of(self, model: nn.Module) -> Factors | None:
        """ComplEx's tables of nodes and of the graph's relations; None without a ComplEx part."""
        tables: FactorTables | None = model.factors  # type: ignore[assignment]
        if tables is None:
            return None
        relations = tables.relations[: len(self.data.relations)]
        nodes, own = (t.detach().float().cpu().numpy() for t in (tables.entities, relations))
        return nodes, own

    def fit_score(self, scorer: Any, queries: LinkQueries) -> None:
        """Fit the weights of the score's parts if it has them; else how far vectors may overrule popularity."""
        if scorer.decoder.mix is None:
            super().fit_score(scorer, queries)
        else:
            fit_mix(scorer.decoder, scorer, queries, self.settings.training.seed)

    def scoring(self, model: nn.Module) -> dict[str, np.ndarray]:
        """What a score needs beside the exported vectors: :func:`graphmill.systems.hgt.softmax_scorer.scoring_arrays`."""
        paths = self.paths_of(model)
        return scoring_arrays(self.width, model.decoder, self.sums, self.factors_of(model), paths)  # type: ignore[arg-type]

    def embeddings(self, model: nn.Module) -> Iterator[EmbeddingBlock]:
        """The spectral part, then the learned one, in chunks of nodes."""
        spectral = self.spectral(model).all()
        encoder: HGT | None = model.encoder  # type: ignore[assignment]
        if encoder is None:
            yield EmbeddingBlock(0, spectral)
            return
        inputs = self.inputs(encoder, torch.from_numpy(spectral))
        for start, rows in self._inferred(encoder, inputs):
            learned = (rows.float() * self.learned_scale).cpu().numpy()
            yield EmbeddingBlock(start, np.concatenate([spectral[start : start + len(learned)], learned], 1))

    def embed_later(self, model: nn.Module, later: LaterNodes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The new nodes' projected neighbourhoods and the layers' output for them, side by side."""
        vectors = self.spectral(model)
        spectral = vectors.projected(neighbourhoods_of(later, self.data, self.entries))
        links, factors = grown_links(later, self.sums, self.graph), self.factors_of(model)
        if factors is not None:
            factors = (grown_factors(later, self.graph, links, factors), factors[1])
        scoring = scoring_arrays(self.width, model.decoder, links, factors, self.paths_of(model))  # type: ignore[arg-type]
        encoder: HGT | None = model.encoder  # type: ignore[assignment]
        if encoder is None:
            return spectral, scoring
        inputs = self.inputs(encoder, torch.from_numpy(vectors.all()))
        learned = learned_later(self, model, later, inputs, spectral) * np.float32(self.learned_scale)
        return np.concatenate([spectral, learned], 1), scoring

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """Number of message edges; in ComplEx's phase, of links."""
        if self.complex is not None and phase.name == COMPLEX:
            return self.complex.units_per_step(phase)
        return super().units_per_step(phase)

    def compilables(self, model: nn.Module) -> list[Compilable]:
        """The heads: dense and of fixed shapes."""
        encoder: HGT | None = model.encoder  # type: ignore[assignment]
        return [] if encoder is None else [Compilable(head, "forward") for head in encoder.heads]


def system_of(graph: TypedGraph, settings: HgtSettings, batching: str) -> HgtSystem:
    """The system for ``objective.loss``."""
    return (HgtSoftmaxSystem if settings.objective.loss == "softmax" else HgtSystem)(graph, settings, batching)
