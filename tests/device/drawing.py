"""The threads that draw batches ahead, watched on a pretended device: a batch is the host's, so they touch no device."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from graphmill.training import trainee
from tests.device import pretend


class _Watched(ThreadPoolExecutor):
    """Sees the operators of its threads: a dispatch mode is one thread's."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        def seen() -> Any:
            with pretend.Dispatch():
                return call(*arguments, **options)

        return super().submit(seen)


def watch() -> None:
    """From now on what a drawing thread does on the device is a problem."""
    trainee.ThreadPoolExecutor = _Watched  # type: ignore[misc]
