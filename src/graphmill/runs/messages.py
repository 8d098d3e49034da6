"""Messages from a worker to the process that started it: plain dicts, shown by Dagster, a terminal or a notebook; and the
note before CPU kernels are compiled, which happens the first time that a machine needs them, in any phase or evaluation.

Kinds: ``started`` (run_dir, fingerprint, reused, resumed_from_epoch, device, ...), ``progress`` (epoch, epochs,
step, losses, seconds_left, estimate, memory_bytes, per_second, valid, health), ``note`` (text), ``result``, ``error``.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Protocol, TextIO

from graphmill.runs.standard_streams import Spared

Message = dict[str, Any]
COMPILING = (
    "compiling CPU kernels that are not in the cache yet, once (up to about 30 s); later commands find them there"
)


class Outlet(Protocol):
    """A receiver of messages."""

    def send(self, message: Message) -> None:
        """Handle one message; must not raise for an unknown kind."""

    def close(self) -> None:
        """Called after the last message."""


class Throttle:
    """Passes at most one message per ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last = -float("inf")

    def due(self) -> bool:
        """Whether at least ``seconds`` have passed since this last returned True."""
        now = time.monotonic()
        if now - self.last < self.seconds:
            return False
        self.last = now
        return True


class Terminal:
    """A progress bar on a terminal or in a notebook, plain lines elsewhere. They go to stderr, so that stdout has only
    results."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream: Any = Spared(stream or sys.stderr)
        self.bar: Any = None

    def send(self, message: Message) -> None:
        """Show one message."""
        kind = message["kind"]
        if kind == "started":
            self._started(message)
        elif kind == "progress":
            self._progress(message)
        elif kind == "note":
            self._line(f"note: {message['text']}")

    def close(self) -> None:
        """End the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def _started(self, message: Message) -> None:
        doing = "reusing" if message["reused"] else "training"
        if message["resumed_from_epoch"] and not message["reused"]:
            doing = f"going on from epoch {message['resumed_from_epoch']} of"
        self._line(f"{doing} {message['run_dir']} on {message['device']} ({message['device_reason']})")
        if not message["reused"] and (self.stream.isatty() or _in_a_notebook()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # without ipywidgets, a notebook has a text bar
                from tqdm.auto import tqdm

            counted = {"total": message["epochs"], "initial": message["resumed_from_epoch"], "unit": "epoch"}
            self.bar = tqdm(desc=f"Training {message['system']}", file=self.stream, **counted)

    def _progress(self, message: Message) -> None:
        text = progress_line(message)
        if self.bar is not None:
            self.bar.set_postfix_str(text, refresh=False)
            self.bar.update(message["epoch"] - self.bar.n)
        else:
            self._line(f"epoch {message['epoch']}/{message['epochs']}  {text}")

    def _line(self, text: str) -> None:
        if self.bar is not None:
            self.bar.clear()
        print(text, file=self.stream, flush=True)


def _in_a_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def progress_line(message: Message) -> str:
    """``link: 0.4521  contr: 0.3245  total: 0.3883  …``, with throughput and time left; closed forms have neither."""
    short = {"contrastive": "contr"}
    parts = [f"{short.get(name, name)}: {value:.4f}" for name, value in (message.get("losses") or {}).items()]
    parts += [f"{amount:,.0f} {unit}/s" for unit, amount in (message.get("per_second") or {}).items()]
    parts += [f"{name} {value:.4f}" for name, value in (message.get("valid") or {}).items() if "@" not in name]
    if message.get("seconds_left"):
        parts.append(f"{duration(message['seconds_left'])} left")
    return "  ".join(parts or ["computed in closed form"])


def duration(seconds: float) -> str:
    """Format seconds for people: ``45 s``, ``12 min``, ``3 h 5 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def watch_compiling(begins: Callable[[], None]) -> Iterator[None]:
    """Inside the block, call ``begins`` before numba compiles a function. Code from numba's cache does not count."""
    from graphmill.kernels.runtime.threads import has_numba  # imports torch

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
