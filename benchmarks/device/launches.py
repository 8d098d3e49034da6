"""Launches and waits of a step of the kernel workload on a pretended CUDA device, at a part of its size.

``python -m benchmarks.device.launches --scale 0.1 [--variant pyg,repaired] [--json FILE]``: what the counts are made of
is in ``tests/device/pretend.py``. They do not depend on the size where no operation works in parts.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from tests.device import pretend
from tests.device.tally import Tally


def count(scale: float, options: set[str]) -> tuple[dict[str, Any], Tally]:
    """Launches, waits, views and bytes of the second step: forward, backward and optimizer, added up."""
    from benchmarks.parts import hgt_graphs, hgt_step

    typed = hgt_graphs.synthetic(int(67_000 * scale), int(200_000 * scale), 30)
    torch.manual_seed(0)
    tally, rows = pretend.DEVICE.tally, dict[str, Any]()
    with DEVICE:
        model = (hgt_step.PyG if "pyg" in options else hgt_step.Ours)(typed, options)
        model.to("cuda")
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        for _ in range(2):
            tally.clear()
            loss = hgt_step.mean_squares(model())
            rows["forward"] = tally.counts()
            loss.backward()
            rows["backward"] = tally.counts()
            optimizer.step()
            optimizer.zero_grad()
            rows["optimizer"] = tally.counts()
    return {"launches": tally.launches, "waits": sum(tally.waits.values()), "views": tally.views, "after": rows}, tally


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument(
        "--variant", default="ours", help="options of benchmarks.parts.hgt_step: ours,bf16; pyg,repaired"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result, tally = count(arguments.scale, set(arguments.variant.split(",")))
    print(json.dumps({"variant": arguments.variant, "scale": arguments.scale, **result}))
    for title, counter in (("operators", tally.operators), ("places", tally.places), ("waits", tally.waits)):
        print(title)
        for name, number in Counter(counter).most_common(25):
            print(f"  {number:6d} {name}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"variant": arguments.variant, "scale": arguments.scale, **result}) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    DEVICE = pretend.install("cuda")
    main()
