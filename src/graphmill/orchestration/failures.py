"""Errors on their way to Dagster: a user's mistake is one sentence, and is never retried."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from graphmill.errors import GraphmillError


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn a :class:`GraphmillError` into a ``Failure`` with its sentence; repeating the step would not mend it."""
    try:
        yield
    except GraphmillError as error:
        raise dg.Failure(str(error), metadata={"kind": type(error).__name__}, allow_retries=False) from None
