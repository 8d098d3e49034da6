"""Opens the Dagster instance, or gives a one-sentence error if its folder, settings or database cannot be used.

``python -m graphmill.orchestration.instance COMMAND ARGUMENTS…`` checks the instance of ``DAGSTER_HOME``, creates its
tables, and then executes the command. Without this check, Dagster's own processes would retry for a minute and fail
with a long traceback.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import sqlalchemy as sa
import yaml
from dagster._check import CheckError

from graphmill.errors import EXIT_USER_ERROR, GraphmillError, ResourceError, SettingsError

TRIES = 5
"""Attempts to open the instance while other processes make its tables."""
_UNSET = re.compile(r'environment variable "(\w+)" which is not set')
_NO_NUMBER = re.compile(r'env variable "(\w+)" cannot be coerced into an int')


@contextmanager
def open_instance() -> Iterator[dg.DagsterInstance]:
    """The instance of ``DAGSTER_HOME``.

    Raises:
        ResourceError: its database cannot be reached, or refuses the connection.
        SettingsError: there is no such folder, its ``dagster.yaml`` cannot be read, or a variable that it reads is not set.
    """
    retries, before = logging.getLogger(), logging.getLogger().level
    retries.setLevel(logging.ERROR)  # each attempt to connect would print a warning of five lines
    try:
        instance = _opened()
    except Exception as error:
        home = os.environ.get("DAGSTER_HOME", "")
        if why := _of_database(error):
            raise ResourceError(
                f"Dagster's database cannot be used ({why}): is PostgreSQL up, and are its host, port, user and password "
                f"those that {home}/dagster.yaml reads?"
            ) from None
        if why := _of_settings(error, home):
            raise SettingsError(why) from None
        raise
    finally:
        retries.setLevel(before)
    with instance:
        yield instance


def _opened() -> dg.DagsterInstance:
    """The instance. Processes that start together on an empty database make the same tables; the later ones try again."""
    for _ in range(TRIES - 1):
        try:
            return dg.DagsterInstance.get()
        except Exception as error:
            if not any(words in _of_database(error) for words in ("already exists", "duplicate key")):
                raise
            time.sleep(1)
    return dg.DagsterInstance.get()


def _of_database(error: BaseException | None) -> str:
    """The first line of a database's error in the chain of causes of ``error``; empty if there is none."""
    while error is not None:
        if isinstance(error, sa.exc.SQLAlchemyError):
            return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        error = error.__cause__ or error.__context__
    return ""


def _of_settings(error: BaseException, home: str) -> str:
    """The problem of ``DAGSTER_HOME``, its ``dagster.yaml`` or the variables that it reads; empty for any other error."""
    folder = "the absolute path of the folder with dagster.yaml (on a server: deploy)"
    if not home:
        return f"DAGSTER_HOME is not set: set it to {folder}"
    if not Path(home).expanduser().is_absolute():
        return f"DAGSTER_HOME is {home}, which is a relative path: set it to {folder}"
    if not Path(home).expanduser().is_dir():
        return f"DAGSTER_HOME is {home}, and there is no such folder: set it to {folder}"
    file, where = f"{home}/dagster.yaml", "(on a server: deploy/.env, or the Secret and the ConfigMap of Kubernetes)"
    said = str(error)
    if unset := sorted(set(_UNSET.findall(said))):
        return f"not set in the environment: {', '.join(unset)}, which {file} reads; set what is missing {where}"
    if match := _NO_NUMBER.search(said):
        value = os.environ.get(match[1], "")
        return f"{match[1]} is '{value}', and {file} reads it as a number: set it to a whole number {where}"
    if isinstance(error, dg.DagsterError | CheckError | yaml.YAMLError | ImportError | OSError):
        entries = getattr(error, "error_messages", None) or [said]
        reason = " ".join(entries[0].split(" Expected: ")[0].split())[:200]
        return f"Dagster cannot use {file} ({reason}): correct that entry, or what it names"
    return ""


def main(command: list[str]) -> int:
    """Check the instance, then execute ``command`` in place of this process."""
    try:
        with open_instance():
            pass
    except GraphmillError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
