"""The Launchpad's run config is the settings: same names, types, defaults and descriptions, and back again."""

from typing import Literal

import dagster as dg
import pytest
import yaml
from dagster._config.snap import ConfigTypeSnap
from dagster_graphql.schema.run_config import default_values_yaml_from_type_snap
from dagster_shared.yaml_utils import load_run_config_yaml
from pydantic import create_model

from graphmill.errors import SettingsError
from graphmill.orchestration.run_config import config_class, paths, to_settings
from graphmill.settings import Settings, setting


class Model(Settings):
    """What is trained."""

    embedding_dim: int = setting(512, "length of an embedding", ge=1)
    dropout: float = setting(0.2, "share of activations dropped", ge=0, lt=1)
    layer_norm: bool = setting(True, "normalise after each layer")
    decoder: Literal["distmult", "dot"] = setting("distmult", "how a pair is scored")


class Evaluation(Settings):
    """What is measured."""

    metrics: list[Literal["mrr", "hits"]] = setting(["mrr", "hits"], "ranking metrics")
    top_k: list[int] = setting([1, 3, 10], "Hits@k", min_length=1)
    weights: list[float] = setting([0.5], "one a metric")
    notes: list[str] = setting([], "free words")


class Run(Settings):
    """A whole run."""

    data: str = setting("", "path of the graph")
    model: Model = setting(Model(), "the network")
    teacher: Model = setting(Model(embedding_dim=64, decoder="dot"), "a second network")
    evaluation: Evaluation = setting(Evaluation(), "the figures")
    init_from: str = setting("", "run to start from")


class Odd(Settings):
    """What YAML 1.1, which Dagster reads, and YAML 1.2, which the browser writes, read differently."""

    text: str = setting("", "a text")
    texts: list[str] = setting([], "texts")
    number: float = setting(1.0, "a number")
    numbers: list[float] = setting([], "numbers")
    count: int = setting(0, "a whole number")


def asset_with(config_type: type[dg.Config]) -> dg.AssetsDefinition:
    @dg.asset(name="trained")
    def trained(config: config_type) -> None:  # type: ignore[valid-type]
        pass

    return trained


def job_of(config_type: type[dg.Config]) -> dg.JobDefinition:
    return dg.Definitions(assets=[asset_with(config_type)]).resolve_implicit_global_asset_job_def()


def launchpad_yaml(config_type: type[dg.Config]) -> dict:
    """What the Launchpad writes out when a person asks for all defaults."""
    snapshot = job_of(config_type).get_job_index().job_snapshot
    schema = snapshot.config_schema_snapshot
    root: ConfigTypeSnap = schema.get_config_snap(snapshot.mode_def_snaps[0].root_config_key)
    text = default_values_yaml_from_type_snap(schema, root)
    return load_run_config_yaml(text)["ops"]["trained"]["config"]


def test_launchpad_writes_out_every_default() -> None:
    assert launchpad_yaml(config_class(Run())) == Run().model_dump()


def test_the_instance_supplies_the_defaults() -> None:
    settings = Run(model=Model(embedding_dim=32, dropout=1e-5), evaluation=Evaluation(metrics=["hits"]), init_from="a")
    assert launchpad_yaml(config_class(settings)) == settings.model_dump()


def test_names_types_and_descriptions_are_those_of_the_settings() -> None:
    def compare(config_type: type[dg.Config], model: type[Settings]) -> None:
        assert list(config_type.model_fields) == list(model.model_fields)
        assert config_type.__doc__ == model.__doc__
        for name, field in model.model_fields.items():
            mirrored = config_type.model_fields[name]
            assert mirrored.description == field.description
            if isinstance(field.annotation, type) and issubclass(field.annotation, Settings):
                compare(mirrored.annotation, field.annotation)
            elif field.annotation in (bool, int, str):  # each with a default, so Dagster accepts an empty value
                assert mirrored.annotation == field.annotation | None

    compare(config_class(Run()), Run)


def test_bounds_are_told_in_the_description_and_not_enforced_by_dagster() -> None:
    config_type = config_class(Run())
    model_type = config_type.model_fields["model"].annotation
    assert "≥ 1" in model_type.model_fields["embedding_dim"].description
    model_type(embedding_dim=0)  # judged by to_settings, whose message names the remedy


def test_fields_left_out_keep_the_value_of_the_instance() -> None:
    settings = Run(data="here", model=Model(decoder="dot"))
    config_type = config_class(settings, without=["data", "model.decoder"])
    assert "data" not in config_type.model_fields
    assert "decoder" not in launchpad_yaml(config_type)["model"]
    assert to_settings(config_type(), settings) == settings


def test_leaving_out_an_unknown_field_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"no field 'acceleration\.device'"):
        config_class(Run(), without=["acceleration.device"])


def test_a_run_gets_the_settings_that_were_typed_in() -> None:
    seen: list[Run] = []
    config_type = config_class(Run())

    @dg.asset(name="trained")
    def trained(config: config_type) -> None:  # type: ignore[valid-type]
        seen.append(to_settings(config, Run(), given={"data": "there", "model.layer_norm": False}))

    typed = {"model": {"embedding_dim": 8, "dropout": 0}, "evaluation": {"metrics": ["hits"], "weights": [1]}}
    assert dg.materialize([trained], run_config={"ops": {"trained": {"config": typed}}}).success
    assert seen == [
        Run(
            data="there",
            model=Model(embedding_dim=8, dropout=0, layer_norm=False),
            evaluation=Evaluation(metrics=["hits"], weights=[1]),
        )
    ]


@pytest.mark.parametrize(
    "typed",
    [
        {"model": {"decoder": "bilinear"}},
        {"evaluation": {"metrics": ["auc"]}},
        {"model": {"embedding_dim": "many"}},
        {"modle": {}},
    ],
    ids=["choice", "choice in a list", "type", "name"],
)
def test_what_the_schema_knows_is_refused_before_launch(typed: dict) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError):
        dg.validate_run_config(job_of(config_class(Run())), {"ops": {"trained": {"config": typed}}})


def test_a_violated_bound_is_one_sentence() -> None:
    config_type = config_class(Run())
    config = config_type(model=config_type.model_fields["model"].annotation(embedding_dim=0))
    with pytest.raises(SettingsError, match=r"^the Launchpad: model\.embedding_dim = 0: [^\n]*\b1$"):
        to_settings(config, Run())


READ_ALIKE = ("", "0", "017", "true", "null", "~", "1.5", "2026-01-01", "a: b", "#", "y", "none", '"', '"a"', "é")
READ_DIFFERENTLY = ("no", "On", "1:30", "1_000", "0b1", "=", "1e-3", "5e8", "0o17")


@pytest.mark.parametrize("text", [*READ_ALIKE, *READ_DIFFERENTLY])
def test_a_text_comes_back_as_it_was_and_has_quotes_where_the_browser_would_lose_it(text: str) -> None:
    settings = Odd(text=text, texts=["a", text])
    config_type = config_class(settings)
    output = launchpad_yaml(config_type)
    assert output["text"] == (f'"{text}"' if text in READ_DIFFERENTLY else text)
    assert to_settings(config_type(**output), settings) == to_settings(config_type(), settings) == settings


def test_a_number_may_be_written_with_an_exponent_alone() -> None:
    """``1e-8``, which a person writes for a rate and the browser for a small default, is text to Dagster."""
    seen: list[Odd] = []
    config_type = config_class(Odd())

    @dg.asset(name="trained")
    def trained(config: config_type) -> None:  # type: ignore[valid-type]
        seen.append(to_settings(config, Odd()))

    typed = yaml.safe_load("{number: 1e-8, numbers: [1e-3, 2]}")
    assert dg.materialize([trained], run_config={"ops": {"trained": {"config": typed}}}).success
    assert seen == [Odd(number=1e-8, numbers=[0.001, 2.0])]


@pytest.mark.parametrize("typed", [{"number": "many"}, {"number": True}, {"numbers": ["x"]}, {"numbers": [[1]]}])
def test_what_is_no_number_is_one_sentence(typed: dict) -> None:
    config_type = config_class(Odd())
    with pytest.raises(SettingsError, match=r"^the Launchpad: number[^\n]+number[^\n]*$"):
        to_settings(config_type(**typed), Odd())


@pytest.mark.parametrize("name", ["text", "texts", "number", "count"])
def test_a_value_that_was_deleted_in_the_editor_is_one_sentence(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"^the Launchpad: {name}: [^\n]*no value"):
        to_settings(config_class(Odd())(**{name: None}), Odd())


@pytest.mark.parametrize("annotation", [int | str, tuple[int, int], int | None, dict[str, int], Literal[1, 2]])
def test_types_that_the_launchpad_cannot_hold_are_named(annotation: object) -> None:
    odd = create_model("Odd", __base__=Settings, field=(annotation, ...)).model_construct(field=1)
    with pytest.raises(TypeError, match=r"Odd\.field: .* does not survive the Launchpad"):
        config_class(odd)


def test_paths_lists_sections_and_their_fields() -> None:
    assert list(paths(Run))[:4] == ["data", "model", "model.embedding_dim", "model.dropout"]
