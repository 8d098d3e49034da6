"""Messages from a worker to the process that started it: plain dicts, shown by Dagster, a terminal or a notebook.

Kinds: ``started`` (run_dir, fingerprint, reused, resumed_from_epoch, device, ...), ``progress`` (epoch, epochs,
step, losses, seconds_left, estimate, memory_bytes, per_second, valid, health), ``note`` (text), ``result``, ``error``.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol, TextIO

from graphmill.runs.standard_streams import Spared

Message = dict[str, Any]


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
    """A progress bar on a terminal, plain lines elsewhere. Both go to stderr, so that stdout has only results."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream: Any = Spared(stream or sys.stderr)
        self.bar: Any = None
        self.task: Any = None

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
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _started(self, message: Message) -> None:
        doing = "reusing" if message["reused"] else "training"
        if message["resumed_from_epoch"] and not message["reused"]:
            doing = f"going on from epoch {message['resumed_from_epoch']} of"
        self._line(f"{doing} {message['run_dir']} on {message['device']} ({message['device_reason']})")
        if self.stream.isatty() and not message["reused"]:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
            self.bar = Progress(*columns, console=Console(file=self.stream))
            self.bar.start()
            self.task = self.bar.add_task(f"Training {message['system']}", total=message["epochs"], text="")

    def _progress(self, message: Message) -> None:
        text = progress_line(message)
        if self.bar is not None:
            self.bar.update(self.task, completed=message["epoch"], text=text)
        else:
            self._line(f"epoch {message['epoch']}/{message['epochs']}  {text}")

    def _line(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text)
        else:
            print(text, file=self.stream, flush=True)


class Notebook:
    """A progress bar in a notebook, with the figures of the last message beside it."""

    def __init__(self) -> None:
        self.bar: Any = None

    def send(self, message: Message) -> None:
        """Show one message."""
        if message["kind"] == "started" and not message["reused"]:
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # without ipywidgets, use a text bar
                from tqdm.auto import tqdm

            self.bar = tqdm(
                total=message["epochs"], initial=message["resumed_from_epoch"], desc=message["system"], unit="epoch"
            )
        elif message["kind"] == "progress" and self.bar is not None:
            self.bar.set_postfix_str(progress_line(message), refresh=False)
            self.bar.update(message["epoch"] - self.bar.n)

    def close(self) -> None:
        """Leave the bar as it is."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def progress_outlet() -> Outlet:
    """Return a notebook's progress bar in a notebook, else the terminal's."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return Notebook() if type(shell).__name__ == "ZMQInteractiveShell" else Terminal()


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
