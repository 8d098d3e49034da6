"""Invented names of listeners, tracks, artists and labels for the music sample: one word each, no two alike."""

from __future__ import annotations

GENRES = ("ambient", "bebop", "chanson", "dub", "fado", "garage", "highlife", "samba", "shoegaze", "techno")
MOODS = ("bright", "calm", "dark", "dreamy", "tense", "warm")
LABELS = (
    "Amber_Records", "Blue_Door", "Cinder_Tapes", "Delta_House", "Echo_Yard", "Far_Shore", "Gold_Thread", "Hill_Top"
)  # fmt: skip
ARTISTS = tuple(
    f"{first}_{second}"
    for first in ("Silent", "Paper", "Velvet", "Northern", "Second", "Electric", "Small", "Winter", "Copper", "Open")
    for second in ("Rivers", "Gardens", "Choir", "Engines", "Weather", "Cities", "Animals", "Letters")
)
_FIRST = ("Glass", "River", "Salt", "Neon", "Ivory", "Dust", "Moon", "Harbour", "Lantern", "Orchard", "Static", "Cedar")
_SECOND = (
    "Song", "Street", "Morning", "Signal", "Waltz", "Garden", "Shadow", "Letter", "Window", "Fire", "Rain", "Hour"
)  # fmt: skip
_LISTENERS = (
    "ada", "ben", "chi", "dov", "eli", "fay", "gus", "hoa", "ina", "jon", "kei", "lev", "mia", "noa", "oli", "pia"
)  # fmt: skip


def track_names(count: int) -> list[str]:
    """``count`` names such as ``Glass_Song_0``."""
    return [f"{_FIRST[i % 12]}_{_SECOND[i // 12 % 12]}_{i // 144}" for i in range(count)]


def listener_names(count: int) -> list[str]:
    """``count`` names such as ``ada_0``."""
    return [f"{_LISTENERS[i % 16]}_{i // 16}" for i in range(count)]
