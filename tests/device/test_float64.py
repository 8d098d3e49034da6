"""MPS has no float64: a tensor is copied to the CPU first, and widened there."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
ON_THE_CPU = {"graphmill/training/guards.py"}
"""Modules that widen only tensors that they know to be on the CPU."""


def test_a_tensor_is_on_the_cpu_before_it_is_widened() -> None:
    result = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            widened = re.findall(r"(\.cpu\(\))?\.(?:double\(\)|to\(torch\.(?:float64|double)\))", line)
            if "" in widened and name not in ON_THE_CPU:
                result.append(f"{name}:{number} {line.strip()}")
    assert result == []
