"""What every settings model does, whatever its fields."""

from typing import Literal

import pytest
import yaml

from graphmill.errors import SettingsError
from graphmill.settings import Settings, parse, setting
from graphmill.training.settings import TrainingSettings


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


@pytest.mark.parametrize("setting", ["acceleration.compile=off", "acceleration.deterministic=on", "model.mhc=off"])
def test_the_command_line_and_singles_take_them_as_the_docs_print_them(setting: str) -> None:
    from graphmill.runs.acceleration_report import _parsed
    from graphmill.runs.resolve import parse_settings

    values = {"recipe": "sasrec", "data": "x", **_parsed(setting)}
    section, name = setting.partition("=")[0].split(".")
    assert getattr(getattr(parse_settings(values, "x"), section), name) == setting.partition("=")[2]


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"optimizer = 'lazy_adamw': .*'adamw', 'adam'"):
        parse(TrainingSettings, {"optimizer": "lazy_adamw"}, "settings.yaml")


def test_an_unknown_name_in_a_list_of_mappings_says_what_is_known_there() -> None:
    from graphmill.ingest.kg_files import KgFilesSettings

    with pytest.raises(
        SettingsError, match=r"unknown setting 'edges\.0\.relations' \(did you mean 'relation'\? known here: file"
    ):
        parse(KgFilesSettings, {"edges": [{"file": "a.csv", "relations": "r"}]}, "defs.yaml")
