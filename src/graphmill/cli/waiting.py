"""Tells on stderr that a command is still working, when it takes more than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count

_REPORTED_AT = (2, 5, 10, 20, 40)
"""Seconds after which it is said; later, every minute."""
_asking = threading.Event()


@contextmanager
def question() -> Iterator[None]:
    """Say nothing while a person answers."""
    _asking.set()
    try:
        yield
    finally:
        _asking.clear()


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Say ``doing`` and the seconds that have passed, from the third second on, until the block ends."""
    ended, begun = threading.Event(), time.monotonic()

    def tell() -> None:
        for at in chain(_REPORTED_AT, count(60, 60)):
            if ended.wait(max(begun + at - time.monotonic(), 0)):
                return
            if not _asking.is_set():
                print(f"{doing}: {at} s so far", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
