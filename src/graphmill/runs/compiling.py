"""Reports when CPU kernels are compiled. This happens the first time that a machine needs them, in any phase or
evaluation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from graphmill.kernels.runtime.threads import has_numba

COMPILING = (
    "compiling CPU kernels that are not in the cache yet, once (up to about 30 s); later commands find them there"
)


@contextmanager
def watch_compiling(begins: Callable[[], None]) -> Iterator[None]:
    """Inside the block, call ``begins`` before numba compiles a function. Code from numba's cache does not count."""
    if not has_numba():
        yield
        return
    from numba.core.event import Listener, install_listener

    class Watch(Listener):
        def on_start(self, event: Any) -> None:
            begins()

        def on_end(self, event: Any) -> None:
            pass

    with install_listener("numba:compile", Watch()):
        yield


@contextmanager
def say_compiling(say: Callable[[str], None]) -> Iterator[None]:
    """Inside the block, pass :data:`COMPILING` to ``say`` before the first kernel is compiled."""
    with watch_compiling(cache(partial(say, COMPILING))):  # the cache holds the first call: it is said once
        yield
