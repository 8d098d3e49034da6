"""Pictures are PNGs that fit, do not depend on global state, and say in their title what is seen."""

import re
import struct
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from graphmill.evaluation.health.report import health_report
from graphmill.evaluation.pictures import canvas
from graphmill.evaluation.pictures import embedding as pictures
from graphmill.evaluation.ranking.comparison import compare_to_baselines
from graphmill.reports import training_curves as training
from tests.evaluation.health import synthetic as cases
from tests.evaluation.ranking.test_comparison import DEGREE, MODEL

SIZE = cases.Size(rows=400, dimensions=16, types=3)
CASE = cases.decaying_clustered(np.random.default_rng(0), SIZE)
NAMES = ("drug", "disease", "gene/protein")
RECORDS = [{"epoch": e, "losses": {"link": 1 / (e + 1), "total": 2 / (e + 1)}} for e in range(10)]

PICTURES: dict[str, Callable[..., bytes]] = {
    "PCA by node type": lambda **k: pictures.pca_scatter(CASE.X, CASE.types, NAMES, **k),
    "Mean cosine": lambda **k: pictures.cosine_histograms(CASE.X, CASE.types, **k),
    "components hold 90 %": lambda **k: pictures.spectrum_curve(
        health_report(CASE.X, CASE.types, NAMES).figures.spectrum, **k
    ),
    "Loss fell from 2 at epoch 0 to 0.2 at epoch 9": lambda **k: training.loss_curve(RECORDS, **k),
    "Above every baseline in 2 of 3 relations": lambda **k: pictures.ranking_bars(
        compare_to_baselines(MODEL, {"degree": DEGREE})["relations"], **k
    ),
}


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of the pictures drawn in a test."""
    seen: list[str] = []

    def watched(figure):  # type: ignore[no-untyped-def]
        seen.append(figure.get_suptitle() or figure.axes[0].get_title())
        return canvas.png(figure)

    for module in (pictures, training):
        monkeypatch.setattr(module, "png", watched)
    return seen


def width_of(png: bytes) -> int:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int(struct.unpack(">I", png[16:20])[0])


@pytest.mark.parametrize("title", PICTURES)
def test_each_picture_fits_and_says_what_is_seen(title: str, titles: list[str]) -> None:
    data = PICTURES[title]()
    assert len(data) <= 80_000
    assert width_of(data) > 400
    assert title in titles[0]
    assert PICTURES[title]() == data  # the same bytes again


def test_a_large_scatter_of_many_types_still_fits() -> None:
    rng = np.random.default_rng(0)
    data = pictures.pca_scatter(
        rng.standard_normal((6000, 8)), rng.integers(0, 20, 6000), [f"type number {i}" for i in range(20)]
    )
    assert 30_000 < len(data) <= 80_000


def test_broken_embeddings_are_drawn_too(titles: list[str]) -> None:
    X = CASE.X.copy()
    X[::2] = np.nan
    X[1] = 0
    pictures.pca_scatter(X, CASE.types, NAMES)
    pictures.cosine_histograms(X, CASE.types)
    pictures.pca_scatter(np.full((5, 1), np.nan), np.zeros(5, dtype=int), ["only"])
    pictures.cosine_histograms(np.zeros((5, 2)), np.zeros(5, dtype=int))
    pictures.spectrum_curve(np.zeros(4))
    assert titles[-1].startswith("0 of 4 components")


def test_a_loss_that_broke_is_said_so(titles: list[str]) -> None:
    records = [{"step": i, "losses": {"link": v, "total": v}} for i, v in enumerate([1.0, "nan", 3.0, "inf"])]
    training.loss_curve(records, x="step")
    training.loss_curve(records[1:2], x="step")
    training.loss_curve([])
    rose, never, none = titles
    assert re.match("Loss rose from 1 .*to 3 .*2 values are not finite", rose)
    assert "never finite" in never
    assert "No loss" in none


def test_weighted_terms_add_up_and_raw_norms_have_a_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(training, "png", lambda figure: seen.append(figure) or b"")
    losses = {"a/link": 2.0, "a/total": 2.0, "b/softmax": 1.0, "b/n3": 30.0, "b/total": 1.3}
    weights = {"a/link": 1.0, "b/softmax": 1.0, "b/n3": 0.01}
    training.loss_curve([{"epoch": e, "losses": losses, "coefficients": weights} for e in range(1, 4)])
    (figure,) = seen
    lines, raw = ({line.get_label(): line.get_ydata()[0] for line in axes.lines} for axes in figure.axes)
    assert lines == pytest.approx({"total": 3.3, "a link": 2.0, "b softmax": 1.0, "b n3": 0.3})
    assert raw == {"b n3": 30.0}
    assert "3.3 at epoch 3" in figure.get_suptitle()


def test_pyplot_is_never_imported() -> None:
    code = (
        "import sys, numpy as np; from graphmill.evaluation.pictures import embedding as pictures;"
        "assert 'matplotlib' not in sys.modules;"
        "pictures.spectrum_curve(np.ones(4)); sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
