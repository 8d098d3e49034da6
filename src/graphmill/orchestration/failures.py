"""Converts errors for Dagster: a user's mistake becomes a one-sentence failure that is never retried."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from graphmill.errors import GraphmillError


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn a :class:`GraphmillError` into a ``Failure`` with its message and without retries, which would not help."""
    try:
        yield
    except GraphmillError as error:
        raise dg.Failure(str(error), metadata={"kind": type(error).__name__}, allow_retries=False) from None
