"""``graphmill …``: thin commands over the library, one file per group.

A command is registered by being imported here.
"""

from graphmill.cli.entry import app, main

# In the order in which ``--help`` shows them.
# isort: off
from graphmill.cli import training
from graphmill.cli import quality
from graphmill.cli import results
from graphmill.cli import promotion
from graphmill.cli import data
from graphmill.cli import project
# isort: on

__all__ = ["app", "data", "main", "project", "promotion", "quality", "results", "training"]
