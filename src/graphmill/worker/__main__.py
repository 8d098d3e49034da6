"""The entry point that Dagster, torchrun and ``graphmill train`` start: :mod:`graphmill.runs.__main__`."""

from graphmill.promotion.modes import MODES as PROMOTION
from graphmill.runs.__main__ import end, main
from graphmill.search.modes import MODES as SEARCH

if __name__ == "__main__":
    end(main(modes={**PROMOTION, **SEARCH}))
