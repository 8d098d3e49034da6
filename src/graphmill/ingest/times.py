"""Times of interactions: converts numbers of any unit and dates to whole seconds and nanoseconds within the second.

The size of each number shows its unit, so a file that changes from seconds to milliseconds is read correctly. Times are
sorted before they are rounded.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np

from graphmill.errors import InputError
from graphmill.ingest.tables import NO_TIME

UNITS = ("seconds", "milliseconds", "microseconds", "nanoseconds", "dates")
DATE = UNITS.index("dates")
_FROM = (100_000_000_000, 100_000_000_000_000, 100_000_000_000_000_000)
"""Seconds reach the first number in the year 5138, milliseconds the second, microseconds the third."""
_NANO = 1_000_000_000
_LARGEST = 2**63 - 1
_PLAUSIBLE = (31_536_000, 5_700_000_000)
"""The years 1971 to 2150 in seconds: in a file with two units, all times must be within these for the units to be
credible."""
NO_TIME_THERE = "neither a number nor a date such as 2024-01-31"
"""The reason of a reject."""
_FRACTION = re.compile(r"([.,]\d{6})(\d{1,3})\d*")


class Time(NamedTuple):
    """Whole seconds since 1970, the nanoseconds beyond them (0 to 999,999,999), and a place in :data:`UNITS`."""

    second: int
    nano: int
    unit: int


UNTIMED = Time(NO_TIME, 0, 0)
TIME = np.dtype([("second", np.int64), ("nano", np.int32), ("unit", np.uint8)])
"""Arrays of times: as of :class:`Time`."""


def parse_time(text: str) -> Time | None:
    """``text`` as a time: a number of seconds, ms, µs or ns since 1970, or an ISO 8601 date with dashes; else None.

    A date without a zone is UTC.
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        return _date(text)
    size = number.copy_abs()  # check the size before any arithmetic
    if not number.is_finite() or size > _LARGEST:
        return None
    unit = sum(size >= limit for limit in _FROM)
    nanos = int((number * 10 ** (9 - 3 * unit)).to_integral_value())
    return Time(*divmod(nanos, _NANO), unit)


def is_plausible(time: Time) -> bool:
    """Whether a time is in the years 1971 to 2150, so that a number can be one."""
    return _PLAUSIBLE[0] <= time.second <= _PLAUSIBLE[1]


def _date(text: str) -> Time | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if "-" not in text:  # 20240131T1200 and the like: numbers, not dates
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    # datetime has only microseconds; smaller digits are read from the text.
    finer = _FRACTION.search(text)
    nano = since.microseconds * 1000 + (int(finer[2].ljust(3, "0")) if finer else 0)
    return Time(since.days * 86_400 + since.seconds, nano, DATE)


def whole_times(numbers: np.ndarray) -> np.ndarray:
    """int64 numbers as :data:`TIME`; the size of each shows its unit."""
    times, size = np.zeros(len(numbers), TIME), np.abs(numbers)
    for limit in _FROM:
        times["unit"] += size >= limit
    a_second = np.array([1, 1_000, 1_000_000, _NANO], np.int64)[times["unit"]]
    times["second"], rest = np.divmod(numbers, a_second)
    times["nano"] = rest * (_NANO // a_second)
    return times


def unit_notes(file: str, second: np.ndarray, nano: np.ndarray | None, unit: np.ndarray) -> tuple[int, list[str]]:
    """The number of times whose unit is not the file's most frequent one, and notes on the units and on the future.

    Raises :class:`InputError` if there are several units, or numbers and dates, and a time is outside 1971 to 2150 (0
    is not a time): then the size does not show the unit.
    """
    (low, high), now, is_number = _PLAUSIBLE, datetime.now(UTC).timestamp(), unit != DATE
    zero = is_number & (second == 0) & (nano is None or nano == 0)
    timed = (second != NO_TIME) & ~zero
    count = np.bincount(unit[timed], minlength=len(UNITS))
    later = int((timed & (second > now)).sum())
    odd = int((timed & is_number & ((second < low) | (second > high))).sum())
    units = [unit for unit in np.argsort(-count, kind="stable").tolist() if count[unit]]
    numbers = [unit for unit in units if unit != DATE]
    notes = [f"{later:,} times are in the future, and a split by time would hold those out; correct them"] * bool(later)
    if len(units) < 2:
        whole = [f"timestamps are {UNITS[units[0]]}; the graph has whole seconds"] if numbers and numbers[0] else []
        return 0, whole + notes
    if odd:
        raise InputError(
            f"{file}: times are {' and '.join(UNITS[u] for u in units)} by their size, but {odd:,} numbers "
            "would be before 1971 or after 2150, so the unit cannot be told; write all times in one unit"
        )
    listed = ", ".join(f"{count[unit]:,} {UNITS[unit]}" for unit in units)
    return int(count[numbers[1:]].sum()), [f"timestamps have several units, each told by its size: {listed}", *notes]
