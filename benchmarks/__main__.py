"""``python -m benchmarks``: a line a file of committed results, then the first target that each misses."""

from benchmarks.parts.report import report

print(report())
