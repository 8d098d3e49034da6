"""What a pretended device has counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What has happened on the device since :meth:`clear`; the counters go by place or by operator."""

    launches: int = 0
    views: int = 0
    to_device_bytes: int = 0
    to_host_bytes: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    live_bytes: int = 0
    peak_bytes: int = 0

    def clear(self) -> None:
        """Begin again; the living bytes stay."""
        fresh = Tally(live_bytes=self.live_bytes, peak_bytes=self.live_bytes)
        self.__dict__.update(fresh.__dict__)

    def counts(self) -> tuple[int, int]:
        """(launches, waits) so far."""
        return self.launches, sum(self.waits.values())
