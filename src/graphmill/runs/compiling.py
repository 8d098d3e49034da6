"""When CPU kernels are compiled: the first time that this machine needs them, in whatever phase or evaluation that is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from graphmill.kernels.runtime.threads import has_numba

COMPILING = (
    "compiling CPU kernels that are not in the cache yet, once (up to about 30 s); later commands find them there"
)


@contextmanager
def watch_compiling(begins: Callable[[], None]) -> Iterator[None]:
    """Inside it, call ``begins`` before numba compiles a function; not when it finds the machine code in its cache."""
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
    """Inside it, ``say`` :data:`COMPILING` before the first kernel that has to be compiled."""
    said = False

    def once() -> None:
        nonlocal said
        if not said:
            said = True
            say(COMPILING)

    with watch_compiling(once):
        yield
