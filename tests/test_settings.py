"""What every settings model does, whatever its fields; and settings that an earlier release had."""

import warnings
from typing import Any, Literal

import pytest
import yaml

from graphmill.errors import SettingsError
from graphmill.promotion.policy import PromotionSettings
from graphmill.settings import (
    RenamedSetting,
    Settings,
    identity_of,
    name_of_today,
    parse,
    setting,
    written_by_graphmill,
)
from graphmill.systems.hgt.settings import HgtSettings
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
    from graphmill.diagnostics.acceleration_report import _parsed
    from graphmill.runs.resolve import parse_settings

    values = {"recipe": "sasrec", "data": "x", **_parsed(setting)}
    section, name = setting.partition("=")[0].split(".")
    assert getattr(getattr(parse_settings(values, "x"), section), name) == setting.partition("=")[2]


def test_a_retired_setting_at_its_default_is_read_and_keeps_the_fingerprint() -> None:
    with_it, without = (parse(TrainingSettings, values, "settings.yaml") for values in ({"moments": "fp32"}, {}))
    assert with_it == without
    assert identity_of(without)["moments"] == "fp32"


@pytest.mark.parametrize(
    ("recipe", "section", "name", "value"),
    [
        ("hgt", "training", "moments", "bf16"),
        ("hgt", "training", "relation_decay", 2.0),
        ("hgt", "objective", "negatives", "degree"),
        ("conve", "acceleration", "max_skips", 3),
        ("conve", "objective", "smoothing_convention", "dettmers"),
        ("conve", "objective", "entity_chunk", 5000),
    ],
)
def test_a_retired_setting_in_use_is_refused_with_what_to_write(
    recipe: str, section: str, name: str, value: Any
) -> None:
    from graphmill.runs.resolve import parse_settings

    said = rf"{section}\.{name}: {value!r} is no longer available: .* leave (it|the setting) out"
    with pytest.raises(SettingsError, match=said):
        parse_settings({"recipe": recipe, "data": "x", section: {name: value}}, "settings.yaml")


_RENAMED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("conve", {"acceleration": {"accumulation_steps": 3}}, {"acceleration": {"loss_chunks": 3}}),
    (
        "hgt",
        {"acceleration": {"accumulation_steps": 3, "edge_sample_size": 9, "num_neighbors": [1, 2]}},
        {
            "acceleration": {"loss_chunks": 3},
            "sampling": {"accumulation_steps": 3, "edge_sample_size": 9, "num_neighbors": [1, 2]},
        },
    ),
    ("kgat", {"evaluation": {"floors": False}}, {"evaluation": {"baselines": []}}),
    ("sasrec", {"training": {"lr_floor": 0.2}}, {"training": {"lr_lowest": 0.2}}),
]


@pytest.mark.parametrize(("recipe", "before", "today"), _RENAMED)
def test_a_renamed_setting_is_read_with_a_warning_and_keeps_the_fingerprint(
    recipe: str, before: dict[str, Any], today: dict[str, Any]
) -> None:
    from graphmill.runs.resolve import identity, parse_settings

    (section, fields), *_ = before.items()
    with pytest.warns(RenamedSetting, match=rf"{section}\.{next(iter(fields))} is now called \w+\.\w+.*still read"):
        old = parse_settings({"recipe": recipe, **before}, "x.yaml")
    new = parse_settings({"recipe": recipe, **today}, "x.yaml")
    assert old == new
    known = identity(new)
    for section, fields in before.items():
        for name, value in fields.items():
            assert known.get(section, {name: value})[name] == value, "by the name that fingerprints had"
    assert "sampling" not in known


def test_an_old_name_wins_over_a_preset_and_nobody_is_told_of_our_own_files() -> None:
    from graphmill.runs.resolve import parse_settings

    values = {"recipe": "hgt", "preset": "low_memory", "acceleration": {"edge_sample_size": 77}}
    with written_by_graphmill(), warnings.catch_warnings():
        warnings.simplefilter("error")
        found: Any = parse_settings(values, "settings.json")
    assert (found.sampling.edge_sample_size, found.sampling.accumulation_steps) == (77, 8)


def test_a_renamed_check_may_still_be_excepted_by_its_old_name() -> None:
    with pytest.warns(RenamedSetting, match="beats_the_floors is now called beats_baselines"):
        found = parse(PromotionSettings, {"except_checks": ["beats_the_floors", "mean_cosine"]}, "promote")
    assert found.except_checks == ["beats_baselines", "mean_cosine"]


def test_a_renamed_setting_can_be_searched_by_its_old_name() -> None:
    assert name_of_today(HgtSettings, "acceleration.edge_sample_size") == "sampling.edge_sample_size"
    assert name_of_today(HgtSettings, "training.learning_rate") == "training.learning_rate"


def test_a_retired_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"optimizer = 'lazy_adamw': .*'adamw', 'adam'"):
        parse(TrainingSettings, {"optimizer": "lazy_adamw"}, "settings.yaml")


def test_an_unknown_name_in_a_list_of_mappings_says_what_is_known_there() -> None:
    from graphmill.ingest.kg_files import KgFilesSettings

    with pytest.raises(SettingsError, match=r"unknown setting 'edges\.0\.relations' \(known here: file, relation"):
        parse(KgFilesSettings, {"edges": [{"file": "a.csv", "relations": "r"}]}, "defs.yaml")
