"""Graphs that do not fit one process: ``python -m benchmarks.large WORD [--json]``; the rest of the line is the word's own.

* ``ingest``: reading and building a large table (``parts/ingest_large.py``)
* ``sharding``: tables divided by rows, and the cost model of ADR 2 (``parts/sharding.py``)
"""

from __future__ import annotations

import sys

from benchmarks.parts.card import handed_over

WORDS = {"ingest": "ingest_large", "sharding": "sharding"}


def main() -> None:
    """See the module's head."""
    if not handed_over(WORDS):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["--help"], ["-h"]) else 2)


if __name__ == "__main__":
    main()
