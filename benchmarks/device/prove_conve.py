"""The proof's phase ``conve``: one whole training on FB15k-237, from its files to test figures.

Its settings are those of ``examples/conve/fb15k_237.yaml``. ``$CONVE_SETTINGS`` (JSON: sections as in a settings file) is
put over them, and ``$EPOCHS`` says how many there are. Without it some steps are timed, and there are as many epochs as the
phase's time has room for, but no more than the settings say.

Several at once, whose times are then not their own: ``TOGETHER=2 CONVE_SETTINGS=... OUT=a bash
benchmarks/device/prove_cuda.sh conve &``, and the same with other settings and ``OUT=b``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

import torch
import yaml

from benchmarks.device.prove_common import FOLDER, case, row, wait
from benchmarks.device.prove_steps import Trained
from benchmarks.parts import made_up_graphs
from benchmarks.parts.card import DATASETS, ROOT
from graphmill.runs.resolve import merge

EXAMPLE = ROOT / "examples" / "conve" / "fb15k_237.yaml"
AROUND, AN_EVALUATION, SLOWER = 45.0, 3.0, 1.1
"""Seconds of the final figures and of one evaluation, and by how much steps are slower than timed: on the safe side."""


class _Figures:
    """An outlet that makes each of the validation's figures a row, so that a proof that is cut off keeps the last."""

    def __init__(self, **about: Any) -> None:
        self.about, self.last, self.started = about, None, time.monotonic()

    def send(self, message: Mapping[str, Any]) -> None:
        """A row where it is new; ``by_epoch``: it is of this epoch or one shortly before."""
        mrr = (message.get("valid") or {}).get("mrr", self.last)
        if mrr != self.last:
            self.last = mrr
            row(**self.about, by_epoch=message["epoch"], s=time.monotonic() - self.started, sampled_valid_mrr=mrr)

    def close(self) -> None:
        """Nothing."""


def conve(device: torch.device, tiny: bool) -> str:
    """ConvE on FB15k-237 (``$GRAPHMILL_DATASETS``): timed steps, then a training of as many epochs as there is time for."""
    from graphmill.runs.train import train

    begin = time.perf_counter()
    graph = made_up_graphs.triples(FOLDER, 120, 6, 900) if tiny else _fb15k_237()
    reading = time.perf_counter() - begin
    name, values = _settings(device, tiny)
    about = {"conve": name, "together": int(os.environ.get("TOGETHER", "1"))}
    said = values["acceleration"]["precision"]
    times: dict[str, float] = {}
    for precision in [said] if said else ["tf32", "bf16"] if device.type == "cuda" else ["fp32"]:
        with case(**about, precision=precision):
            times[precision], steps = _timed(values, graph, precision, device, 4 if tiny else 40)
            row(**about, precision=precision, timed_ms=times[precision] * 1e3, steps_per_epoch=steps)
    if not times:
        return "none ended"
    precision = min(times, key=lambda p: times[p])
    left = float(os.environ.get("PHASE_ENDS", "inf")) - time.time()
    most, every = values["training"].get("epochs", 100), values["evaluation"]["eval_every"]
    epochs = int(os.environ.get("EPOCHS") or epochs_for(left, times[precision] * steps, every, most))
    now = {"data": str(graph.path), "training": {"epochs": epochs}, "acceleration": {"precision": precision}}
    begin = time.perf_counter()
    with case(**about):
        process = train(merge(values, now), "prove", root=str(FOLDER), outlets=[_Figures(**about)])
        row(
            **about,
            **{k: process["metrics"][k] for k in ("valid_mrr", "test_mrr", "test_hits@10")},
            epochs=epochs,
            best_epoch=process["best_epoch"],
            ms_per_step=process["seconds_per_step"] * 1e3,
            reading_s=reading,
            training_s=time.perf_counter() - begin,
        )
        return f"test MRR {process['metrics']['test_mrr']:.4f} after {epochs} epochs, {name}"
    return "none ended"


def epochs_for(seconds: float, epoch: float, every: int, most: int) -> int:
    """How many epochs of ``epoch`` seconds there are ``seconds`` for, evaluated after each ``every``: 1 to ``most``."""
    return max(1, int(min(most, (seconds - AROUND) / (epoch * SLOWER + AN_EVALUATION / every))))


def _fb15k_237() -> Any:
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.triples import read_triples

    tables = read_triples(DATASETS / "FB15k-237")
    return build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), FOLDER / "fb15k-237")


def _settings(device: torch.device, tiny: bool) -> tuple[str, dict[str, Any]]:
    """A name of what is trained, and its settings; precision "" unless ``$CONVE_SETTINGS`` has one.

    There are few evaluations, and no checkpoint but of the best and the last epoch.
    """
    ours = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    never = {"checkpoint_every_epochs": 0}
    fixed = {
        "system": "conve",
        "preset": "none",
        "training": {},
        "evaluation": {"eval_every": 20, "max_queries": 3000, "baselines": []},
        "acceleration": {"device": device.type, "precision": "", **never},
    }
    over = json.loads(os.environ.get("CONVE_SETTINGS", "{}"))
    said = [f"{key} {value}" for section in over.values() for key, value in section.items()]
    values = merge(merge(ours, fixed), over)
    if tiny:
        few = {"training": {"epochs": 2}, "evaluation": {"eval_every": 1}, "acceleration": {"batch_size": 50}}
        values = merge(values, few)
    return ", ".join([EXAMPLE.name, *said]), values


def _timed(values: dict[str, Any], graph: Any, precision: str, device: torch.device, count: int) -> tuple[float, int]:
    """Seconds of a step as the engine takes it, with its batch drawn by a thread, and the steps of an epoch."""
    made = Trained("conve", values, graph, precision, device)
    (phase,) = made.system.phases
    for number in range(count):
        if number == count // 4:
            wait(device)
            begin = time.perf_counter()
        made.engine._step(phase, 0, number % phase.steps_per_epoch)
    wait(device)
    return (time.perf_counter() - begin) / (count - count // 4), phase.steps_per_epoch
