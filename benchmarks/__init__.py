"""What the product is measured by: each module is a command, ``python -m benchmarks.NAME --json``."""

import os

from graphmill.training.waiting import waiting_environment

# As the command line and the assets set it.
os.environ.update(waiting_environment())
