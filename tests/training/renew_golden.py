"""``python -m tests.training.renew_golden [CASE …]``: write the golden traces anew, saying how much they changed.

Only for a change that is meant to change the arithmetic; say so in the commit.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.training.cases import CASES
from tests.training.golden import FOLDER, read, trace, write


def main(names: list[str]) -> None:
    """Renew the traces of the named cases, or of all."""
    for name in names or list(CASES):
        with tempfile.TemporaryDirectory() as folder:
            losses = trace(name, CASES[name].graph(Path(folder) / "graph"), Path(folder) / "run")
        before = read(name)["losses"] if (FOLDER / f"{name}.json").exists() else None
        change = "new" if before is None else f"{np.max(np.abs(np.divide(losses, before) - 1)):.2e} largest change"
        write(name, losses)
        print(f"{name}: {losses[0]:.6f} to {losses[-1]:.6f}, {change}")


if __name__ == "__main__":
    main(sys.argv[1:])
