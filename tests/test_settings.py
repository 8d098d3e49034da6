"""What every settings model does, whatever its fields; and settings that an earlier release had."""

import importlib
import pkgutil
import warnings
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, create_model

import graphmill
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

    compile: Literal["none", "default"] = setting("default", "a choice with a word for no")
    deterministic: Literal["auto", "always", "never"] = setting("auto", "a choice with words for both")
    loss: Literal["bpr", "softmax"] = setting("bpr", "a choice without")
    csv: bool = setting(True, "a switch")


class Outer(Settings):
    """Sections."""

    acceleration: Inner = setting(Inner(), "a section")


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [("compile: off", "compile", "write none (or default)"), ("deterministic: on", "deterministic", "write always"),
     ("deterministic: no", "deterministic", "write never"), ("compile: yes", "compile", "write one of none, default"),
     ("loss: off", "loss", "write one of bpr, softmax"), ("deterministic: 'off'", "deterministic", "'never'")],
)  # fmt: skip
def test_a_boolean_is_no_choice_and_the_sentence_names_the_word_to_write(text: str, path: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(Outer, {"acceleration": yaml.safe_load(text)}, "x.yaml")
    assert f"acceleration.{path} = " in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_off_turns_a_switch_off() -> None:
    assert parse(Outer, {"acceleration": yaml.safe_load("csv: off")}, "x.yaml").acceleration.csv is False


@pytest.mark.parametrize("text", ["acceleration: {compile: }", "acceleration: {csv: }", "acceleration:"])
def test_a_setting_without_a_value_is_one_sentence(text: str) -> None:
    with pytest.raises(
        SettingsError, match=r"^x\.yaml: acceleration[.a-z]*: it has no value; write one, or remove the line$"
    ):
        parse(Outer, yaml.safe_load(text), "x.yaml")


def words_of(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Each field of ``model`` with the words that a person may write for it: its name, its default, its choices."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple | dict):
            for each in value:
                yield from texts(each)

    def choices(annotation: Any) -> Iterator[Any]:
        for inner in get_args(annotation):
            yield from texts(inner) if get_origin(annotation) is Literal else choices(inner)

    for name, field in model.model_fields.items():
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        yield from ((name, word) for word in (name, *texts(default), *choices(field.annotation)))


def models() -> dict[str, type[BaseModel]]:
    """Every pydantic model of the package: settings, components and their sections, resources."""
    for module in pkgutil.walk_packages(graphmill.__path__, "graphmill."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
        for each in model.__subclasses__():
            yield each
            yield from below(each)

    found = {f"{each.__module__}.{each.__qualname__}": each for each in below(BaseModel)}
    return {name: model for name, model in found.items() if name.startswith("graphmill.")}


def test_every_name_default_and_choice_is_read_as_the_word_that_it_is() -> None:
    """YAML reads off and 1:30 as something else, so that neither a file nor the Launchpad would get the word."""
    found = models()
    assert {"graphmill.systems.hgt.settings.HgtSettings", "graphmill.components.alerts.Alerts"} <= set(found)
    misread = {
        f"{name}.{field}: {word}"
        for name, model in found.items()
        for field, word in words_of(model)
        if any(map(str.isalnum, word)) and yaml.safe_load(word) != word
    }
    assert not misread


def test_a_word_that_yaml_reads_as_a_boolean_would_be_noticed() -> None:
    odd = create_model("Odd", __base__=Settings, field=(list[Literal["on", "auto"]], ["auto"]), y=(str, "1:30"))
    assert {word for _, word in words_of(odd) if yaml.safe_load(word) != word} == {"on", "1:30"}


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
