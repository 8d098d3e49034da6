"""Ranges of a compiled kernel on threads: every element once, whatever the number of threads."""

import threading
from collections import namedtuple

import numpy as np
import pytest
import torch

pytest.importorskip("numba")
import numba

from graphmill.kernels.runtime.threads import SMALL, over_ranges


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


@pytest.fixture(params=[1, 2, 3])
def number(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
@pytest.mark.parametrize("kernel", [_count, _count_at_once])
def test_every_element_is_met_once(kernel, number, count) -> None:
    seen, by = np.zeros(count), np.zeros(count, np.int64)
    over_ranges(kernel, Counting(seen, by, 2.0) if kernel is _count_at_once else (seen, by, 2.0), count, SMALL)
    assert (seen == 2.0).all()
    assert len(np.unique(by)) == min(number, count)


@pytest.mark.usefixtures("number")
def test_little_work_stays_in_one_piece() -> None:
    seen, by = np.zeros(1000), np.zeros(1000, np.int64)
    over_ranges(_count, (seen, by, 1.0), 1000, SMALL - 1)
    assert (by == 0).all()
    assert seen.sum() == 1000


def test_several_threads_of_python_may_each_call_kernels() -> None:
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
