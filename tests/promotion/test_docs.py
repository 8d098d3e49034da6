"""The pages name every setting, finding and message of their subject."""

from pathlib import Path
from typing import get_args

from graphmill.evaluation.drift.verdicts import DriftThresholds, Name
from graphmill.promotion.policy import PromotionSettings
from tests.evaluation.drift.synthetic import CASES


def test_every_setting_of_promotion_is_explained(repository: Path) -> None:
    page = (repository / "docs" / "how-to" / "promote_and_roll_back.md").read_text()
    assert [name for name in PromotionSettings.model_fields if f"`{name}" not in page and f"{name}:" not in page] == []


def test_every_finding_of_drift_is_explained_and_drawn_in_the_self_test(repository: Path) -> None:
    page = (repository / "docs" / "how-to" / "did_my_embeddings_move.md").read_text()
    names = get_args(Name)
    assert [name for name in names if f"`{name}`" not in page] == []
    assert set(names) - {name for name, _ in CASES.values()} == {"nodes_vanished"}
    settings = set(DriftThresholds.model_fields)
    assert [name for name in settings if name not in page] == []
