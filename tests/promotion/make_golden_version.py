"""Makes ``tests/promotion/golden``: a version of at most 200 kB, which code of later releases has to read, serve and roll
back to, or refuse with both formats in a sentence.

    python -m tests.promotion.make_golden_version [CASE]

It replaces the folder. CASE: a case of ``tests.training.cases`` whose system has vectors and scores links. Make it again
only where the format of versions has a new number.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from graphmill.components.plan import abilities_of
from graphmill.promotion.policy import PromotionSettings
from graphmill.promotion.promote import promote_run
from graphmill.promotion.versions import Versions
from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from tests.training.cases import CASES, Case
from tests.training.runs import settings_of

GOLDEN = Path(__file__).with_name("golden")
STORE = Path("toy", "golden")
MOST_BYTES = 200_000


def fits(case: Case) -> bool:
    """Whether a version of this case can be served with vectors and links."""
    able = abilities_of(case.system)
    return able.vectors and able.ranks == "links"


def make(name: str) -> Path:
    """The new folder of the version."""
    case = CASES[name]
    assert fits(case), name
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)  # so that the version's paths are relative
        outputs = Path("data", "06_models", "toy")
        graph = case.graph(outputs / "graph")
        values = merge(settings_of(case, graph), {"data": str(outputs / "graph"), "export": {"csv": False}})
        run = train(values, "golden", root=str(outputs / "golden"))["run_dir"]
        export_run(restore(run))
        store = Versions(Path("promoted") / STORE)
        promote_run(run, store, PromotionSettings(when="manual"), by="golden", person=True, force=True)
        shutil.rmtree(GOLDEN, ignore_errors=True)
        shutil.copytree(Path("promoted"), GOLDEN, symlinks=True, ignore=shutil.ignore_patterns(".*"))
    return GOLDEN


def size(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    made = make(sys.argv[1] if len(sys.argv) > 1 else next(name for name, case in CASES.items() if fits(case)))
    print(f"{made}: {size(made):,} bytes")
