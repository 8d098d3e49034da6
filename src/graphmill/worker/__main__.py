"""The entry point that Dagster, torchrun and ``graphmill train`` start: :mod:`graphmill.runs.__main__`."""

from graphmill.promotion.modes import MODES
from graphmill.runs.__main__ import end, main

if __name__ == "__main__":
    end(main(modes=MODES))
