"""Names and limits of the choice of a system. Importable without torch: definitions and the command line read them."""

import re

from graphmill.errors import SettingsError

AUTO = "auto"
"""The name that stands for the choice where a system is named, and of the folder of its runs, beside the graph."""
FILE = "which_model.json"
FEWEST = 30
"""With fewer queries, an interval says little."""
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}
_BUDGET = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(s|sec|min|h|)\s*")


def seconds_of(budget: str) -> float:
    """The seconds of "90s", "10min", "2h" or "600". Raises :class:`SettingsError` for any other text."""
    match = _BUDGET.fullmatch(budget)
    if match is None or not float(match[1]):
        raise SettingsError(f'budget = "{budget}" is not a time; write it like "90s", "10min" or "2h"')
    return float(match[1]) * _SECONDS[match[2]]
