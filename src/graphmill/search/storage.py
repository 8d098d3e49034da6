"""Stores studies in a file of the project, or in a database that several machines share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from graphmill.errors import InputError

VARIABLE = "GRAPHMILL_STUDIES"
"""Address of a database for all studies, such as postgresql://user:password@host/name. Empty: one SQLite file per study."""
SCHEMA = "graphmill_search"
"""In PostgreSQL, Optuna's tables are in their own schema, because both Optuna and Dagster have a table alembic_version."""


def open_storage(folder: Path, address: str = "") -> Any:
    """Optuna's storage: at ``address`` or ``$GRAPHMILL_STUDIES``, else ``study.db`` in ``folder``.

    Raises:
        InputError: the address is not valid, its driver is not installed, or the database cannot be reached.
    """
    import optuna
    import sqlalchemy as sa

    wanted = address or os.environ.get(VARIABLE, "")
    if not wanted:
        folder.mkdir(parents=True, exist_ok=True)
        return optuna.storages.RDBStorage(f"sqlite:///{folder / 'study.db'}")
    try:
        url = sa.make_url(wanted)
    except sa.exc.ArgumentError:
        raise InputError(
            f"{VARIABLE} is not the address of a database; write it as postgresql://USER@HOST/NAME"
        ) from None
    arguments: dict[str, Any] = {}
    if url.get_backend_name() == "postgresql":
        if url.drivername == "postgresql":  # SQLAlchemy 2.1 would use psycopg 3, but Dagster uses psycopg2
            url = url.set(drivername="postgresql+psycopg2")
        arguments = {"connect_args": {"options": f"-csearch_path={SCHEMA}"}, "pool_pre_ping": True}
    displayed = url.render_as_string(hide_password=True)
    try:
        if arguments:
            engine = sa.create_engine(url)
            with engine.begin() as connection:
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(4731)"))  # two processes can still collide
                connection.execute(sa.text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
            engine.dispose()
        return optuna.storages.RDBStorage(url.render_as_string(hide_password=False), engine_kwargs=arguments)
    except ImportError as error:
        raise InputError(f"the studies' database {displayed} needs a driver that is not installed ({error})") from None
    except sa.exc.SQLAlchemyError as error:
        why = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise InputError(f"the studies' database {displayed} cannot be used: {why}") from None
