"""What the product is measured by: each module here is a command, ``python -m benchmarks.NAME --json`` (README.md)."""

import os

from graphmill.training.allocator import waiting_environment

# As the command line and the assets set it.
os.environ.update(waiting_environment())
