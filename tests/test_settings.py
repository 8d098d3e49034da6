"""Settings that an earlier release had: files that hold their default are read, others are refused in one sentence."""

import pytest

from graphmill.errors import SettingsError
from graphmill.settings import identity_of, parse
from graphmill.training.settings import TrainingSettings


def test_a_retired_setting_at_its_default_is_read_and_keeps_the_fingerprint() -> None:
    with_it, without = (parse(TrainingSettings, values, "settings.yaml") for values in ({"moments": "fp32"}, {}))
    assert with_it == without
    assert identity_of(without)["moments"] == "fp32"


def test_a_retired_setting_in_use_is_refused_with_what_to_write() -> None:
    with pytest.raises(SettingsError, match=r"moments: bf16 is no longer there: .* leave the setting out"):
        parse(TrainingSettings, {"moments": "bf16"}, "settings.yaml")


def test_a_retired_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"optimizer = 'lazy_adamw': .*'adamw', 'adam' or 'sgd'"):
        parse(TrainingSettings, {"optimizer": "lazy_adamw"}, "settings.yaml")
