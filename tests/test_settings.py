"""What every settings model does, whatever its fields."""

from typing import Literal

import pytest
import yaml

from graphmill.errors import SettingsError
from graphmill.settings import Settings, parse, setting
from graphmill.systems import registry
from graphmill.training.settings import (
    AccelerationSettings,
    EvaluationSettings,
    ExportSettings,
    TrackerSettings,
    TrainingSettings,
)


class Inner(Settings):
    """A section."""

    compile: Literal["off", "default"] = setting("default", "a choice with off")
    deterministic: Literal["auto", "on", "off"] = setting("auto", "a choice with both")
    resume: Literal["auto", "never"] = setting("auto", "a choice without")
    csv: bool = setting(True, "a switch")


class Outer(Settings):
    """Sections."""

    acceleration: Inner = setting(Inner(), "a section")


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [("compile: off", "compile", "off"), ("deterministic: on", "deterministic", "on"),
     ("deterministic: no", "deterministic", "off"), ("deterministic: 'off'", "deterministic", "off"),
     ("csv: off", "csv", False)],
)  # fmt: skip
def test_yaml_off_and_on_are_the_choices_of_that_name(text: str, name: str, expected: object) -> None:
    found = parse(Outer, {"acceleration": yaml.safe_load(text)}, "x.yaml")
    assert getattr(found.acceleration, name) == expected


@pytest.mark.parametrize("text", ["compile: on", "resume: off"])
def test_where_there_is_no_such_choice_the_value_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"x\.yaml: acceleration\."):
        parse(Outer, {"acceleration": yaml.safe_load(text)}, "x.yaml")


@pytest.mark.parametrize("setting", ["acceleration.compile=off", "model.mhc=off"])
def test_the_command_line_and_singles_take_them_as_the_docs_print_them(setting: str) -> None:
    from graphmill.diagnostics.acceleration_report import _parsed
    from graphmill.runs.resolve import parse_settings

    values = {"recipe": "sasrec", "data": "x", **_parsed(setting)}
    section, name = setting.partition("=")[0].split(".")
    assert getattr(getattr(parse_settings(values, "x"), section), name) == setting.partition("=")[2]


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"lr_decay = 'steps': .*'none', 'cosine'"):
        parse(TrainingSettings, {"lr_decay": "steps"}, "settings.yaml")


def test_an_unknown_name_in_a_list_of_mappings_says_what_is_known_there() -> None:
    from graphmill.ingest.kg_files import KgFilesSettings

    with pytest.raises(
        SettingsError, match=r"unknown setting 'edges\.0\.relations' \(did you mean 'relation'\? known here: file"
    ):
        parse(KgFilesSettings, {"edges": [{"file": "a.csv", "relations": "r"}]}, "defs.yaml")


# -- how many there are ----------------------------------------------------------------------------------------------

SHARED: dict[str, tuple[type[Settings], int]] = {
    "training": (TrainingSettings, 10),
    "acceleration": (AccelerationSettings, 16),
    "evaluation": (EvaluationSettings, 6),
    "export": (ExportSettings, 3),
    "tracker": (TrackerSettings, 3),
}
MOST_OF_A_SYSTEM = 12
HGT = 31
"""Until it is divided into the layers and the blend."""


@pytest.mark.parametrize("section", SHARED)
def test_a_shared_section_has_few_settings(section: str) -> None:
    model, most = SHARED[section]
    assert len(model.model_fields) <= most, sorted(model.model_fields)


@pytest.mark.parametrize("system", registry.RECIPES)
def test_a_system_has_few_settings_of_its_own(system: str) -> None:
    """Those of its own sections, and those that it adds to the shared ones."""
    found = []
    for section, field in registry.settings_model(system).model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, Settings):
            shared = SHARED[section][0].model_fields if section in SHARED else {}
            found += [f"{section}.{name}" for name in model.model_fields if name not in shared]
    assert len(found) <= (HGT if system == "hgt" else MOST_OF_A_SYSTEM), found
