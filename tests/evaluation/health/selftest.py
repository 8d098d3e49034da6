"""The validator's own test: draw every failure and healthy embeddings many times, and see which checks fail.

Anyone who moves a threshold should run it: ``python -m tests.evaluation.health.selftest --draws 50``.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.errors import EXIT_CHECK_FAILED, EXIT_OK
from graphmill.evaluation.health.checks import HealthThresholds
from graphmill.evaluation.health.report import health_report
from graphmill.evaluation.ranking.queries import LinkQueries, relation_queries
from graphmill.sampling.keyed import generator
from tests.evaluation.health.synthetic import FAILING, HEALTHY, SEEN_BY, Case, Size

if TYPE_CHECKING:
    import torch

    from graphmill.evaluation.ranking.links import LinkRanking

PASSED, SEEN = "healthy", "seen"


@dataclass(frozen=True)
class SelfTestResult:
    """``confusion``: drawn case → what was found → how often; ``healthy``: the cases that must pass. Found is "healthy" if
    no check fails, "seen" if a check that is for the case does, else the failing checks."""

    draws: int
    confusion: dict[str, dict[str, int]]
    healthy: tuple[str, ...]

    @property
    def mistakes(self) -> dict[str, dict[str, int]]:
        """Failures that no check for them saw, and healthy cases that did not pass."""
        right = {case: PASSED if case in self.healthy else SEEN for case in self.confusion}
        wrong = {
            case: {name: count for name, count in given.items() if name != right[case]}
            for case, given in self.confusion.items()
        }
        return {case: given for case, given in wrong.items() if given}

    @property
    def passed(self) -> bool:
        """Every draw of every case was judged right."""
        return not self.mistakes

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "draws": self.draws,
            "passed": self.passed,
            "confusion": self.confusion,
            "healthy": list(self.healthy),
            "mistakes": self.mistakes,
        }


def self_test(
    draws: int = 50, *, seed: int = 0, size: Size | None = None, thresholds: HealthThresholds | None = None
) -> SelfTestResult:
    """Draw each case ``draws`` times and judge it. Cases with planted links (needs torch) are also ranked on them."""
    size = size or Size()
    names = [f"type_{code}" for code in range(size.types)]
    confusion: dict[str, dict[str, int]] = {}
    for case, draw in {**FAILING, **HEALTHY}.items():
        given = confusion.setdefault(case, {})
        for number in range(draws):
            drawn = draw(generator("self-test", seed, case, number), size)
            ranking = _ranking(drawn) if len(drawn.links) else None
            report = health_report(drawn.X, drawn.types, names, thresholds=thresholds, ranking=ranking)
            failing = {verdict.name for verdict in report.verdicts if verdict.status == "fail"}
            seen = SEEN if failing & SEEN_BY.get(case, set()) else ", ".join(sorted(failing)) or PASSED
            given[seen] = given.get(seen, 0) + 1
    return SelfTestResult(draws, confusion, tuple(HEALTHY))


def _ranking(case: Case) -> "LinkRanking":
    """Rank the case's links among all rows by cosine."""
    from graphmill.evaluation.ranking.links import rank_links

    rows = len(case.X)
    heads, tails = case.links.T
    none = np.zeros(0, dtype=np.int64)
    queries = relation_queries(0, "planted", (heads, tails), (none, none), (), rows, rows)
    return rank_links(_Cosine(case.X), LinkQueries("test", (queries,)))


class _Cosine:
    def __init__(self, X: np.ndarray) -> None:
        self.unit = X / np.linalg.norm(X, axis=1, keepdims=True)

    def score_targets(self, relation: int, heads: np.ndarray) -> "torch.Tensor":
        import torch

        return torch.from_numpy(self.unit[heads] @ self.unit.T)


def main(arguments: list[str] | None = None) -> int:
    """Print the confusion matrix as JSON; exit code 1 when something was misjudged."""
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation.health.selftest", description=__doc__)
    parser.add_argument("--draws", type=int, default=50, help="draws of each case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=Size.rows)
    parser.add_argument("--dimensions", type=int, default=Size.dimensions)
    parser.add_argument("--types", type=int, default=Size.types)
    options = parser.parse_args(arguments)
    size = Size(options.rows, options.dimensions, options.types)
    result = self_test(options.draws, seed=options.seed, size=size)
    print(json.dumps(result.to_dict(), indent=2))
    return EXIT_OK if result.passed else EXIT_CHECK_FAILED


if __name__ == "__main__":
    sys.exit(main())
