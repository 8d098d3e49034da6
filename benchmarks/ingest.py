"""Reading a PrimeKG-shaped ``kg.csv`` into checked tables, against ``pyarrow.csv.read_csv`` alone.

``python -m benchmarks.ingest [--json] [--preset paper] [--repeats 7] [--file kg.csv]``

The rival reads all twelve columns as text with two threads and checks nothing; ours types, keys, checks and counts. Both
run in fresh processes, in turn, on a file in the page cache; imports and a first read of a small file are outside the
clock for both. Without ``--file`` the synthetic file (1.09 GB for ``paper``) is written to a temporary directory and
removed afterwards.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.card import Row, in_turn, peak_rss, row, typical, typical_ratio, write

SMALL = Path(__file__).resolve().parents[1] / "data" / "01_raw" / "kg.csv"
RIVAL = "pyarrow.csv.read_csv"


def measure(variant: str, file: str) -> dict[str, float]:
    """Seconds and memory of one read, in this process."""
    read = {"ours": _ours, "pyarrow": _pyarrow}[variant]()
    read(str(SMALL))
    baseline = peak_rss()
    processor, started = time.process_time(), time.perf_counter()
    rows = read(file)
    return {
        "seconds": time.perf_counter() - started,
        "processor_seconds": time.process_time() - processor,
        "peak_gib": peak_rss(),
        "baseline_gib": baseline,
        "rows": rows,
    }


def _ours() -> Callable[[str], int]:
    import pyarrow as pa

    from graphmill.ingest.kg_csv import read_kg_csv

    pa.set_cpu_count(2)
    return lambda file: read_kg_csv(file).edges.num_rows


def _pyarrow() -> Callable[[str], int]:
    import pyarrow as pa
    import pyarrow.csv

    from graphmill.ingest.kg_columns import PRIMEKG

    pa.set_cpu_count(2)
    options = pyarrow.csv.ConvertOptions(column_types={name: pa.string() for name in PRIMEKG})
    return lambda file: int(pyarrow.csv.read_csv(file, convert_options=options).num_rows)


def compare(file: str, repeats: int) -> list[Row]:
    """The rows of the result: time against the rival's, and peak memory."""
    Path(file).read_bytes()  # into the page cache
    found = in_turn(
        "benchmarks.ingest", {name: ["--one", name, "--file", file] for name in ("ours", "pyarrow")}, repeats
    )
    ours, theirs = found["ours"], found["pyarrow"]
    if {r["rows"] for r in ours} != {r["rows"] for r in theirs}:
        raise RuntimeError("ours and pyarrow read different numbers of rows")
    size = f"{int(ours[0]['rows']):,} rows, {Path(file).stat().st_size / 1e9:.2f} GB, synthetic PrimeKG shape"
    rows = []
    for key, metric, target in (
        ("seconds", "time to checked tables", "ratio <= 3"),
        ("processor_seconds", "processor time", ""),
    ):
        mine, note = typical(ours, key)
        rival, their_note = typical(theirs, key)
        paired = typical_ratio(ours, theirs, key)
        rows.append(
            row(
                size, metric, "s", mine, rival=RIVAL, theirs=rival, target=target,
                note=f"ours {note}; rival {their_note}; median of paired ratios {paired:.2f}",
            )
        )  # fmt: skip
    mine, note = typical(ours, "peak_gib")
    rival, their_note = typical(theirs, "peak_gib")
    base, _ = typical(ours, "baseline_gib")
    rows.append(
        row(
            size, "peak memory of the process", "GiB", mine, rival=RIVAL, theirs=rival, target="ours <= 1.5",
            note=f"{note}; {base:.2f} of it before reading",
        )
    )  # fmt: skip
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write benchmarks/results/ingest.json")
    parser.add_argument("--preset", default="paper", help="the synthetic sample: tiny, small or paper")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--file", default="", help="an existing kg.csv instead of the synthetic one")
    parser.add_argument("--one", choices=["ours", "pyarrow"], help="measure one reader in this process and print JSON")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measure(chosen.one, chosen.file)))
        return
    with tempfile.TemporaryDirectory() as directory:
        file = chosen.file
        if not file:
            from graphmill.ingest.samples.catalog import write_sample

            file = str(write_sample("biomed", chosen.preset, directory))
        rows = compare(file, chosen.repeats)
    for r in rows:
        print(f"{r.metric}: {r.ours:.3g} {r.unit}, {r.rival} {r.theirs:.3g} {r.unit}, ratio {r.ratio:.2f}. {r.note}")
    if chosen.json:
        command = f"python -m benchmarks.ingest --json --preset {chosen.preset} --repeats {chosen.repeats}"
        print(f"wrote {write('ingest', rows, command).name}")


if __name__ == "__main__":
    main()
