"""A loop that LLVM may leave without vectors must not be one whose sum depends on that.

Where a loop reads one array and stores to another, LLVM asks as it begins how far apart they lie, and goes number by number
where one begins soon behind the other, as small arrays do by chance. Element by element that is the same; a sum over the
loop is then made in another order, and two runs of one training differ in their last bits (as BPR's once did).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphmill.kernels

ROOT = Path(graphmill.kernels.__file__).parent
SOURCES = sorted(p for p in ROOT.rglob("*.py") if "runtime.jit import jit" in p.read_text(encoding="utf-8"))


def _arrays(node: ast.AST, kind: type[ast.expr_context]) -> set[str]:
    """Names of the arrays whose elements are read, or written."""
    return {
        ast.unparse(part.value)
        for part in ast.walk(node)
        if isinstance(part, ast.Subscript) and isinstance(part.ctx, kind)
    }


def sums_beside_stores(code: str) -> Iterator[str]:
    """Innermost loops that add up numbers of one array and write to another."""
    for loop in ast.walk(ast.parse(code)):
        if not isinstance(loop, ast.For) or any(isinstance(part, ast.For) for b in loop.body for part in ast.walk(b)):
            continue
        parts = [part for b in loop.body for part in ast.walk(b)]
        stored: set[str] = set().union(*(_arrays(part, ast.Store) for part in parts))
        for part in parts:
            # One augmented is read as well.
            if isinstance(part, ast.AugAssign) and isinstance(part.op, ast.Add) and isinstance(part.target, ast.Name):
                read = _arrays(part.value, ast.Load)
                if stored and read - stored:
                    yield f"line {loop.lineno}: {ast.unparse(part)}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: "/".join(path.parts[-3:]))
def test_no_sum_in_a_loop_that_stores(source: Path) -> None:
    assert list(sums_beside_stores(source.read_text(encoding="utf-8"))) == []


def test_finds_one() -> None:
    code = "for c in range(9):\n    u[c] = x[c]\n    score += u[c] * y[c]\n"
    assert list(sums_beside_stores(code)) == ["line 1: score += u[c] * y[c]"]
    assert list(sums_beside_stores("for c in range(9):\n    u[c] = x[c] + y[c]\n")) == []
