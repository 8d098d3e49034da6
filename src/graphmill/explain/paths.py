"""Paths of two or three edges from a head to a tail, among edges that have shares of a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Edge = tuple[int, int]
"""The two nodes of an undirected pair, as global numbers."""


@dataclass(frozen=True)
class Path:
    """``nodes``: global numbers from head to tail. ``pairs``: the path's undirected pairs. ``strength``: the smallest
    share."""

    nodes: tuple[int, ...]
    pairs: tuple[int, ...]
    strength: float


def strongest_paths(
    ends: Mapping[int, Edge], shares: Mapping[int, float], head: int, tail: int, count: int
) -> list[Path]:
    """The ``count`` strongest paths of two or three edges with positive shares, without the pair of head and tail itself.

    ``ends``: pair → its two nodes; ``shares``: pair → its share. A path is as strong as its weakest edge. Of equally
    strong paths, the shorter comes first.
    """
    around: dict[int, list[tuple[int, int]]] = {}
    for pair, (u, v) in ends.items():
        if shares.get(pair, 0.0) > 0 and u != v and {u, v} != {head, tail}:
            around.setdefault(u, []).append((v, pair))
            around.setdefault(v, []).append((u, pair))
    last: dict[int, list[int]] = {}
    for node, pair in around.get(tail, ()):
        last.setdefault(node, []).append(pair)
    result: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for middle, first in around.get(head, ()):
        result += [((head, middle, tail), (first, end)) for end in last.get(middle, ())]
        for other, second in around.get(middle, ()):
            if other not in (head, tail):
                result += [((head, middle, other, tail), (first, second, end)) for end in last.get(other, ())]
    paths = [Path(nodes, pairs, min(shares[pair] for pair in pairs)) for nodes, pairs in result]
    return sorted(paths, key=lambda path: (-path.strength, len(path.nodes), path.nodes))[:count]


def joined(names: Sequence[str], relations: Sequence[str]) -> str:
    """``a –r– b –s– c`` from the nodes' names and the edges' relations."""
    parts = [names[0]]
    for relation, name in zip(relations, names[1:], strict=True):
        parts.append(f"–{relation}– {name}")
    return " ".join(parts)
