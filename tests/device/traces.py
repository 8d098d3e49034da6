"""How far losses on the CPU and on a pretended device are apart: ``python -m tests.device.traces cuda CASE…`` (or ``mps``).

Where an accelerator goes another way than the CPU, this is what says that the way leads to the same numbers.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from graphmill.runs.train import train
from tests.device import pretend
from tests.training.cases import CASES
from tests.training.runs import settings_of
from tests.training.test_cuda import losses, without_dropout


def apart(name: str, pretended: str, device: pretend.Dispatch) -> float:
    """The largest relative difference of a step's loss, without dropout, in fp32."""
    case, answer = CASES[name], []
    length = {
        "training": {"epochs": 2, "steps_per_epoch": 4, "warmup_steps": 1, "lr_decay_epochs": 0},
        "evaluation": {"eval_every": 2},
    }
    with tempfile.TemporaryDirectory() as folder:
        graph = case.graph(Path(folder) / "graph")
        for kind in ("cpu", pretended):
            on = {"device": kind, "precision": "fp32"}
            values = settings_of(case, graph, without_dropout(case.system), length, {"acceleration": on})
            if kind == pretended:
                with device:
                    result = train(values, "traces", root=f"{folder}/{kind}")
            else:
                result = train(values, "traces", root=f"{folder}/{kind}")
            answer.append(losses(result))
    return float(np.max(np.abs(answer[1] - answer[0]) / np.abs(answer[0])))


if __name__ == "__main__":
    torch.set_num_threads(1)
    KIND, *NAMES = sys.argv[1:]
    DEVICE = pretend.install(KIND)
    print(json.dumps({name: apart(name, KIND, DEVICE) for name in NAMES}))
