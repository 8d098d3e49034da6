"""The worker's messages as people read them."""

import math
import re

import pytest

from graphmill.orchestration.messages import progress_metadata, started_line
from graphmill.reports.training_curves import Curve, total_loss
from graphmill.runs.messages import duration, progress_line


def test_a_line_says_how_the_training_goes() -> None:
    message = {
        "epoch": 3,
        "epochs": 10,
        "step": 7,
        "losses": {"link": 0.51234, "total": 1.5},
        "per_second": {"edges": 12345.6},
        "valid": {"mrr": 0.25, "hits@1": 0.1},
        "seconds_left": 120,
    }
    assert progress_line(message) == "link: 0.5123  total: 1.5000  12,346 edges/s  mrr 0.2500  2 min left"


def test_a_closed_form_has_no_rate() -> None:
    message = {"epoch": 1, "epochs": 1, "losses": {}, "per_second": {}, "valid": {"mrr": 0.25}}
    assert progress_line(message) == "mrr 0.2500"
    assert progress_line({**message, "valid": {}})


def test_figures_of_the_test_split_are_not_shown_as_validation() -> None:
    message = {"epoch": 3, "valid": {"mrr": 0.25}}
    assert progress_metadata(message)["valid_mrr"] == 0.25
    output = progress_metadata({**message, "split": "test"})
    assert output["test_mrr"] == 0.25
    assert "valid_mrr" not in output


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ({"device": "cuda", "device_reason": "auto took cuda"}, r"cuda \(auto took cuda\)"),
        ({"device": "cpu", "resumed_from_epoch": 4}, "cpu .* after epoch 4"),
        ({"reused": True, "run_dir": "r"}, "reused: r$"),
    ],
)
def test_the_start_says_on_what_and_from_where(message: dict, line: str) -> None:
    assert re.search(line, started_line(message))


@pytest.mark.parametrize(("seconds", "said"), [(45, "45 s"), (600, "10 min"), (11100, "3 h 5 min")])
def test_durations_are_said_as_people_do(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_the_total_of_several_phases_is_the_sum_of_theirs() -> None:
    assert total_loss({"bce": 1.0, "total": 1.5}) == 1.5
    assert total_loss({"cf/bpr": 0.5, "cf/total": 0.75, "kg/total": 0.25}) == 1.0
    assert math.isnan(total_loss({"cf/total": "nan", "kg/total": 0.25}))


def test_a_curve_is_judged_by_its_ends_and_its_scatter() -> None:
    assert Curve([4.0, 3.0, 2.0, 1.0]).drop == 3.0
    assert Curve([1.0, math.inf, 1.0]).first_nonfinite == 2
    assert math.isnan(Curve([1.0]).drop)
