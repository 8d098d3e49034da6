"""The planner's formulas for HGT: memory and work of a step, from the graph's degrees and the settings.

Nothing is sampled or trained. ``expected_sizes.py`` gives the sizes of a step. The formulas follow model.py,
kernels/hgt/relations.py, cpu/jobs.py and cpu/passes.py line by line. A change in what these keep for the backward pass
needs a change here (docs/explanation/memory_planning.md, ``python -m benchmarks.hgt --only estimate``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphmill.graph.typed_graph import TypedGraph
from graphmill.kernels.devices import ACCELERATOR_BYTES
from graphmill.kernels.hgt.projected import group_count
from graphmill.systems.hgt.complex_part import with_complex
from graphmill.systems.hgt.expected_sizes import Degrees, Layer, Pass, degrees_of, pass_of
from graphmill.systems.hgt.link_scores import BLOCK_BYTES
from graphmill.systems.hgt.settings import HgtSettings
from graphmill.systems.hgt.softmax_cost import (
    decoder_numbers,
    learned_width,
    ranked_sums,
    softmax_bytes,
    softmax_flop,
    softmax_held,
    spectral_width,
)
from graphmill.training.contract import Execution
from graphmill.training.device import allowed_cores, choose_device
from graphmill.training.planning import Cost, ranking_bytes

_WIDE = 4  # bytes of fp32


def step_cost(graph: TypedGraph, settings: HgtSettings, batching: str, execution: Execution, precision: str) -> Cost:
    """The cost of one process that trains these settings in ``full``, ``edge_sampled`` or ``neighbor_sampled`` batching."""
    m = settings.model
    counts = np.array([t.count for t in graph.node_types], float)
    degrees = degrees_of(graph)
    anchor_type = next((n for n, t in enumerate(graph.node_types) if t.name == settings.objective.contrastive_type), -1)
    one, repeats = pass_of(batching, settings, counts, degrees, anchor_type)
    features = {n: r.shape[1] for n, t in enumerate(graph.node_types) if (r := graph.features(t.name)) is not None}
    if spectral := spectral_width(settings):
        features = {n: features.get(n, 0) + spectral for n in range(len(counts))}
    weights = _weights(settings, counts, degrees, features)
    edges = sum(r.edges for r in degrees)
    # Measured: 80 bytes per edge. They hold the edges for supervision and filters (src, dst, pair, key, order), the edges
    # for messages (source, target, pair), what making these leaves behind, and the pages of the graph's own files.
    # On a CPU the edges are also kept per type, sorted by target and by source.
    per_edge = 108 if _on_cpu(settings) else 80
    held = int(edges * per_edge + 24 * counts.sum() + sum(counts[n] * f * _WIDE for n, f in features.items()))
    if settings.objective.loss == "softmax":
        held += int(softmax_held(settings, counts, degrees))
    width = m.hidden_dim * _WIDE
    chunks = max(execution.loss_chunks, 1) if batching == "full" else 1
    flop, relation_flop = _flop(settings, one, execution.checkpointing)
    table = int(counts.sum() * width) if batching != "full" else 0
    ranking = max(ranking_bytes(r.held_out, counts[r.target_type]) for r in degrees)
    cost = Cost(
        weights=weights,
        held=held,
        step=int(_step_bytes(settings, one, execution.checkpointing, precision, chunks, batching)) + table,
        gradients=weights if batching != "full" else 0,
        evaluation=int(_inference_bytes(settings, counts, degrees) + ranked_sums(settings, counts, degrees) + ranking),
        flop=(flop + relation_flop + softmax_flop(settings, one, counts, degrees)) * repeats,
        low_flop=flop * repeats if precision != "fp32" else 0.0,
        moved=_moved(settings, one, chunks, batching, counts) * repeats,
        calls=repeats
        * (400.0 + len(degrees) * m.num_layers * 300.0 + len(counts) * 200.0)
        * (1 + execution.checkpointing),
        ragged=batching != "full",
    )
    return with_complex(cost, graph, settings, execution, precision) if settings.complex_width else cost


# -- memory -----------------------------------------------------------------------------------------------------------------


def _weights(settings: HgtSettings, counts: np.ndarray, degrees: Sequence[Degrees], features: dict[int, int]) -> int:
    m = settings.model
    d, e, types = m.hidden_dim, learned_width(settings), len(counts)
    sources, targets = {r.source_type for r in degrees}, {r.target_type for r in degrees}
    per_type = (2 * len(targets) + 2 * len(sources)) * (d * d + d) + types * (1 + 2 * d * m.layer_norm)
    layer = per_type + len(degrees) * (2 * d * (d // m.num_heads) + m.num_heads)
    heads = types * (d * e + e + e * e + e)
    rest = len(degrees) * decoder_numbers(settings) + sum(f * d + d for f in features.values())
    if not e:  # nothing is learned but the decoder
        return _WIDE * len(degrees) * decoder_numbers(settings)
    return int(_WIDE * (counts.sum() * d + m.num_layers * layer + heads + rest))


def _step_bytes(
    settings: HgtSettings, one: Pass, checkpointing: bool, precision: str, chunks: int, batching: str
) -> float:
    """Bytes at the higher of two moments: in the loss, and in the backward pass of a layer's attention."""
    m = settings.model
    low = _WIDE if precision == "fp32" else 2
    width, out = m.hidden_dim, float(one.outputs.sum()) * learned_width(settings) * low
    saved, inputs, messages, attention = [], [], [], []
    threads = _threads(settings)
    wholes = [
        batching == "neighbor_sampled" or (batching == "edge_sampled" and n + 1 == len(one.layers))
        for n in range(len(one.layers))
    ]
    for layer, whole in zip(one.layers, wholes, strict=True):
        read, computed = float(layer.read.sum()), float(layer.computed.sum())
        projected = (computed + 2 * read) * width
        # q, k, v, message and y are in the products' precision. Skip, norm and the next layer's input are in fp32.
        # Dropout's mask takes one byte.
        after = computed * width * (3 * _WIDE + (1 if m.dropout else _WIDE))
        # Accelerators use torch's dense operators, which keep the logits.
        logits = 0.0 if checkpointing or _on_cpu(settings) else float(layer.edges.sum()) * m.num_heads * _WIDE
        saved.append(projected * low + 2 * computed * width * low + after + logits)
        inputs.append(computed * width * _WIDE)
        messages.append(computed * width * low)
        roomy = low < _WIDE and not checkpointing
        groups = 1 if whole else group_count(int(read), m.num_heads, width // m.num_heads, threads, roomy)
        # For one group of heads: the gradients of q, k, v in fp32, their cast, and q, k, v where they are recomputed.
        # For all heads: the gradients of message, input and skip.
        own = projected / groups * (_WIDE + (low if low < _WIDE else 0) + (low if checkpointing else 0))
        kept_rows = 0.0 if checkpointing else projected * low
        work = _workspace(settings, layer)
        attention.append(kept_rows + own + computed * width * (2 * low + 2 * _WIDE) + work)
    first_read = one.layers[0].read if one.layers else one.outputs
    gathered = float(first_read.sum()) * width * _WIDE if batching != "full" else 0.0
    kept = saved
    if checkpointing:  # a layer that computes only some receivers is recomputed as a whole
        kept = [i if whole else i + j for i, j, whole in zip(inputs, messages, wholes, strict=True)]
    # Both stages of the heads, the norm's input, z, its gradient, what one gather's backward fills, and a sum.
    loss = sum(kept) + (7 if m.output_norm else 6) * out + _loss_bytes(settings, one, chunks, precision)
    backward = 0.0
    for number in range(len(one.layers)):
        # All that is recomputed is in memory before any of it can be freed.
        whole = checkpointing and wholes[number]
        again = saved[number] + inputs[number] if whole else attention[number] + 2 * inputs[number] * checkpointing
        backward = max(backward, sum(kept[:number]) + again)
    return gathered + max(loss, 2 * out + backward)


def _inference_bytes(settings: HgtSettings, counts: np.ndarray, degrees: Sequence[Degrees]) -> float:
    """Bytes to compute all embeddings, layer by layer (``systems/hgt/inference.py``).

    For all nodes: a layer's input, keys, values and result. For one chunk of receivers: queries, sums, messages, what is
    computed from these, and a relation's sources side by side.
    """
    m, rows = settings.model, settings.acceleration.inference_rows
    width = m.hidden_dim * _WIDE
    sizes = np.array([[r.edges, np.count_nonzero(r.outgoing), np.count_nonzero(r.incoming)] for r in degrees], float)
    share = np.array([min(1.0, rows / max(counts[r.target_type], 1.0)) for r in degrees])
    edges, sources, targets = sizes[:, 0] * share, sizes[:, 1], sizes[:, 2] * share
    chunk = Layer(counts, counts, edges, np.minimum(sources, edges), targets)
    # There is no backward pass: half of its workspace, without the gradients.
    beside = min(rows, counts.max(initial=0.0)) * 6 * width + _workspace(settings, chunk) / 2
    return float(counts.sum() * max(4 * width, width + 2 * learned_width(settings) * _WIDE) + beside)


def _threads(settings: HgtSettings) -> int:
    return settings.acceleration.threads or max(1, allowed_cores() // settings.acceleration.processes)


def _on_cpu(settings: HgtSettings) -> bool:
    return choose_device(settings.acceleration.device, allow_fallback=True).device.type == "cpu"


def _links_in_blocks(settings: HgtSettings) -> bool:
    """Whether links are scored in blocks (:mod:`~graphmill.systems.hgt.link_scores`); torch.compile scores all at once."""
    return settings.acceleration.compile == "off"


def _workspace(settings: HgtSettings, layer: Layer) -> float:
    """Bytes in the backward pass. One pass on the CPU: the largest relation's sources and their gradients, for one head per
    thread. Torch's sparse operators: what all relations send in one head, its gradients, and five numbers per edge (an
    upper bound: one type at a time). Dense operators on an accelerator: such rows and numbers, for all heads."""
    if not len(layer.edges):
        return 0.0
    heads, width = settings.model.num_heads, settings.model.hidden_dim
    if _on_cpu(settings):
        return float((2.0 + 2.0 / heads) * layer.sources.sum() * width + 5.0 * layer.edges.sum()) * _WIDE
    rows = np.minimum(layer.sources, layer.edges).sum()
    return float(7.0 * rows * width + 5.0 * layer.edges.sum() * heads) * _WIDE


def _loss_bytes(settings: HgtSettings, one: Pass, chunks: int, precision: str) -> float:
    e, o = learned_width(settings), settings.objective
    if o.loss == "softmax":
        return softmax_bytes(settings, one, chunks, _on_cpu(settings))
    # Gathered heads, tails and relation vectors, their products and gradients, for positives and each negative. If scored
    # in blocks: the links' numbers and the scores.
    in_blocks = _links_in_blocks(settings)
    scores, per_score = one.links / chunks * (1 + o.negatives_a_link), 64 if in_blocks else 6 * e * _WIDE
    # Half-precision embeddings are scored as an fp32 copy, which has an fp32 gradient.
    copies = float(one.outputs.sum()) * e * 2 * _WIDE if in_blocks and precision != "fp32" else 0.0
    block = min(scores * e * _WIDE, BLOCK_BYTES if _on_cpu(settings) else ACCELERATOR_BYTES) if in_blocks else 0.0
    links = copies + scores * per_score + 4 * block
    similar = float(one.outputs.max(initial=0.0)) if one.anchors else 0.0
    contrastive = one.anchors / chunks * similar * 5 * _WIDE + similar * e * 3 * _WIDE
    return max(links, contrastive)


# -- time --------------------------------------------------------------------------------------------------------------


def _flop(settings: HgtSettings, one: Pass, checkpointing: bool) -> tuple[float, float]:
    """FLOP of the dense products (types and heads), and of the relations' products, which stay in fp32."""
    m = settings.model
    d, e = m.hidden_dim, learned_width(settings)
    forward = relation = 0.0
    for layer in one.layers:
        forward += 2.0 * d * d * (2 * float(layer.computed.sum()) + 2 * float(layer.read.sum()))
        relation += 2.0 * 2 * d * (d // m.num_heads) * float(layer.sources.sum())
    heads = 2.0 * float(one.outputs.sum()) * (d * e + e * e)
    contrastive = 2.0 * one.anchors * float(one.outputs.max(initial=0.0)) * e if one.anchors else 0.0
    again = 1 if checkpointing else 0
    # Forward and both gradients. The backward pass of the relations repeats their two products.
    return forward * (3 + again) + 3 * (heads + contrastive), relation * (4 + again)


def _moved(settings: HgtSettings, one: Pass, chunks: int, batching: str, counts: np.ndarray) -> float:
    m = settings.model
    d, out = m.hidden_dim, float(one.outputs.sum()) * learned_width(settings) * _WIDE
    total = 0.0
    per_node, per_edge = 40, 14  # rows per node and per edge of a relation that operations hand on
    for layer in one.layers:
        rows, occurring = float(layer.computed.sum()), float((layer.sources + layer.targets).sum())
        total += (42 * rows + per_node * occurring + per_edge * float(layer.edges.sum())) * d * _WIDE
    # In the backward pass each gather from the embeddings fills an array of their size and adds it. Links that are scored
    # in blocks add to the array that exists.
    in_blocks = _links_in_blocks(settings)
    gathers = (chunks if one.anchors else 0) + (1 if in_blocks else chunks)
    per_row = 4 if in_blocks else 6
    links = one.links * per_row * (1 + settings.objective.negatives_a_link) * learned_width(settings) * _WIDE
    contrastive = one.anchors * float(one.outputs.max(initial=0.0)) * 16 * _WIDE
    tables = counts.sum() * d * _WIDE * 6 if batching != "full" else 0.0
    return total + out * (20 + 4 * gathers) + links + contrastive + tables
