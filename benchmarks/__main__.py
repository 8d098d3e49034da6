"""``python -m benchmarks``: a line a file of committed results, then what misses its target."""

from benchmarks.parts.report import report

print(report())
