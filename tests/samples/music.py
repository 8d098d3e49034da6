"""Synthetic listening data with planted tastes. Features describe every item; facts describe rare items best.

Model. A track has a genre and a mood, each with a latent direction of its own; its latent vector is their sum plus a
small part of its own. A listener's taste is two genres and a mood. A listener's tracks are drawn without replacement
with weights exp(taste · track / temperature) × popularity, popularity being Zipf's over tracks in a random order.

``audio`` and ``text`` features are noisy linear images of a track's latent vector (audio: mood more, text: genre more),
so that features are informative of every track, seen in training or not. Facts state each track's genre, artist (an
artist has one genre) and label; for half of the popular tracks genre and artist are left out, so that facts are
complete for tracks with few interactions.

Oracle. ``affinity`` [U, I] is the log of the planted weights, popularity included: ranking by it is the best that any
recommender can do on average, and ranking by popularity alone is far below it (tested).
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np

from tests.samples.music_names import ARTISTS, GENRES, LABELS, MOODS, listener_names, track_names

_SHAPES = {"tiny": (400, 240, 14), "small": (3000, 1500, 24), "paper": (14_125, 80_735, 358)}
"""Users, items, mean interactions a user; paper: the shape of Music4All, for timing and memory."""
PRESETS = tuple(_SHAPES)
WIDTHS = {"audio": 24, "text": 16}
PAPER_WIDTHS = {"audio": 1024, "text": 384}
RELATIONS = ("genre", "artist", "label")
DIM = 16
TEMPERATURE = 0.35
POPULAR = 0.5
"""Part of the tracks that count as popular: half of these have only their label in the facts."""
_BLOCK = 512


class Music:
    """One sample; the same for the same preset and seed.

    ``user``, ``item``, ``split`` int64, one row per interaction (0 train, 1 valid, 2 test; 8 : 1 : 1 of each listener
    at random). ``facts`` int64 [F, 3]: item, relation, entity; ``features``: float32 [I, f] by name.
    """

    def __init__(self, preset: str, seed: int = 0) -> None:
        self.users, self.items, mean = _SHAPES[preset]
        self._rng = rng = np.random.default_rng(seed)
        genre_of = rng.integers(len(GENRES), size=self.items)
        mood_of = rng.integers(len(MOODS), size=self.items)
        genres, moods = _directions(rng, len(GENRES)), _directions(rng, len(MOODS))
        self._latent = genres[genre_of] + 0.7 * moods[mood_of] + 0.25 * rng.normal(size=(self.items, DIM)) / DIM**0.5
        likes = rng.integers(len(GENRES), size=(self.users, 2))
        self._taste = (
            genres[likes[:, 0]] + 0.6 * genres[likes[:, 1]] + 0.5 * moods[rng.integers(len(MOODS), size=self.users)]
        )
        rank = rng.permutation(self.items)
        self.popularity = 1.0 / (rank + 10.0)
        self.user, self.item = self._listen(mean)
        self.split = self._split()
        self.features = self._features(PAPER_WIDTHS if preset == "paper" else WIDTHS)
        self.facts, self.entity_names = self._facts(genre_of, rank)

    def affinity(self, users: np.ndarray) -> np.ndarray:
        """float64 [B, I]: the log of the planted weights of these users."""
        return self._taste[users] @ self._latent.T / TEMPERATURE + np.log(self.popularity)

    def _listen(self, mean: int) -> tuple[np.ndarray, np.ndarray]:
        """Gumbel's trick: the items with the highest affinity + noise are a draw without replacement."""
        rng = self._rng
        most = min(3 * mean, self.items // 2)
        counts = np.clip(np.rint(rng.lognormal(np.log(mean) - 0.125, 0.5, self.users)), 5, most).astype(np.int64)
        result = []
        for start in range(0, self.users, _BLOCK):
            users = np.arange(start, min(start + _BLOCK, self.users))
            noisy = self.affinity(users) + rng.gumbel(size=(len(users), self.items))
            top = np.argpartition(-noisy, most, axis=1)[:, : most + 1]
            order = np.argsort(-np.take_along_axis(noisy, top, 1), axis=1)
            ranked = np.take_along_axis(top, order, 1)
            result += [row[:n] for row, n in zip(ranked, counts[users], strict=True)]
        return np.repeat(np.arange(self.users), counts), np.concatenate(result)

    def _split(self) -> np.ndarray:
        counts = np.bincount(self.user, minlength=self.users)
        order = np.lexsort((self._rng.random(len(self.user)), self.user))
        place = np.empty(len(self.user), np.int64)
        place[order] = np.arange(len(self.user)) - np.repeat(np.cumsum(counts) - counts, counts)
        held_out = np.maximum(counts // 10, 1)[self.user]
        return np.where(place < held_out, 2, np.where(place < 2 * held_out, 1, 0))

    def _features(self, widths: dict[str, int]) -> dict[str, np.ndarray]:
        out = {}
        for name, width in widths.items():
            image = self._rng.normal(size=(DIM, width)) / DIM**0.5
            noise = self._rng.normal(size=(self.items, width))
            out[name] = (self._latent @ image + 0.15 * noise).astype(np.float32)
        return out

    def _facts(self, genre_of: np.ndarray, rank: np.ndarray) -> tuple[np.ndarray, list[str]]:
        rng = self._rng
        artists = max(self.items // 8, len(GENRES))
        of_artist = np.arange(artists) % len(GENRES)
        artist = rng.integers(artists // len(GENRES), size=self.items) * len(GENRES) + genre_of
        label = rng.integers(len(LABELS), size=self.items)
        first = self.items + np.cumsum([0, len(GENRES), artists])
        bare = (rank < POPULAR * self.items) & (rng.random(self.items) < 0.5)
        items = np.arange(self.items)
        columns = [
            (items[~bare], 0, first[0] + genre_of[~bare]),
            (items[~bare], 1, first[1] + artist[~bare]),
            (items, 2, first[2] + label),
            (first[1] + np.arange(artists), 0, first[0] + of_artist),
        ]
        facts = np.concatenate([np.stack([h, np.full(len(h), r), t], 1) for h, r, t in columns])
        names = [*GENRES, *(f"{ARTISTS[i % len(ARTISTS)]}_{i // len(ARTISTS)}" for i in range(artists)), *LABELS]
        return facts, names

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Name and content of each file: ``music.inter`` (mmrec), the features with their ids, and the facts in KGAT's
        format."""
        rows = zip(self.user.tolist(), self.item.tolist(), self.split.tolist(), strict=True)
        yield "music.inter", ("userID\titemID\tx_label\n" + "".join(f"{u}\t{i}\t{s}\n" for u, i, s in rows)).encode()
        ids = "".join(f"{i}\n" for i in range(self.items)).encode()
        for name, values in self.features.items():
            buffer = io.BytesIO()
            np.save(buffer, values)
            yield f"{name}_feat.npy", buffer.getvalue()
            yield f"{name}_feat.ids.txt", ids
        yield "kg_final.txt", "".join(f"{h} {r} {t}\n" for h, r, t in self.facts.tolist()).encode()
        tracks = track_names(self.items)
        yield "user_list.txt", _list(listener_names(self.users))
        yield "item_list.txt", _list(tracks)
        yield "entity_list.txt", _list([*tracks, *self.entity_names])
        yield "relation_list.txt", _list(list(RELATIONS))


def _directions(rng: np.random.Generator, count: int) -> np.ndarray:
    result = rng.normal(size=(count, DIM))
    unit: np.ndarray = result / np.linalg.norm(result, axis=1, keepdims=True)
    return unit


def _list(names: list[str]) -> bytes:
    return ("org_id remap_id\n" + "".join(f"{name} {number}\n" for number, name in enumerate(names))).encode()
