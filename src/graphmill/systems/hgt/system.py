"""HGT as the engine sees it: link prediction over all relations of a typed graph, with a contrastive term if asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.graph.attributes import SET
from graphmill.graph.later_nodes import LaterNodes, neighbourhoods_of
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.graph.spectral import SpectralVectors
from graphmill.graph.spectral import shortened as shortened_rows
from graphmill.graph.training_links import TrainingLinks
from graphmill.kernels.devices import writable_copy
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges
from graphmill.systems.base_system import BaseSystem
from graphmill.systems.hgt.batch import CONTRASTIVE, LINK, NEARLY_ALL, HgtBatch, round_up
from graphmill.systems.hgt.data import HgtData, StepVectors
from graphmill.systems.hgt.decoder import DecoderExport, HgtModule, LinkDecoder, scoring_of
from graphmill.systems.hgt.decoder import scorer_of as scorer_of
from graphmill.systems.hgt.inference import infer, layers_later
from graphmill.systems.hgt.losses import contrastive_sum, link_sum, softmax_sum
from graphmill.systems.hgt.memory import memory_parts as memory_parts
from graphmill.systems.hgt.model import HGT
from graphmill.systems.hgt.rank_messages import RankMessages, node_shards
from graphmill.systems.hgt.sampler import HgtSampler
from graphmill.systems.hgt.settings import INFERENCE_ROWS, SAMPLES, HgtSettings
from graphmill.training.contract import Compilable, EmbeddingBlock, Encoded, ParameterGroup, Phase, Term

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.training.processes import Ranks


class HgtSystem(BaseSystem[HgtModule]):
    """``batching`` is resolved (not "auto"). All that is random is keyed by ``settings.training.seed``.

    An embedding has two halves. With spectral inputs the first half are spectral vectors, which the layers also read as the
    last columns of each type's features, and the second is made by the layers; else the layers make both.
    """

    name = "hgt"
    embeds_from_features = True
    """A new node with features needs no edge."""
    algorithm_version = 12

    def __init__(self, graph: TypedGraph, settings: HgtSettings, batching: str) -> None:
        super().__init__(graph, settings)
        self.settings: HgtSettings = settings
        self.batching = batching
        self.data = HgtData(graph, settings.objective)
        self.sampler = HgtSampler(self.data, settings, batching)
        links = sum(self.sampler.links)
        self.phases = [Phase("train", settings.training.steps_per_epoch, links, links)]
        self.mine: RankMessages | None = None
        self.width = settings.model.spectral_width
        given = {number: graph.all_features(t.name) for number, t in enumerate(graph.node_types)}
        self.features = {
            n: writable_copy(np.asarray(rows, np.float32)) for n, rows in given.items() if rows is not None
        }
        self.links = TrainingLinks.of_graph(graph)
        self._vectors: tuple[Tensor, int, StepVectors] | None = None

    # ---------------------------------------------------------------- model

    def make_model(self) -> HgtModule:
        """The network."""
        m, data = self.settings.model, self.data
        widths = {n: self.width for n in range(len(self.graph.node_types)) if self.width}
        widths |= {n: rows.shape[1] + self.width for n, rows in self.features.items()}
        signs, of_reverses = data.signs(m.hidden_dim, self.settings.training.seed)
        encoder = HGT(
            [t.count for t in self.graph.node_types],
            [(r.source_type, r.target_type) for r in data.relations],
            m.hidden_dim,
            m.out_dim,
            m.num_layers,
            m.num_heads,
            m.dropout,
            widths,
            self.step_sizes.checkpointing,
            self.width,
            signs,
        )
        decoder = LinkDecoder(len(data.relations), m.embedding_dim)
        left, values = torch.zeros(self.graph.num_nodes, self.width), torch.zeros(self.width)
        if self.width:
            decoder.start_from(signs, of_reverses)
            vectors = SpectralVectors.of(data.entries, self.width, self.settings.training.seed & 0xFFFF_FFFF)
            left, values = torch.from_numpy(vectors.left), torch.from_numpy(vectors.values)
        return HgtModule(encoder, decoder, left, values)

    def to(self, device: torch.device) -> None:
        """Move graph and features to the device."""
        super().to(device)
        if "messages" in self.__dict__:
            self.messages = self.messages.on(device)
        if self.shards is not None and self.mine is None:
            self.mine = RankMessages(self.data, self.shards, self._bounds, device)
            self.features = {number: rows[self.held_rows(number)] for number, rows in self.features.items()}
        self.features = {number: rows.to(device) for number, rows in self.features.items()}
        self._vectors = None

    def shard(self, ranks: Ranks) -> None:
        """Divide the nodes of all types into one range per rank."""
        self.shards, self._bounds = node_shards(self.data, self.settings.model.hidden_dim, not self.width, ranks)

    def held_rows(self, number: int) -> slice:
        """The rows of a type that this process holds."""
        return slice(0, self.graph.node_types[number].count) if self.mine is None else self.mine.rank_rows[number]

    def parameter_groups(self, model: HgtModule, phase: Phase) -> list[ParameterGroup]:
        """Weight decay acts on the matrices of layers and heads, and on the relations' vectors (towards popularity alone).

        It does not act on tables, biases and gates.
        """
        return self.groups(model, lambda name, parameter: parameter.dim() >= 2 and ".tables." not in name)

    def row_keys(self, model: nn.Module) -> dict[str, tuple[str, list[str]]]:
        """Parameter name → (a label that is stable between graphs, its rows' keys), for ``init_from`` by node id.

        The basis of the spectral vectors goes with the weights that read them. Nodes that it lacks add nothing to it; their
        own vectors are sums over their neighbours.
        """
        nodes = self.graph.node_table()
        ids = nodes.column("id")
        types = [t.name for t in self.graph.node_types]
        relations = ["|".join(r.key) for r in self.graph.relations]
        out = {}
        for name, _ in model.named_parameters():
            parts = name.split(".")
            if ".tables." in name:
                t = self.graph.node_types[int(parts[-1])]
                out[name] = (f"table[{t.name}]", ids.slice(t.offset, t.count).to_pylist())
            elif parts[0] == "decoder" or parts[-1] in ("w_k", "w_v", "prior"):
                out[name] = (name, relations)
            elif parts[-1] == "skip":
                out[name] = (name, types)
            else:
                # Modules per node type have its number in their path: replace it by the type's name.
                per_type = [parts[i - 1] in _PER_TYPE for i in range(len(parts))]
                named = [
                    types[int(p)] if typed and p.isdigit() else p for p, typed in zip(parts, per_type, strict=True)
                ]
                out[name] = (".".join(named), [])
        if self.width:
            kinds = np.repeat(types, [t.count for t in self.graph.node_types])
            keys = [f"{kind} {node}" for kind, node in zip(kinds, ids.to_pylist(), strict=True)]
            out |= {"left": ("basis", keys), "values": ("singular values", [])}
        return out

    def reads_attributes(self) -> dict[str, tuple[str, int]]:
        """The projection of each type's features, in which sets stand side by side."""
        reading = {}
        for number, kind in enumerate(self.graph.node_types):
            sets = list(self.graph.feature_sets(kind.name))
            if SET in sets:
                before = [self.graph.features(kind.name, name) for name in sets[: sets.index(SET)]]
                first = sum(rows.shape[1] for rows in before if rows is not None)
                reading[f"encoder.features.{number}.weight"] = kind.name, first
        return reading

    # ---------------------------------------------------------------- a step

    def step(self, phase: Phase, epoch: int, index: int) -> HgtBatch:
        """The links, negatives, anchors and messages of one step."""
        return self.sampler.step(epoch, index)

    def encode(self, model: HgtModule, batch: HgtBatch) -> Encoded:
        """Embeddings of all nodes, or of the nodes that the loss reads and a lookup of their rows."""
        encoder = model.encoder
        encoder.gradient_checkpointing = self.checkpointing
        masked = torch.zeros(max(self.data.masks, 1), dtype=torch.bool, device=self.device)
        masked.index_fill_(0, self._tensor(batch.masked), True)
        spectral = self.spectral(model, masked)
        features = self.inputs(spectral)
        if batch.messages is not None:
            return self._encode_sample(encoder, batch, features, spectral)
        if self.mine is not None:
            z, nodes = self.mine.embedded(encoder, features, masked, batch)
            return self._encoded_rows(z, [_host(rows) for rows in self.data.by_type(nodes)], spectral)
        read = self._read_by_loss(batch)
        if read is None:
            return Encoded({"z": self._with_spectral(spectral, encoder(self.messages, features, masked))})
        z = encoder(self.messages, features, masked, None, self.placed(read))
        return self._encoded_rows(z, read, spectral)

    def embedded(self, model: HgtModule, masked: Tensor) -> Tensor:
        """[nodes, embedding_dim] without the messages and spectral entries that ``masked`` (bool [masks]) leaves out."""
        spectral = self.spectral(model, masked)
        return self._with_spectral(spectral, model.encoder(self.messages, self.inputs(spectral), masked))

    def spectral(self, model: HgtModule, masked: Tensor | None = None) -> Tensor | None:
        """fp32 [nodes, width] spectral vectors, without the links ``masked`` (bool [masks]); None without them."""
        return self.vectors(model).without(masked) if self.width else None

    def vectors(self, model: HgtModule) -> StepVectors:
        """The spectral vectors of the model's basis, made again after other weights are loaded."""
        left = model.left
        if self._vectors is None or self._vectors[0] is not left or self._vectors[1] != left._version:
            rows, values = (part.detach().float().cpu().numpy() for part in (left, model.values))
            made = StepVectors(SpectralVectors(self.data.entries, rows, values), self.device)
            self._vectors = left, left._version, made
        return self._vectors[2]

    def inputs(self, spectral: Tensor | None) -> dict[int, Tensor]:
        """The layers' input features per type: the data's features and the spectral vectors, side by side."""
        if spectral is None:
            return self.features
        out = {}
        for number, t in enumerate(self.graph.node_types):
            rows = spectral[t.offset : t.offset + t.count][self.held_rows(number)]
            features = self.features.get(number)
            out[number] = rows if features is None else torch.cat([features.to(rows.dtype), rows], 1)
        return out

    def _with_spectral(self, spectral: Tensor | None, rows: Tensor) -> Tensor:
        """Embeddings: ``spectral`` [n, width] and the layers' ``rows`` [n, out_dim] side by side."""
        return rows if spectral is None else torch.cat([spectral.to(rows.dtype), rows], 1)

    def _read_by_loss(self, batch: HgtBatch) -> list[Tensor] | None:
        """In ``full`` batching: the rows that the step's loss reads, per type; None if these are nearly all rows.

        They are the rows of the whole step, not of this process's part: every process encodes the same. Some rows that are
        not read are added, so that array sizes repeat from step to step and the heap can reuse its memory.
        """
        assert batch.read is not None
        rows = [
            round_up(part, t.count)
            for part, t in zip(self.data.by_type(batch.read), self.graph.node_types, strict=True)
        ]
        similar = self.data.similar
        if similar is not None:  # every node of the anchors' type is a candidate
            rows[similar.kind] = np.arange(similar.count)
        if sum(len(part) for part in rows) > NEARLY_ALL * self.graph.num_nodes:
            return None
        return [_host(part) for part in rows]

    def _encode_sample(
        self, encoder: HGT, batch: HgtBatch, features: Mapping[int, Tensor], spectral: Tensor | None
    ) -> Encoded:
        wanted = [_host(rows) for rows in self.data.by_type(batch.seeds())]
        assert batch.messages is not None
        messages = [_host(m) for m in batch.messages]
        similar = self.data.similar
        if similar is not None and len(batch.anchor):
            # The contrastive term's candidates: all nodes of the anchors' type that the sample touches.
            held = torch.zeros(similar.count, dtype=torch.bool)
            held[wanted[similar.kind]] = True
            held[self.messages.touched(messages, similar.kind)] = True
            wanted[similar.kind] = held.nonzero().squeeze(1)
        messages = self.messages.edges_within_reach(messages, wanted, len(encoder.layers))
        graph, rows = self.messages.edge_subgraph(messages, wanted)
        # After the last layer's messages, only what the loss reads is computed.
        needed = [torch.searchsorted(kept, some) for kept, some in zip(rows, wanted, strict=True)]
        placed = self.placed([*rows, *needed])
        every, chosen = placed[: len(rows)], placed[len(rows) :]
        z = encoder(graph, features, None, every, chosen)
        return self._encoded_rows(z, wanted, spectral)

    def _encoded_rows(self, z: Tensor, rows: list[Tensor], spectral: Tensor | None) -> Encoded:
        """Embeddings of some nodes (``rows``: local numbers per type, on the host), and each node's row in them (−1: none).

        ``z``: what the layers make of them.
        """
        lookup = torch.full((self.graph.num_nodes,), -1, dtype=torch.int64)
        nodes = torch.cat([r + t.offset for r, t in zip(rows, self.graph.node_types, strict=True)])
        lookup[nodes] = torch.arange(len(z))
        of_rows = None if spectral is None else spectral.index_select(0, self.placed([nodes])[0])
        return Encoded({"z": self._with_spectral(of_rows, z), "lookup": lookup})

    def terms(self, model: HgtModule, chunk: HgtBatch, encoded: Encoded | None) -> list[Term]:
        """The link term (mean over relations of the mean over links) and the contrastive term."""
        assert encoded is not None
        z, lookup = encoded.tensors["z"], encoded.tensors.get("lookup")
        w = self.settings.objective.contrast if self.data.similar is not None else 0.0
        out = []
        if len(chunk.relation):
            link = softmax_sum if self.settings.objective.loss == "softmax" else link_sum
            out.append(Term(LINK, link(self, model.decoder, chunk, z, lookup), 1.0 - w))
        if len(chunk.anchor):
            out.append(Term(CONTRASTIVE, contrastive_sum(self, chunk, z, lookup), w))
        return out

    # ---------------------------------------------------------------- evaluation and export

    def scorer(self, model: HgtModule) -> DecoderExport:
        """Scores from embeddings that are computed once, in eval mode, over all training edges."""
        vectors = np.concatenate([block.vectors for block in self.embeddings(model)])
        return DecoderExport(self.scoring(model), vectors).to(self.device)

    def scoring(self, model: HgtModule) -> dict[str, np.ndarray]:
        """What a score needs beside the exported vectors: :func:`graphmill.systems.hgt.decoder.scoring_of`."""
        return scoring_of(self, model)

    def health(self, model: HgtModule) -> dict[str, float]:
        """Participation ratio, mean cosine and the smallest within-type rank, from a seeded sample of rows."""
        z = np.concatenate([block.vectors for block in self.embeddings(model)])
        return self.health_of(z) | {"message_coverage": self.message_coverage()}

    def message_coverage(self) -> float:
        """Smallest share of a relation's edges that carry messages in a step (a check wants at least 0.7)."""
        if self.batching != "full":
            return 1.0
        masked = sorted_unique(self.step(self.phases[0], 0, 0).masked)
        return float(min(1.0 - in_sorted(r.mask, masked).mean() for r in self.data.relations if len(r.src)))

    def embeddings(self, model: HgtModule) -> Iterator[EmbeddingBlock]:
        """Computed layer by layer in chunks of targets; equal to the full forward pass."""
        with torch.no_grad():
            spectral = self.spectral(model)
            for start, rows in self._inferred(model.encoder, self.inputs(spectral)):
                of_rows = None if spectral is None else spectral[start : start + len(rows)]
                yield EmbeddingBlock(start, self._with_spectral(of_rows, rows.float()).cpu().numpy())

    def _inferred(self, encoder: HGT, features: Mapping[int, Tensor]) -> Iterator[tuple[int, Tensor]]:
        """The encoder's rows in eval mode, as (global number of the first row, consecutive rows)."""
        if self.mine is not None:
            yield 0, self.mine.whole(encoder, features)
            return
        for chunk in infer(encoder, self.messages, features, INFERENCE_ROWS):
            yield self.graph.node_types[chunk.node_type].offset + chunk.start, chunk.rows

    def embed_later(self, model: HgtModule, later: LaterNodes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """:meth:`graphmill.usage.embed.EmbedsLater.embed_later`: projected neighbourhoods, and one pass of the layers."""
        scoring = scoring_of(self, model, later)
        if not self.width:
            return layers_later(self, model, later, self.features), scoring
        vectors, new = self.vectors(model), neighbourhoods_of(later, self.graph, self.data.entries)
        spectral = shortened_rows(vectors.source.projected(new))
        inputs = self.inputs(vectors.without())
        return np.concatenate([spectral, layers_later(self, model, later, inputs, spectral)], 1), scoring

    def compilables(self, model: HgtModule) -> list[Compilable]:
        """Heads and decoder: dense and of fixed shapes. The attention is a kernel of its own."""
        return [Compilable(head, "forward") for head in model.encoder.heads] + [Compilable(model.decoder, "forward")]

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """Number of message edges."""
        if self.batching == "full":
            return "edges", float(sum(len(r.src) for r in self.data.relations))
        size = self.sampler.sample_size
        return "edges", float(sum(min(size, len(r.src)) for r in self.data.relations) * SAMPLES)

    @cached_property
    def messages(self) -> MessageGraph:
        """The message graph of all training edges."""
        edges = [TypedEdges(r.source_type, r.target_type, r.src, r.dst, r.mask) for r in self.data.relations]
        return MessageGraph.build([t.count for t in self.graph.node_types], edges).on(self.device)

    def placed(self, indices: Sequence[Tensor]) -> list[Tensor]:
        """Move index tensors from the host to the device, in one copy."""
        if self.device.type == "cpu":
            return list(indices)
        return list(self._tensor(torch.cat(list(indices)).numpy()).split([len(part) for part in indices]))


def _host(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


_PER_TYPE = ("projections", "outputs", "features", "heads")
