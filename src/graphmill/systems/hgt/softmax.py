"""HGT by a softmax over candidate targets: spectral vectors that are not trained, and beside them what the layers learn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.graph.spectral import neighbourhoods
from graphmill.systems.complex.batch import ComplexBatch
from graphmill.systems.complex.model import ComplEx
from graphmill.systems.complex.recipe import ComplexRecipe
from graphmill.systems.hgt.batch import LINK, HgtBatch
from graphmill.systems.hgt.complex_part import complex_settings
from graphmill.systems.hgt.inference import infer
from graphmill.systems.hgt.later import LaterNodes, grown_factors, grown_sums, learned_later, neighbourhoods_of
from graphmill.systems.hgt.mix import fit_mix
from graphmill.systems.hgt.model import HGT
from graphmill.systems.hgt.recipe import HgtRecipe
from graphmill.systems.hgt.settings import HgtSettings
from graphmill.systems.hgt.softmax_decoder import Ends, SoftmaxDecoder
from graphmill.systems.hgt.softmax_scorer import Factors, SoftmaxScorer, scoring_arrays
from graphmill.systems.hgt.spectral import NeighbourSums, SpectralTable, SpectralVectors
from graphmill.training.contract import Compilable, EmbeddingBlock, Encoded, Execution, ParameterGroup, Phase, Term

if TYPE_CHECKING:
    from graphmill.evaluation.ranking.links import LinkQueries
    from graphmill.graph.typed_graph import TypedGraph

LEARNED_LENGTH = 0.5
"""Length of the learned part of a vector, beside a spectral part of at most 1."""


_FACTORS = "factors."
COMPLEX = "complex"
"""The phase in which the ComplEx part is trained, and how its tables' names begin."""


class SoftmaxModule(nn.Module):
    """What a checkpoint stores: the spectral table, the encoder of the learned part, the decoder and ComplEx's tables.

    Encoder and tables are there where the settings ask for them.
    """

    def __init__(
        self, table: SpectralTable, encoder: HGT | None, decoder: SoftmaxDecoder, factors: ComplEx | None = None
    ) -> None:
        super().__init__()
        self.table = table
        self.encoder = encoder
        self.decoder = decoder
        self.factors = factors


class HgtSoftmaxRecipe(HgtRecipe):
    """The same graph, steps and layers as :class:`HgtRecipe`; another loss, decoder, and vectors in two parts.

    An embedding is the spectral part [embedding_dim − learned_dim] and the learned one [learned_dim] side by side. The
    layers read the spectral part as a feature of every node. With ``model.complex_dim`` a phase of its own trains ComplEx
    on the same links, and its score is a part of a link's.
    """

    algorithm_version = 7

    def __init__(self, graph: TypedGraph, settings: HgtSettings, batching: str) -> None:
        super().__init__(graph, settings, batching)
        self.learned = settings.model.learned_dim
        self.width = settings.model.embedding_dim - self.learned
        self.entries = neighbourhoods(graph)
        self.sums = NeighbourSums.of_data(self.data)
        self._vectors: tuple[Tensor, SpectralVectors] | None = None
        self.complex: ComplexRecipe | None = None
        if settings.model.complex_dim:
            self.complex = ComplexRecipe(graph, complex_settings(settings), "full")
            own = self.complex.phases[0]
            training = self.complex.settings.training
            self.phases.append(Phase(COMPLEX, own.steps_per_epoch, own.batch_size, own.batch_size, training))

    # ---------------------------------------------------------------- model

    def build(self, execution: Execution) -> SoftmaxModule:  # type: ignore[override]
        """Initialised on the CPU from the seed; the spectral table is computed here."""
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
            factors=self.complex is not None,
        )
        return SoftmaxModule(table, encoder, decoder, self.complex.build(execution) if self.complex else None)

    def to(self, device: torch.device) -> None:
        """Graph, features and degrees to the device."""
        super().to(device)
        if self.complex is not None:
            self.complex.to(device)

    def parameter_groups(self, model: nn.Module, phase: Any) -> list[Any]:
        """As for any HGT; the decoder's few numbers a relation are not decayed, what does not train is left out."""
        if phase.name == COMPLEX:
            names, tables = zip(*((n, p) for n, p in model.named_parameters() if n.startswith(_FACTORS)), strict=True)
            return [ParameterGroup(list(names), list(tables), 0.0)]
        groups = super().parameter_groups(model, phase)
        trained = [
            (g, [i for i, p in enumerate(g.parameters) if p.requires_grad and not g.names[i].startswith(_FACTORS)])
            for g in groups
        ]
        kept = [
            type(g)([g.names[i] for i in rows], [g.parameters[i] for i in rows], g.decay) for g, rows in trained if rows
        ]
        return kept

    def row_keys(self, model: nn.Module) -> dict[str, tuple[str, list[str]]]:
        """The layers' input of spectral vectors means something in the basis of one graph's table alone."""
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
        """Spectral vectors of all nodes without the step's pairs (on the host), and what the layers learn of some."""
        if isinstance(batch, ComplexBatch):
            return None
        masked = np.zeros(max(self.graph.num_pairs, 1), dtype=bool)
        masked[batch.masked] = True
        spectral = torch.from_numpy(self.spectral(model).all(masked))
        encoder: HGT | None = model.encoder  # type: ignore[assignment]
        if encoder is None:
            return Encoded({"spectral": spectral})
        encoder.gradient_checkpointing = (
            self.settings.acceleration.gradient_checkpointing or self.execution.checkpointing
        )
        found = self._encoded(encoder, batch, self.inputs(encoder, spectral))
        return Encoded({**found.tensors, "spectral": spectral})

    def inputs(self, encoder: HGT, spectral: Tensor) -> dict[int, Tensor]:
        """Per type what its nodes are told: the data's features and the spectral vectors, side by side."""
        out = {}
        # One copy for all types, pinned where copies are: a copy a type would be a wait a type.
        placed = self._tensor(spectral.numpy())
        for number, t in enumerate(self.graph.node_types):
            parts = [self.features[number]] if number in self.features else []
            if self.width:
                parts.append(placed[t.offset : t.offset + t.count])
            if parts:
                out[number] = torch.cat([part.to(encoder.tables[number].dtype) for part in parts], 1)
        return out

    def spectral(self, model: nn.Module) -> SpectralVectors:
        """The vectors that are not trained, from the model's table."""
        table: SpectralTable = model.table  # type: ignore[assignment]
        # The columns follow from the table: made once, and anew when other weights were loaded.
        if self._vectors is None or not torch.equal(self._vectors[0], table.values):
            self._vectors = (table.values.clone(), SpectralVectors(self.entries, table))
        return self._vectors[1]

    def terms(self, model: nn.Module, chunk: HgtBatch, encoded: Encoded | None) -> list[Any]:
        """The mean over relations of the mean over links of −log softmax; in ComplEx's phase its own terms."""
        if self.complex is not None and isinstance(chunk, ComplexBatch):
            return list(self.complex.terms(model.factors, chunk, encoded))  # type: ignore[arg-type]
        assert encoded is not None
        if not len(chunk.relation):
            return []
        masked = np.zeros(max(self.graph.num_pairs, 1), dtype=bool)
        masked[chunk.masked] = True
        decoder: SoftmaxDecoder = model.decoder  # type: ignore[assignment]
        total = None
        with torch.autocast(self.device.type, enabled=False):
            for number in np.unique(chunk.relation).tolist():
                part = self._relation_sum(decoder, chunk, number, encoded, masked)
                total = part if total is None else total + part
        assert total is not None
        return [Term(LINK, total, float(chunk.share.sum()))]

    def _relation_sum(
        self, decoder: SoftmaxDecoder, chunk: HgtBatch, number: int, encoded: Encoded, masked: np.ndarray
    ) -> Tensor:
        r = self.data.relations[number]
        mine = np.flatnonzero(chunk.relation == number)
        first, last = np.searchsorted(chunk.candidate, [r.target_offset, r.target_offset + r.num_targets])
        candidate = chunk.candidate[first:last] - r.target_offset
        heads, tails = chunk.head[mine] - r.source_offset, chunk.tail[mine] - r.target_offset
        left = self._ends(encoded, number, heads, masked, sources=False)
        own = self._ends(encoded, number, tails, masked, sources=True)
        wrong = self._ends(encoded, number, candidate, masked, sources=True)
        right = decoder.pairs(number, left, own, self._tensor(chunk.tail_degree[mine]))
        scores = decoder(number, left, wrong, self.log_degree[number][self._tensor(candidate)])
        rows, known = self.sums.known(number, heads)
        place = np.searchsorted(candidate, known)
        hit = place < len(candidate)
        hit[hit] = candidate[place[hit]] == known[hit]
        # What is known to be right is no wrong answer; the asked target stands apart.
        barred = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
        barred[self._tensor(rows[hit]), self._tensor(place[hit])] = True
        scores = scores.masked_fill(barred, -torch.inf)
        losses = torch.logsumexp(torch.cat([right[:, None], scores], 1), 1) - right
        # In the scores' dtype already on the host: MPS has no float64.
        share = chunk.share[mine].astype(np.float64 if losses.dtype == torch.float64 else np.float32)
        return (losses * self._tensor(share)).sum()

    def _ends(self, encoded: Encoded, number: int, nodes: np.ndarray, masked: np.ndarray, *, sources: bool) -> Ends:
        """Nodes of a relation by their local numbers; ``sources``: they are its targets, whose sources are summed."""
        r = self.data.relations[number]
        spectral = encoded.tensors["spectral"].numpy()
        rows = nodes + (r.target_offset if sources else r.source_offset)
        learned = None
        if "z" in encoded.tensors:
            learned = encoded.tensors["z"][self._rows(rows, encoded.tensors.get("lookup"))] * self.learned_scale
        vectors = self._tensor(spectral[rows])
        if not (self.settings.model.neighbour_sums and self.width):
            return Ends(vectors, learned, vectors[:, :0], vectors.new_zeros(len(nodes)))
        sums, counts = self.sums.of(number, nodes, spectral, masked, sources=sources)
        return Ends(vectors, learned, self._tensor(sums), self._tensor(counts))

    @property
    def learned_scale(self) -> float:
        """What the encoder's rows are multiplied with to become the learned part of an embedding."""
        return float(LEARNED_LENGTH / max(self.learned, 1) ** 0.25)

    # ---------------------------------------------------------------- evaluation and export

    def scorer(self, model: nn.Module) -> SoftmaxScorer:  # type: ignore[override]
        """Scores from embeddings that are computed once, in eval mode, and their sums over all training edges."""
        vectors = np.concatenate([b.vectors for b in self.embeddings(model)])
        decoder: SoftmaxDecoder = model.decoder  # type: ignore[assignment]
        return SoftmaxScorer(vectors, self.width, decoder, self.sums, self.device, self.factors_of(model))

    def factors_of(self, model: nn.Module) -> Factors | None:
        """ComplEx's tables of nodes and of the graph's relations, if it has a part."""
        tables: ComplEx | None = model.factors  # type: ignore[assignment]
        if tables is None:
            return None
        relations = tables.relations[: len(self.data.relations)]
        nodes, own = (t.detach().float().cpu().numpy() for t in (tables.entities, relations))
        return nodes, own

    def fit_score(self, scorer: Any, queries: LinkQueries) -> None:
        """With ComplEx the parts' weights by relation, else how far vectors may overrule popularity."""
        if self.complex is None:
            super().fit_score(scorer, queries)
        else:
            fit_mix(scorer.decoder, scorer, queries, self.settings.training.seed)

    def scoring(self, model: nn.Module) -> dict[str, np.ndarray]:
        """What a score needs beside the exported vectors: :func:`graphmill.systems.hgt.softmax_scorer.scoring_arrays`."""
        return scoring_arrays(self.width, model.decoder, self.sums, self.factors_of(model))  # type: ignore[arg-type]

    def embeddings(self, model: nn.Module) -> Iterator[EmbeddingBlock]:
        """The spectral part, then the learned one, in chunks of nodes."""
        spectral = self.spectral(model).all()
        encoder: HGT | None = model.encoder  # type: ignore[assignment]
        if encoder is None:
            yield EmbeddingBlock(0, spectral)
            return
        inputs = self.inputs(encoder, torch.from_numpy(spectral))
        for chunk in infer(encoder, self.messages, inputs, self.settings.acceleration.inference_rows):
            start = self.graph.node_types[chunk.node_type].offset + chunk.start
            learned = (chunk.rows.float() * self.learned_scale).cpu().numpy()
            yield EmbeddingBlock(start, np.concatenate([spectral[start : start + len(learned)], learned], 1))

    def embed_later(self, model: nn.Module, later: LaterNodes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The projection of the new neighbourhoods beside what the layers make of the new nodes."""
        vectors = self.spectral(model)
        spectral = vectors.projected(neighbourhoods_of(later, self.data, self.entries))
        factors = self.factors_of(model)
        if factors is not None:
            factors = (grown_factors(later, self.graph, vectors.all(), spectral, factors[0]), factors[1])
        sums = grown_sums(later, self.sums, self.graph)
        scoring = scoring_arrays(self.width, model.decoder, sums, factors)  # type: ignore[arg-type]
        encoder: HGT | None = model.encoder  # type: ignore[assignment]
        if encoder is None:
            return spectral, scoring
        inputs = self.inputs(encoder, torch.from_numpy(vectors.all()))
        learned = learned_later(self, model, later, inputs, spectral) * np.float32(self.learned_scale)
        return np.concatenate([spectral, learned], 1), scoring

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """Message edges; in ComplEx's phase links."""
        if self.complex is not None and phase.name == COMPLEX:
            return self.complex.units_per_step(phase)
        return super().units_per_step(phase)

    def compilables(self, model: nn.Module) -> list[Compilable]:
        """The heads: dense and of fixed shapes."""
        encoder: HGT | None = model.encoder  # type: ignore[assignment]
        return [] if encoder is None else [Compilable(head, "forward") for head in encoder.heads]
