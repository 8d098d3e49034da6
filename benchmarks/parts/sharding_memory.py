"""Memory and bytes of a training whose tables are divided by rows, on a made-up graph of PrimeKG's size, tables of 512.

Called by ``python -m benchmarks.large sharding``. Each training runs in fresh processes through the worker, evaluation,
final figures and checkpoints included, and every rank says its own peak.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parts.card import ROOT, Row, row

os.environ.setdefault("OMP_NUM_THREADS", "1")  # all its figures are of one thread


NODES, EDGES, WIDTH = 129_375, 8_100_498, 512
"""PrimeKG's nodes and directed edges; here half of them are users, half items, or a third entities."""
LAYERS, STEPS = 2, 2
HELD_OUT = 200
"""Pairs of either held-out split: ranking them is not what is measured."""
MIB = 1 << 20


def build(folder: Path, system: str, scale: float) -> None:
    """The graph, in a process of its own: every pair is an edge in both directions."""
    import pyarrow as pa

    from benchmarks.parts.made_up_graphs import ends, nodes
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings

    if system == "hgt":
        typed(folder, int(NODES * scale), int(EDGES * scale))
        return
    rng = np.random.default_rng(0)
    total_nodes, total = int(NODES * scale), int(EDGES * scale) // 2
    entities = 0 if system == "lightgcn" else total_nodes // 3
    users = (total_nodes - entities) // 2
    items = total_nodes - entities - users
    pairs = total if not entities else total // 2
    key = np.unique(rng.integers(0, users, pairs) * items + ends(rng, items, pairs))
    head, tail = key // items, users + key % items
    split = np.zeros(len(key), np.uint8)
    split[rng.choice(len(key), 2 * HELD_OUT, replace=False)] = np.repeat([1, 2], HELD_OUT)
    kinds, names = np.zeros(len(key), np.int32), ["interacted"]
    if entities:
        facts = np.unique(rng.integers(0, items, total - pairs) * entities + ends(rng, entities, total - pairs))
        head = np.concatenate((head, users + facts // entities))
        tail = np.concatenate((tail, users + items + facts % entities))
        split = np.concatenate((split, np.zeros(len(facts), np.uint8)))
        kinds = np.concatenate((kinds, 1 + (facts % 9).astype(np.int32)))
        names += [f"f{number}" for number in range(9)]
    relation = pa.DictionaryArray.from_arrays(pa.array(kinds), pa.array(names))
    columns = {"relation": relation, "display_relation": relation, "head": pa.array(head, pa.int32())}
    table = pa.table(columns | {"tail": pa.array(tail, pa.int32()), "split": pa.array(split)})
    counts = {"user": users, "item": items} | ({"entity": entities} if entities else {})
    build_graph(nodes(counts), table, GraphSettings(add_reverse="never"), folder / system)


def typed(folder: Path, total: int, edges: int) -> None:
    """Five types and ten relations, each in both directions."""
    import pyarrow as pa

    from benchmarks.parts.made_up_graphs import ends, nodes
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings

    rng, relations = np.random.default_rng(0), 10
    counts = {f"t{n}": int(total * share) for n, share in enumerate((0.3, 0.25, 0.2, 0.15, 0.1))}
    first = np.concatenate(([0], np.cumsum(list(counts.values()))))
    heads, tails = [], []
    for number in range(relations):
        s, t = number % 5, (number + number // 5) % 5
        size = edges // 2 // relations
        heads.append(ends(rng, counts[f"t{s}"], size) + first[s])
        tails.append(rng.integers(0, counts[f"t{t}"], size) + first[t])
    kinds = np.repeat(np.arange(relations, dtype=np.int32), [len(part) for part in heads])
    head, tail = np.concatenate(heads), np.concatenate(tails)
    kept = head != tail
    names = [f"r{number}" for number in range(relations)]
    relation = pa.DictionaryArray.from_arrays(pa.array(kinds[kept]), pa.array(names))
    columns = {"relation": relation, "display_relation": relation, "head": pa.array(head[kept], pa.int32())}
    settings = GraphSettings.model_validate({"split": {"valid": 1e-4, "test": 1e-4}})
    build_graph(nodes(counts), pa.table(columns | {"tail": pa.array(tail[kept], pa.int32())}), settings, folder / "hgt")


def settings_of(folder: Path, system: str, world: int) -> dict[str, Any]:
    """A short training: two steps, an evaluation, the final figures."""
    model: dict[str, Any] = {"embedding_dim": WIDTH, "num_layers": LAYERS}
    if system == "kgat":
        model = {"embedding_dim": WIDTH, "layer_dims": [64, 32]}
    more: dict[str, Any] = {}
    if system == "hgt":
        model = {"hidden_dim": WIDTH, "embedding_dim": WIDTH, "num_layers": LAYERS}
        more = {
            "objective": {"loss": "link_contrastive", "contrastive_weight": 0.0},
            "sampling": {"edge_sample_size": 50},
        }
    shares = {"processes": world, "sharding": "rows"} if world > 1 else {}
    return {
        "system": system,
        "data": str(folder / system),
        "preset": "none",
        "model": model,
        "training": {"epochs": 1, "steps_per_epoch": STEPS},
        "acceleration": {
            "device": "cpu", "batching": "full", "micro_batches": 4, **shares,
        },
        "evaluation": {"baselines": []},
        **more,
    }  # fmt: skip


def train(folder: Path, system: str, out: Path, *, steps_alone: bool = False) -> None:
    """One rank: the training, and what it took; with ``steps_alone`` it ends after its steps, without an evaluation."""
    from tests.training.sharding_program import batch_rows, rows_read

    from graphmill.runs import train as worker
    from graphmill.training import engine
    from graphmill.training.processes import Ranks

    steps: list[tuple[int, int, int, float]] = []
    compute = engine.compute_gradient  # type: ignore[attr-defined]
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), os.environ.get("RANK", "0")

    def counted(*arguments: Any, **options: Any) -> Any:
        ranks: Ranks = options["ranks"]
        sent, began = ranks.bytes_exchanged, time.perf_counter()
        with batch_rows() as wanted:
            result = compute(*arguments, **options)
        read = rows_read(arguments[0]) if ranks.world > 1 else 0
        steps.append((ranks.bytes_exchanged - sent, sum(wanted), read, time.perf_counter() - began))
        return result

    def end(*_: Any) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        sent, wanted, read, seconds = max(steps[1:])  # the phase that sends most: of KGAT's the one of interactions
        result = {"peak": peak, "sent": sent, "asked": wanted, "read": read, "seconds": seconds}
        (out / f"{rank}.json").write_text(json.dumps(result))
        sys.stdout.flush()
        os._exit(0)

    def end_together(running: Any) -> None:
        running.ranks.barrier()
        time.sleep(2.0)  # the other may still read what this one has sent
        end()

    engine.compute_gradient = counted  # type: ignore[attr-defined]
    if steps_alone:
        engine.Engine._evaluate = end_together  # type: ignore[assignment, method-assign]
    splits = (
        () if system == "hgt" else worker.SPLITS
    )  # its final figures take as long again, and no more than those before
    worker.train(settings_of(folder, system, world), "benchmark", root=str(out / "runs"), splits=splits)
    end()


def _run(folder: Path, system: str, world: int, *, steps_alone: bool = False) -> list[dict[str, float]]:
    out = Path(tempfile.mkdtemp(dir=folder))
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"] if world > 1 else []
    program = ["-m", "benchmarks.large", "sharding", "--train", system, str(folder), str(out)]
    more = ["--bytes-alone"] if steps_alone else []
    command = [sys.executable, *torchrun, *program, *more]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(world)]


def measured(systems: list[str], scale: float, *, bytes_alone: bool = False) -> list[Row]:
    """Peak memory of one process and of each of two ranks; the bytes of a step beside those of ADR 2's model.

    ``scale``: below 1 for a trial of the program. ``bytes_alone``: only the bytes, by two ranks that end after their steps.
    """
    nodes = int(NODES * scale)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for system in systems:
            command = [sys.executable, "-m", "benchmarks.large", "sharding", "--build", system, str(folder), str(scale)]
            subprocess.run(command, check=True, cwd=ROOT)
            two = _run(folder, system, 2, steps_alone=bytes_alone)
            what = f"{system}, {nodes:,} nodes, {EDGES * scale / 1e6:.1f} million edges, tables of {WIDTH}, 2 ranks by rows"
            rows.append(_sent(what, system, nodes, two))
            if bytes_alone:
                continue
            (alone,) = _run(folder, system, 1)
            highest = max(rank["peak"] for rank in two)
            note = "peak of resident memory; ranks: " + ", ".join(f"{rank['peak'] / MIB:.0f} MiB" for rank in two)
            rows.append(
                row(
                    what, "memory of a rank", "MiB", highest / MIB, rival="one process", theirs=alone["peak"] / MIB,
                    target="ratio <= 0.6", note=note,
                )
            )  # fmt: skip
            seconds = max(rank["seconds"] for rank in two)
            note = "two processes on cores that others used as well"
            rows.append(
                row(what, "gradient of a step", "s", seconds, rival="one process", theirs=alone["seconds"], note=note)
            )
    return rows


def _sent(what: str, system: str, nodes: int, two: list[dict[str, float]]) -> Row:
    """The bytes of a step of two ranks beside ADR 2's: a layer's rows that the ranks read of each other, and the batch's."""
    widths = [WIDTH, 64] if system == "kgat" else [WIDTH] * LAYERS
    sent, read, wanted = (sum(rank[name] for rank in two) / 2 for name in ("sent", "read", "asked"))
    elsewhere = 1 / 2
    layers, batch = 2 * read * sum(widths) * 4, 2 * elsewhere * wanted
    share = read / nodes / elsewhere
    note = (
        f"model: {layers / 1e6:.1f} MB of the layers' rows that the ranks read of each other ({share:.2f} of all), "
        f"{batch / 1e6:.1f} MB of the batch's rows"
    )
    return row(
        what, "sent in a step, the batch's rows included", "MB", sent / 1e6, rival="model of ADR 2",
        theirs=(layers + batch) / 1e6, target="ratio <= 1.1", note=note,
    )  # fmt: skip
