"""The Dagster instance, or one sentence where its database cannot be used.

``python -m graphmill.orchestration.instance COMMAND ARGUMENTS…`` looks whether the instance of ``DAGSTER_HOME`` is there,
makes its tables, and becomes the command: Dagster's own processes would retry for a minute and end with a page.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import sqlalchemy as sa

from graphmill.errors import EXIT_USER_ERROR, GraphmillError, ResourceError


@contextmanager
def open_instance() -> Iterator[dg.DagsterInstance]:
    """The instance of ``DAGSTER_HOME``.

    Raises:
        ResourceError: its database cannot be reached, or refuses us.
    """
    retries, before = logging.getLogger(), logging.getLogger().level
    retries.setLevel(logging.ERROR)  # each attempt to connect is a warning of five lines
    try:
        instance = dg.DagsterInstance.get()
    except Exception as error:
        if not (why := _of_database(error)):
            raise
        raise ResourceError(
            f"Dagster's database cannot be used ({why}): is PostgreSQL up, and are its host, port, user and password those "
            f"that {os.environ.get('DAGSTER_HOME', 'DAGSTER_HOME')}/dagster.yaml reads?"
        ) from None
    finally:
        retries.setLevel(before)
    with instance:
        yield instance


def _of_database(error: BaseException | None) -> str:
    """The first line of what a database said, somewhere below ``error``; empty: it was something else."""
    while error is not None:
        if isinstance(error, sa.exc.SQLAlchemyError):
            return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        error = error.__cause__ or error.__context__
    return ""


def main(command: list[str]) -> int:
    """Become ``command``, if the instance is there."""
    try:
        with open_instance():
            pass
    except GraphmillError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
