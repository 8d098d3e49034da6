"""Ranges of numbers one after the other, such as the rows of some users in a table that is sorted by user."""

import numpy as np


def ranges(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """int64: start_0 .. stop_0 − 1, start_1 .. stop_1 − 1, and so on."""
    lengths = stops - starts
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
