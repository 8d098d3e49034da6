"""What every settings model does, whatever its fields."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, create_model

import graphmill
from graphmill.errors import SettingsError
from graphmill.runs.resolve import read_settings
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
    with pytest.raises(SettingsError, match=r"^x\.yaml: acceleration[.a-z]*: [^\n]*no value"):
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

    result = {f"{each.__module__}.{each.__qualname__}": each for each in below(BaseModel)}
    return {name: model for name, model in result.items() if name.startswith("graphmill.")}


def test_every_name_default_and_choice_is_read_as_the_word_that_it_is() -> None:
    """YAML reads off and 1:30 as something else, so that neither a file nor the Launchpad would get the word."""
    result = models()
    assert {"graphmill.systems.hgt.settings.HgtSettings", "graphmill.components.embedding_model.EmbeddingModel"} <= set(
        result
    )
    misread = {
        f"{name}.{field}: {word}"
        for name, model in result.items()
        for field, word in words_of(model)
        if any(map(str.isalnum, word)) and yaml.safe_load(word) != word
    }
    assert not misread


def test_a_word_that_yaml_reads_as_a_boolean_would_be_noticed() -> None:
    odd = create_model("Odd", __base__=Settings, field=(list[Literal["on", "auto"]], ["auto"]), y=(str, "1:30"))
    assert {word for _, word in words_of(odd) if yaml.safe_load(word) != word} == {"on", "1:30"}


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"lr_decay = 'steps': .*'none', 'cosine'"):
        parse(TrainingSettings, {"lr_decay": "steps"}, "settings.yaml")


def test_an_unknown_name_in_a_list_of_mappings_says_what_is_known_there() -> None:
    from graphmill.ingest.kg_files import KgFilesSettings

    with pytest.raises(SettingsError, match=r"unknown setting 'edges\.0\.relations' .*'relation'"):
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
HGT = 27
"""Until it is divided into the layers and the blend."""


@pytest.mark.parametrize("section", SHARED)
def test_a_shared_section_has_few_settings(section: str) -> None:
    model, most = SHARED[section]
    assert len(model.model_fields) <= most, sorted(model.model_fields)


@pytest.mark.parametrize("system", registry.SYSTEMS)
def test_a_system_has_few_settings_of_its_own(system: str) -> None:
    """Those of its own sections, and those that it adds to the shared ones."""
    result = []
    for section, field in registry.settings_model(system).model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, Settings):
            shared = SHARED[section][0].model_fields if section in SHARED else {}
            result += [f"{section}.{name}" for name in model.model_fields if name not in shared]
    assert len(result) <= (HGT if system == "hgt" else MOST_OF_A_SYSTEM), result


@pytest.mark.parametrize("written", ["complex", "HGT", "Item-kNN", "item knn"])
def test_a_systems_name_stands_for_its_defaults_beside_a_folder_of_that_name(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / written).mkdir()
    system = read_settings(Path(written))["system"]
    assert system == written.lower().replace("-", "_").replace(" ", "_")
