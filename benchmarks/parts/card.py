"""What all benchmarks share: fresh processes, the machine card, and results that say whether they hold.

A benchmark measures graphmill and its rival in turn, each in a fresh process, and writes
``benchmarks/results/<name>.json``: one row a target. ``holds`` is computed from the figures, never written by hand.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DATASETS = Path(os.environ.get("GRAPHMILL_DATASETS", ROOT.parent / "shared" / "datasets"))
"""The public data sets: beside the checkout unless ``$GRAPHMILL_DATASETS`` says where."""
PACKAGES = ("numpy", "pyarrow", "scipy", "numba", "torch", "torch-geometric", "pykeen", "dagster")
_TARGET = re.compile(r"(ratio|ours) (<=|>=|<|>) ([0-9.]+)")


@dataclass(frozen=True)
class Row:
    """One figure. ``ratio`` is ours / theirs; ``target`` reads like ``ratio <= 3`` or ``ours >= 0.8``; empty: none.

    ``processor``, ``commit`` and ``created`` say what was measured, on what and when: a file's rows come from several runs.
    :func:`write` fills them in; older rows have none.
    """

    workload: str
    metric: str
    unit: str
    ours: float
    rival: str
    theirs: float | None
    ratio: float | None
    target: str
    holds: bool | None
    note: str
    processor: str = ""
    commit: str = ""
    created: str = ""


def row(
    workload: str,
    metric: str,
    unit: str,
    ours: float,
    *,
    rival: str = "",
    theirs: float | None = None,
    target: str = "",
    note: str = "",
) -> Row:
    """A row with its ratio and whether it holds. ``theirs`` may be missing where a target is about ours alone."""
    ratio = ours / theirs if theirs else None
    return Row(workload, metric, unit, ours, rival, theirs, ratio, target, holds(target, ours, ratio), note)


def holds(target: str, ours: float, ratio: float | None) -> bool | None:
    """Whether the figures meet ``target``; None where there is no target. Raises ``ValueError`` for a target unread."""
    if not target:
        return None
    result = _TARGET.fullmatch(target)
    if result is None:
        raise ValueError(f"target {target!r} is not of the form 'ratio <= 3' or 'ours >= 0.8'")
    what, relation, bound = result.groups()
    value = ours if what == "ours" else ratio
    if value is None:
        raise ValueError(f"target {target!r} needs the rival's figure")
    limit = float(bound)
    return {"<=": value <= limit, ">=": value >= limit, "<": value < limit, ">": value > limit}[relation]


def write(name: str, rows: Sequence[Row], command: str) -> Path:
    """Write ``benchmarks/results/<name>.json`` and return its path. ``command`` is what repeats the measurement."""
    commit, now = commit_of_the_code(), datetime.now(UTC).isoformat(timespec="seconds")
    content = {
        "benchmark": name,
        "commit": commit,
        "created": now,
        "machine": machine(),
        "command": command,
        "rows": [
            asdict(r if r.processor else replace(r, processor=_processor(), commit=commit, created=now)) for r in rows
        ],
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def store(name: str, new: Row, command: str) -> Path:
    """Replace the row of the same workload, metric, rival and processor, so that rows can be measured one at a time."""
    return replace_rows(
        name, [new], command, lambda r: (r.workload, r.metric, r.rival) == (new.workload, new.metric, new.rival)
    )


def stored(name: str) -> list[Row]:
    """The rows of ``benchmarks/results/<name>.json``; none where there is no such file."""
    path = RESULTS / f"{name}.json"
    return [Row(**r) for r in json.loads(path.read_text(encoding="utf-8"))["rows"]] if path.is_file() else []


def replace_rows(name: str, new: Sequence[Row], command: str, outdated: Callable[[Row], bool]) -> Path:
    """Put ``new`` in the place of this processor's rows that are ``outdated``; those of other processors stay, but for what
    a ranking reaches (``@``), which is no processor's."""
    processor = _processor()
    kept = [r for r in stored(name) if not ((r.processor == processor or "@" in r.metric) and outdated(r))]
    return write(name, [*kept, *new], command)


def machine() -> dict[str, Any]:
    """The card: processor, cores, memory, system, versions, threads and load; nothing that names the host."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "accelerator": _accelerator(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": versions,
        "threads": {k: os.environ[k] for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if k in os.environ},
        "load_average": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        result = dict(re.findall(r"^([a-z_ ]+?)\s*: (.+)$", info.read_text(), flags=re.MULTILINE))
        if "model name" in result:
            # Virtual machines say "AMD EPYC" of every generation.
            which = (
                f", family {result['cpu family']} model {result['model']}"
                if result.get("vendor_id") == "AuthenticAMD"
                else ""
            )
            return str(result["model name"]) + which
    return platform.processor() or platform.machine()


def _accelerator() -> str:
    # Only where torch is in use anyway: a benchmark of something else should not pay for importing it.
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return "none"
    return str(torch.cuda.get_device_name())


def commit_of_the_code() -> str:
    """The commit measured, with a plus where tracked files differ from it."""
    try:
        head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/*.py"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
    except OSError:
        return "unknown"
    return (head.stdout.strip() or "unknown") + ("+" if changed.stdout.strip() else "")


def handed_over(parts: Mapping[str, str]) -> bool:
    """Whether the command's first word names one of ``parts`` (module in ``benchmarks.parts`` by word), which then ran."""
    if len(sys.argv) < 2 or sys.argv[1] not in parts:
        return False
    module = import_module(f"benchmarks.parts.{parts[sys.argv.pop(1)]}")
    module.main()
    return True


def peak_rss() -> float:
    """The largest resident set of this process so far, GiB. Not that of the parent, which ``ru_maxrss`` can inherit."""
    status = Path("/proc/self/status")
    if status.is_file():
        result = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(), flags=re.MULTILINE)
        if result:
            return int(result[1]) / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def as_a_worker() -> dict[str, str]:
    """The environment that graphmill gives to its training processes: the heap is kept, threads spin for a short while."""
    from graphmill.training.allocator import KEEP_HEAP, waiting_environment

    return {**KEEP_HEAP, **waiting_environment()}


def fresh(
    module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None, python: str = ""
) -> dict[str, Any]:
    """Run ``python -m module arguments`` and return the JSON object of its last line. Raises with its output if it fails.

    ``python``: another interpreter than this one, which has a rival that cannot be installed beside graphmill.
    """
    process = subprocess.run(
        [python or sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
    )
    if process.returncode:
        raise RuntimeError(
            f"{module} {' '.join(arguments)} ended with {process.returncode}:\n{process.stdout}{process.stderr}"
        )
    result: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    return result


def paired_difference(runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], key: str) -> str:
    """The mean of the seeds' differences and its standard error, for a note."""
    differences = [float(run[key]) - float(other[key]) for run, other in zip(runs, others, strict=True)]
    if len(differences) < 2:
        return "one seed"
    error = stdev(differences) / len(differences) ** 0.5
    return f"paired difference {mean(differences):+.4f}, standard error {error:.4f}"
