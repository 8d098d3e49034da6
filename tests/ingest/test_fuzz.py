"""Damaged files, seeded: every reader gives tables or one sentence, in little time and memory, and changes nothing silently.

What a silent change is: :mod:`tests.ingest.damage`. ``long`` has more of them.
"""

import json
import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from graphmill.errors import GraphmillError
from graphmill.ingest.public_readers import ingest_report
from tests.ingest.damage import TARGETS, damaged, silent_change

CASES, MORE = 300, 3000
"""Damages of each kind of file in CI, and in the long run."""
LONGEST = 10.0
"""Seconds for one file: far more than any takes."""
MOST_MEMORY = 3 << 30


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A limit on the process's memory a little above what it has: an allocation by a wrong number fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def attempts(tmp_path: Path, name: str, seeds: range) -> Counter[str]:
    """How many damaged files were read, and how many refused; fails at a traceback, a long wait and a silent change."""
    target, ends = TARGETS[name], Counter[str]()
    for file, data in target.files.items():
        (tmp_path / file).write_bytes(data)
    before = target.read(tmp_path)
    for seed in seeds:
        rng = np.random.default_rng([seed, *name.encode()])
        chosen = sorted(target.files)[int(rng.integers(len(target.files)))]
        hurt = damaged(target.files[chosen], rng)
        (tmp_path / chosen).write_bytes(hurt)
        started, refusal = time.perf_counter(), None
        try:
            after = target.read(tmp_path)
            json.dumps([after.counts, after.notes])
            ends["read"] += 1
            assert not (change := silent_change(target, chosen, hurt, before, after)), (seed, chosen, change)
        except GraphmillError as error:
            ends["refused"] += 1
            refusal = error
        assert time.perf_counter() - started < LONGEST, seed
        if refusal is not None:
            assert "\n" not in str(refusal), (seed, refusal)
            # The guard around the readers is for what nobody has met: here is what it would have caught.
            assert refusal.__cause__ is None, (seed, refusal, refusal.__cause__)
        (tmp_path / chosen).write_bytes(target.files[chosen])
    return ends


@pytest.mark.parametrize("name", TARGETS)
def test_a_damaged_file_is_read_or_refused_in_a_sentence_and_nothing_changes_silently(
    tmp_path: Path, name: str, little_memory: None
) -> None:
    assert attempts(tmp_path, name, range(CASES))["refused"]


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_many_damaged_files(tmp_path: Path, name: str, little_memory: None) -> None:
    attempts(tmp_path, name, range(CASES, CASES + MORE))


@pytest.mark.parametrize("name", TARGETS)
def test_the_report_says_what_is_wrong(tmp_path: Path, name: str, little_memory: None) -> None:
    target = TARGETS[name]
    for seed in range(8):
        rng = np.random.default_rng([seed, *name.encode()])
        for file, data in target.files.items():
            (tmp_path / file).write_bytes(damaged(data, rng))
        result = ingest_report(tmp_path / target.entry if target.entry else tmp_path)
        assert result.problem or result.counts
        assert "\n" not in result.problem
        json.dumps(result.to_dict())
