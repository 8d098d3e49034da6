"""Ranges of a compiled kernel on torch's threads: every element once, whatever the number of threads."""

import subprocess
import sys
import threading
from collections import namedtuple

import numpy as np
import pytest
import torch

pytest.importorskip("numba")
import numba

from graphmill.kernels.runtime import team
from graphmill.kernels.runtime.team import over_ranges
from graphmill.kernels.runtime.threads import SMALL


@numba.njit(nogil=True)
def _count(seen, by, add, first, last):
    for i in range(first, last):
        seen[i] += add
        by[i] = first


Counting = namedtuple("Counting", "seen by add")


@numba.njit(nogil=True)
def _count_at_once(call, first, last):
    for i in range(first, last):
        call.seen[i] += call.add
        call.by[i] = first


@pytest.fixture(params=["torch's", "pool"])
def threads(request, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pool":
        monkeypatch.setattr(team, "torch_team", lambda: None)
    elif team.torch_team() is None:
        pytest.skip("this torch brings another OpenMP library than GCC's")
    return str(request.param)


@pytest.fixture(params=[1, 2, 3])
def number(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("count", [0, 1, 2, 1000])
@pytest.mark.parametrize("kernel", [_count, _count_at_once])
def test_every_element_is_met_once(kernel, number, count) -> None:
    seen, by = np.zeros(count), np.zeros(count, np.int64)
    over_ranges(kernel, Counting(seen, by, 2.0) if kernel is _count_at_once else (seen, by, 2.0), count, SMALL)
    assert (seen == 2.0).all()
    assert len(np.unique(by)) == min(number, count)


@pytest.mark.usefixtures("threads", "number")
def test_little_work_stays_in_one_piece() -> None:
    seen, by = np.zeros(1000), np.zeros(1000, np.int64)
    over_ranges(_count, (seen, by, 1.0), 1000, SMALL - 1)
    assert (by == 0).all()
    assert seen.sum() == 1000


@pytest.mark.usefixtures("threads")
def test_several_threads_of_python_may_each_have_their_team() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    rows = np.zeros((4, 5000))

    def work(row) -> None:
        for _ in range(50):
            over_ranges(_count, (row, np.empty(5000, np.int64), 1.0), 5000, SMALL)

    workers = [threading.Thread(target=work, args=(row,)) for row in rows]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch.set_num_threads(before)
    assert (rows == 50).all()


def test_a_kernels_driver_is_kept_like_the_kernel(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source is made, but its code is kept: the second process compiles nothing."""
    code = (
        "import numpy as np; from graphmill.kernels.hits.cpu import _hits, hits; "
        "from graphmill.kernels.runtime import team; "
        "hits(np.zeros((2, 1), np.int64), np.array([0, 1, 1]), np.zeros(1, np.int64), 3); "
        "print(sum(team.driver_of(_hits).stats.cache_hits.values()))"
    )
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    found = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout for _ in range(2)]
    assert [each.strip() for each in found] == ["0", "1"]
