"""HGT as the engine sees it: link prediction over all relations plus a contrastive term, on a typed graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.queries import LinkQueries
from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.sorted_unique import in_sorted, sorted_unique
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges
from graphmill.kernels.losses import info_nce_sums, negative_link_loss, positive_link_loss
from graphmill.systems.base_system import BaseSystem
from graphmill.systems.copies import own_copy
from graphmill.systems.hgt.batch import CONTRASTIVE, FEW, LINK, NEARLY_ALL, HgtBatch, round_up
from graphmill.systems.hgt.data import HgtData
from graphmill.systems.hgt.decoder import HgtModule, LinkDecoder
from graphmill.systems.hgt.exported import scoring_of
from graphmill.systems.hgt.inference import infer
from graphmill.systems.hgt.later_nodes import learned_later
from graphmill.systems.hgt.model import HGT
from graphmill.systems.hgt.rank_messages import RankMessages, node_shards
from graphmill.systems.hgt.relation_strength import STRENGTH_QUERIES, fit_strength
from graphmill.systems.hgt.sampler import HgtSampler
from graphmill.systems.hgt.scorer import HgtScorer
from graphmill.systems.hgt.settings import INFERENCE_ROWS, HgtSettings
from graphmill.training.contract import Compilable, EmbeddingBlock, Encoded, Execution, ParameterGroup, Phase, Term

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.training.processes import Ranks


class HgtSystem(BaseSystem):
    """``batching`` is resolved (not "auto"). All that is random is keyed by ``settings.training.seed``."""

    name = "hgt"
    algorithm_version = 6

    def __init__(self, graph: TypedGraph, settings: HgtSettings, batching: str) -> None:
        super().__init__(graph, settings)
        self.settings: HgtSettings = settings
        self.batching = batching
        self.can_checkpoint = settings.model.num_layers > 0
        self.data = HgtData(graph, settings.objective)
        self.sampler = HgtSampler(self.data, settings, batching)
        links = sum(self.sampler.links)
        self.phases = [Phase("train", settings.training.steps_per_epoch, links, links)]
        self.mine: RankMessages | None = None
        self.chooses_score = settings.model.relation_strength and settings.model.popularity
        given = {number: graph.features(t.name) for number, t in enumerate(graph.node_types)}
        self.features = {n: own_copy(np.asarray(rows, np.float32)) for n, rows in given.items() if rows is not None}
        self.log_degree = [torch.from_numpy(np.log1p(r.degree).astype(np.float32)) for r in self.data.relations]

    # ---------------------------------------------------------------- model

    def build(self, execution: Execution) -> HgtModule:
        """Initialise on the CPU from the seed, so that every device and rank starts with the same weights."""
        m = self.settings.model
        encoder = self._encoder(execution, m.embedding_dim, {n: rows.shape[1] for n, rows in self.features.items()})
        return HgtModule(encoder, LinkDecoder(len(self.data.relations), m.embedding_dim, m.decoder, m.popularity))

    def _encoder(self, execution: Execution, width: int, features: dict[int, int]) -> HGT:
        self.seed_weights(execution)
        m, counts = self.settings.model, [t.count for t in self.graph.node_types]
        relations = [(r.source_type, r.target_type) for r in self.data.relations]
        sizes = m.hidden_dim, width, m.num_layers, m.num_heads, m.dropout
        return HGT(counts, relations, *sizes, m.layer_norm, features, execution.checkpointing, m.output_norm)

    def to(self, device: torch.device) -> None:
        """Move graph, features and degrees to the device."""
        super().to(device)
        if "messages" in self.__dict__:
            self.messages = self.messages.on(device)
        if self.shards is not None and self.mine is None:
            self.mine = RankMessages(self.data, self.shards, self._bounds, device)
            self.features = {number: rows[self.own_rows(number)] for number, rows in self.features.items()}
        self.features = {number: rows.to(device) for number, rows in self.features.items()}
        self.log_degree = [rows.to(device) for rows in self.log_degree]

    def shard(self, ranks: Ranks) -> None:
        """Divide the nodes of all types into one range per rank."""
        self.shards, self._bounds = node_shards(self.data, self.settings.model.hidden_dim, ranks)

    def own_rows(self, number: int) -> slice:
        """The rows of a type that this process holds."""
        return slice(0, self.graph.node_types[number].count) if self.mine is None else self.mine.own[number]

    def parameter_groups(self, model: nn.Module, phase: Phase) -> list[ParameterGroup]:
        """Weight decay acts on the matrices of layers and heads, and on the relations' vectors (towards popularity alone).

        It does not act on tables, biases, norms and gates.
        """
        groups: dict[float, tuple[list[str], list[nn.Parameter]]] = {}
        for name, parameter in model.named_parameters():
            decay = float(parameter.dim() >= 2 and ".tables." not in name)
            names, parameters = groups.setdefault(decay, ([], []))
            names.append(name)
            parameters.append(parameter)
        return [ParameterGroup(names, parameters, decay) for decay, (names, parameters) in groups.items() if names]

    def row_keys(self, model: nn.Module) -> dict[str, tuple[str, list[str]]]:
        """Parameter name → (a label that is stable between graphs, its rows' keys), for ``init_from`` by node id."""
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
                per_type = [parts[i - 1] in _PER_TYPE or parts[i - 2] == "norms" for i in range(len(parts))]
                named = [types[int(p)] if own and p.isdigit() else p for p, own in zip(parts, per_type, strict=True)]
                out[name] = (".".join(named), [])
        return out

    # ---------------------------------------------------------------- a step

    def step(self, phase: Phase, epoch: int, index: int) -> HgtBatch:
        """The links, negatives, anchors and messages of one step."""
        return self.sampler.step(epoch, index)

    def encode(self, model: nn.Module, batch: HgtBatch) -> Encoded:
        """Embeddings of all nodes, or of the nodes that the loss reads and a lookup of their rows."""
        return self._encoded(model.encoder, batch, self.features)  # type: ignore[arg-type]

    def _encoded(self, encoder: HGT, batch: HgtBatch, features: Mapping[int, Tensor]) -> Encoded:
        encoder.gradient_checkpointing = self.checkpointing
        if batch.messages is None:
            masked = torch.zeros(max(self.graph.num_pairs, 1), dtype=torch.bool, device=self.device)
            masked.index_fill_(0, self._tensor(batch.masked), True)
            if self.mine is not None:
                z, nodes = self.mine.embedded(encoder, features, masked, batch)
                return self._encoded_rows(z, [_host(rows) for rows in self.data.by_type(nodes)])
            read = self._read_by_loss(batch)
            if read is None:
                return Encoded({"z": encoder(self.messages, features, masked)})
            # An accelerator would wait for the cut of the graph to the receivers that are read.
            on_cpu = self.device.type == "cpu"
            few = on_cpu and sum(len(rows) for rows in read) < FEW * self.graph.num_nodes
            wanted = self._placed(read)
            return self._encoded_rows(encoder(self.messages, features, masked, None, wanted, few), read)
        return self._encode_sample(encoder, batch, features)

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

    def _encode_sample(self, encoder: HGT, batch: HgtBatch, features: Mapping[int, Tensor]) -> Encoded:
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
        # The last layer (on the CPU) and the heads compute only what the loss reads.
        needed = [torch.searchsorted(kept, some) for kept, some in zip(rows, wanted, strict=True)]
        placed = self._placed([*rows, *needed])
        own, chosen = placed[: len(rows)], placed[len(rows) :]
        return self._encoded_rows(encoder(graph, features, None, own, chosen, self.device.type == "cpu"), wanted)

    def _encoded_rows(self, z: Tensor, rows: list[Tensor]) -> Encoded:
        """``z`` of some nodes (``rows``: local numbers per type, on the host), and each node's row in it (−1: none)."""
        lookup = torch.full((self.graph.num_nodes,), -1, dtype=torch.int64)
        nodes = torch.cat([r + t.offset for r, t in zip(rows, self.graph.node_types, strict=True)])
        lookup[nodes] = torch.arange(len(z))
        return Encoded({"z": z, "lookup": lookup})

    def terms(self, model: nn.Module, chunk: HgtBatch, encoded: Encoded | None) -> list[Any]:
        """The link term (mean over relations of the mean over links) and the contrastive term."""
        assert encoded is not None
        z, lookup = encoded.tensors["z"], encoded.tensors.get("lookup")
        w = self.settings.objective.contrast if self.data.similar is not None else 0.0
        out = []
        if len(chunk.relation):
            share = float(chunk.share.sum())
            out.append(Term(LINK, self._link_sum(model.decoder, chunk, z, lookup), share, 1.0 - w))  # type: ignore[arg-type]
        if len(chunk.anchor):
            out.append(Term(CONTRASTIVE, self._contrastive_sum(chunk, z, lookup), float(len(chunk.anchor)), w))
        return out

    def _link_sum(self, decoder: LinkDecoder, chunk: HgtBatch, z: Tensor, lookup: Tensor | None) -> Tensor:
        exists = chunk.negative >= 0
        # Where no wrong target was found, the right one takes its place with weight 0.
        targets = np.column_stack([chunk.tail, np.where(exists, chunk.negative, chunk.tail[:, None])])
        degrees = np.column_stack([chunk.tail_degree, chunk.negative_degree])
        ends = (chunk.head, targets)
        places = ends if lookup is None else [lookup.numpy()[nodes] for nodes in ends]
        heads, tails, relation, degree, share, there = self._tensors(
            *places, chunk.relation, degrees, chunk.share.astype(np.float32), exists
        )
        scores = decoder(z, heads, relation, tails, degree)
        wrong = (negative_link_loss(scores[:, 1:]) * there).mean(1)
        return ((positive_link_loss(scores[:, 0]) + wrong) * share).sum()

    def _contrastive_sum(self, chunk: HgtBatch, z: Tensor, lookup: Tensor | None) -> Tensor:
        similar = self.data.similar
        assert similar is not None
        own, columns = chunk.anchor - similar.first, chunk.positive - similar.first
        if lookup is None:
            candidates = z[similar.first : similar.first + similar.count]
        else:
            # A sample's candidates are the nodes of the anchors' type that it holds.
            inside = lookup[similar.first : similar.first + similar.count]
            held = (inside >= 0).nonzero().squeeze(1)
            candidates = z[self._placed([inside[held]])[0]]
            own, columns = (np.searchsorted(held.numpy(), nodes) for nodes in (own, columns))
        rows = np.repeat(np.arange(len(chunk.anchor)), np.diff(chunk.positive_indptr))
        mine, anchor, positive = self._tensors(own, rows, columns)
        anchors = candidates.index_select(0, mine)
        return info_nce_sums(anchors, candidates, mine, anchor, positive, self.settings.objective.temperature)

    # ---------------------------------------------------------------- evaluation and export

    def scorer(self, model: nn.Module) -> HgtScorer:
        """Scores from embeddings that are computed once, in eval mode, over all training edges."""
        return HgtScorer(self, model)

    def scoring(self, model: nn.Module) -> dict[str, np.ndarray]:
        """What a score needs beside the exported vectors: :func:`graphmill.systems.hgt.exported.scoring_of`."""
        return scoring_of(self, model)

    def evaluate(self, model: nn.Module, split: str, *, final: bool, poll: Callable[[], None]) -> dict[str, float]:
        """Filtered link ranking, macro over relations: ``mrr``, ``hits@k``, ...

        On validation links during training, :meth:`fit_score` runs first if the score is fitted to held-out links, so that a
        checkpoint holds the fit for its own weights. ``test`` and final figures use that fit.
        """
        limit = 0 if final else self.settings.evaluation.max_queries
        scorer = self.scorer(model)
        scorer.poll = poll
        if split == "valid" and not final and self.chooses_score:
            self.fit_score(scorer, self.queries_of(split, min(limit or STRENGTH_QUERIES, STRENGTH_QUERIES)))
        ranking = rank_links(scorer, self.queries_of(split, limit), ks=tuple(self.settings.evaluation.top_k))
        return self.measured(ranking.macro, final=final)

    def fit_score(self, scorer: Any, queries: LinkQueries) -> None:
        """Fit to held-out links how far each relation's vectors may overrule popularity."""
        fit_strength(scorer.decoder, scorer, queries)

    def health(self, model: nn.Module) -> dict[str, float]:
        """Participation ratio, mean cosine and the smallest within-type rank, from a seeded sample of rows."""
        z = np.concatenate([block.vectors for block in self.embeddings(model)])
        return self.health_of(z) | {"message_coverage": self.message_coverage()}

    def message_coverage(self) -> float:
        """Smallest share of a relation's edges that carry messages in a step (a check wants at least 0.7)."""
        if self.batching != "full":
            return 1.0
        masked = sorted_unique(self.step(self.phases[0], 0, 0).masked)
        return float(min(1.0 - in_sorted(r.pair, masked).mean() for r in self.data.relations if len(r.src)))

    @property
    def rotation_keeps_scores(self) -> bool:
        """Whether rotated embeddings have the same scores: a dot product's do, DistMult's weights of the axes do not."""
        return self.settings.model.decoder == "dot"

    def embeddings(self, model: nn.Module) -> Iterator[EmbeddingBlock]:
        """Computed layer by layer in chunks of targets; equal to the full forward pass."""
        for start, rows in self._inferred(model.encoder, self.features):  # type: ignore[arg-type]
            yield EmbeddingBlock(start, rows.float().cpu().numpy())

    def _inferred(self, encoder: HGT, features: Mapping[int, Tensor]) -> Iterator[tuple[int, Tensor]]:
        """The encoder's embeddings in eval mode, as (global number of the first row, consecutive rows)."""
        if self.mine is not None:
            yield 0, self.mine.whole(encoder, features)
            return
        for chunk in infer(encoder, self.messages, features, INFERENCE_ROWS):
            yield self.graph.node_types[chunk.node_type].offset + chunk.start, chunk.rows

    def embed_later(self, model: nn.Module, later: LaterNodes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """:meth:`graphmill.usage.embed.EmbedsLater.embed_later`."""
        return learned_later(self, model, later, self.features), scoring_of(self, model, later)

    def compilables(self, model: nn.Module) -> list[Compilable]:
        """Heads and decoder: dense and of fixed shapes. The attention is a kernel of its own."""
        encoder: HGT = model.encoder  # type: ignore[assignment]
        return [Compilable(head, "forward") for head in encoder.heads] + [Compilable(model.decoder, "forward")]

    def units_per_step(self, phase: Phase) -> tuple[str, float]:
        """Number of message edges."""
        if self.batching == "full":
            return "edges", float(sum(len(r.src) for r in self.data.relations))
        sampling = self.settings.sampling
        size = max(sampling.edge_sample_size // sampling.accumulation_steps, 1)
        return "edges", float(sum(min(size, len(r.src)) for r in self.data.relations) * sampling.accumulation_steps)

    @cached_property
    def messages(self) -> MessageGraph:
        """The message graph of all training edges."""
        edges = [TypedEdges(r.source_type, r.target_type, r.src, r.dst, r.pair) for r in self.data.relations]
        return MessageGraph.build([t.count for t in self.graph.node_types], edges).on(self.device)

    def _placed(self, indices: Sequence[Tensor]) -> list[Tensor]:
        """Move index tensors from the host to the device, in one copy."""
        if self.device.type == "cpu":
            return list(indices)
        return list(self._tensor(torch.cat(list(indices)).numpy()).split([len(part) for part in indices]))


def _host(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


_PER_TYPE = ("projections", "outputs", "features", "heads")
