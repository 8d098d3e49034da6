"""The drift report's own test: draw every kind of change many times, and see what it is called.

Anyone who moves a threshold should run it: ``python -m tests.evaluation.drift.selftest --draws 20``.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphmill.errors import EXIT_CHECK_FAILED, EXIT_OK
from graphmill.evaluation.drift.figures import drift_figures
from graphmill.evaluation.drift.verdicts import DriftThresholds, drift_report
from graphmill.graph.summary import graph_difference
from graphmill.sampling.keyed import generator
from tests.evaluation.drift.synthetic import CASES


@dataclass(frozen=True)
class SelfTestResult:
    """``confusion``: what was drawn → the name it was given → how often."""

    draws: int
    confusion: dict[str, dict[str, int]]

    @property
    def mistakes(self) -> dict[str, dict[str, int]]:
        """What was given another name than its own."""
        wrong = {
            case: {name: n for name, n in given.items() if name != CASES[case][0]}
            for case, given in self.confusion.items()
        }
        return {case: given for case, given in wrong.items() if given}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        passed = not self.mistakes
        return {"draws": self.draws, "passed": passed, "confusion": self.confusion, "mistakes": self.mistakes}


def self_test(draws: int = 10, *, seed: int = 0, thresholds: DriftThresholds | None = None) -> SelfTestResult:
    """Draw each case ``draws`` times and name it."""
    confusion: dict[str, dict[str, int]] = {}
    for case, (_, draw) in CASES.items():
        given = confusion.setdefault(case, {})
        for number in range(draws):
            pair = draw(generator("drift self-test", seed, case, number))
            changed = graph_difference(pair.graph_before, pair.graph_after)
            report = drift_report(drift_figures(pair.before, pair.after), changed, thresholds)
            given[report.name] = given.get(report.name, 0) + 1
    return SelfTestResult(draws, confusion)


def main(arguments: list[str] | None = None) -> int:
    """Print the confusion matrix as JSON; exit code 1 when something was misnamed."""
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation.drift.selftest", description=__doc__)
    parser.add_argument("--draws", type=int, default=20, help="draws of each case")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    result = self_test(options.draws, seed=options.seed)
    print(json.dumps(result.to_dict(), indent=2))
    return EXIT_CHECK_FAILED if result.mistakes else EXIT_OK


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    sys.exit(main())
