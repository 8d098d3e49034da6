"""The proof's phase ``conve``: whole trainings on FB15k-237, from its files to test figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.device.prove_common import FOLDER, row

CONVE: dict[str, dict[str, Any]] = {
    "batch 512, rate 0.004": {"training": {"learning_rate": 0.004}, "acceleration": {"batch_size": 512}},
    "batch 512, rate 0.002": {"training": {"learning_rate": 0.002}, "acceleration": {"batch_size": 512}},
}
"""Tried side by side on validation triples; ``CONVE=N`` takes the Nth alone, whose time is then its own."""


def conve(device: torch.device, tiny: bool) -> str:
    """ConvE on FB15k-237 (``$GRAPHMILL_DATASETS``), from its files to test figures: bf16, a falling rate, dropout 0.5."""
    only = os.environ.get("CONVE", "")
    names = [list(CONVE)[int(only)]] if only else list(CONVE)[: 1 if tiny else None]
    program = "import sys; from benchmarks.device import prove_conve; prove_conve.conve_once(*sys.argv[1:])"
    started = time.monotonic()
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", program, name, device.type, str(int(tiny))], stdout=subprocess.PIPE, text=True
        )
        for name in names
    }
    found: dict[str, dict[str, Any]] = {}
    watching = [threading.Thread(target=_watch, args=(*each, started, len(names), found)) for each in running.items()]
    for thread in watching:
        thread.start()
    for thread in watching:
        thread.join()
    best = max(found, key=lambda n: found[n]["valid_mrr"])
    return f"chosen on validation: {best}, test MRR {found[best]['test_mrr']:.4f}"


def _watch(
    name: str, process: subprocess.Popen[str], started: float, together: int, found: dict[str, dict[str, Any]]
) -> None:
    """A row for each evaluation as it comes, so that a proof that is cut off keeps the last, and one at the end."""
    said: dict[str, Any] = {}
    for line in process.stdout or ():
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        row(conve=name.replace(" ", "_"), together=together, s=time.monotonic() - started, **said)
    if process.wait() or "test_mrr" not in said:
        row(conve=name.replace(" ", "_"), failed=f"exit {process.returncode}")
    else:
        found[name] = said


class _Figures:
    """An outlet that prints each of the validation's figures as a line of JSON."""

    last: Any = None

    def send(self, message: Mapping[str, Any]) -> None:
        """Print what is new; ``by_epoch``: it is of this epoch or one shortly before."""
        mrr = (message.get("valid") or {}).get("mrr", self.last)
        if mrr != self.last:
            self.last = mrr
            print(json.dumps({"by_epoch": message["epoch"], "sampled_valid_mrr": mrr}), flush=True)

    def close(self) -> None:
        """Nothing."""


def conve_once(name: str, device: str, tiny: str) -> None:
    """One training; its figures as lines of JSON, the last with those on test."""
    from benchmarks.parts.card import DATASETS
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.triples import read_triples
    from graphmill.runs.resolve import merge
    from graphmill.runs.train import train

    begin = time.perf_counter()
    small = bool(int(tiny))
    tables = read_triples(DATASETS / ("UMLS" if small else "FB15k-237"))
    graph = build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), FOLDER / name)
    values = {
        "recipe": "conve",
        "data": str(graph.path),
        "preset": "none",
        "model": {"output_dropout": 0.5},
        "training": {"epochs": 1 if small else int(os.environ.get("EPOCHS", "55")), "lr_decay": "cosine"},
        "evaluation": {"eval_every": 10, "max_queries": 3000, "baselines": []},
        "acceleration": {"device": device, "allow_fallback": False, "precision": "fp32" if small else "bf16"},
    }
    ready = time.perf_counter()
    result = train(merge(values, CONVE[name]), "prove", root=str(FOLDER / f"{name}-run"), outlets=[_Figures()])
    said = {k: result["metrics"].get(k) for k in ("valid_mrr", "test_mrr", "test_hits@10")}
    said |= {"best_epoch": result.get("best_epoch"), "ms_per_step": result["seconds_per_step"] * 1e3}
    print(json.dumps(said | {"reading_s": ready - begin, "training_s": time.perf_counter() - ready}))
