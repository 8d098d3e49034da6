"""What the product is measured by: each module is a command, ``python -m benchmarks.NAME --json``."""

import os

# As the command line and the assets set it: waiting threads that spin take the time of those that work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
