"""What people write into settings: YAML's own words, keys twice, numbers that no machine has, streams that are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

import graphmill
from graphmill.components.embedding_model import launchpad_defaults
from graphmill.errors import GraphmillError, InputError, SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.messages import Terminal
from graphmill.runs.resolve import merge, parse_settings, read_settings
from graphmill.runs.train import prepare
from graphmill.settings import read_yaml
from graphmill.systems import registry
from graphmill.training.run_directory import RunDirectory
from graphmill.worker.__main__ import main
from tests.runs.fuzz import odd_texts
from tests.training.cases import CASES
from tests.training.runs import run, settings_of

INSTEAD = {"compile: off": "none"}


@pytest.mark.parametrize("line", INSTEAD)
def test_off_and_on_are_refused_everywhere_with_the_word_to_write(line: str) -> None:
    written = read_yaml(f"acceleration: {{{line}}}", "settings.yaml")
    sentence = rf"acceleration\.{line.partition(':')[0]} = (True|False): write {INSTEAD[line]} \(or "
    with pytest.raises(SettingsError, match=sentence):
        parse_settings({"system": "kgat", **written}, "settings.yaml")
    with pytest.raises(SettingsError, match=sentence):
        launchpad_defaults("kgat", written)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training: {epochs: true}", "training.epochs = True: write a number"),
        ("training: {epochs: on}", "training.epochs = True: write a number"),
        ("evaluation: {top_k: [true]}", "write a number"),
        ("training: {warmup_steps: 010}", "010 in line 1 is another number to YAML"),
        ("training: {warmup_steps: 1:30}", "1:30 in line 1 is another number to YAML"),
        ("training: {epochs: 1}\ntraining: {epochs: 2}", "'training' is given twice, in lines 1 and 2"),
        ("training: {epochs: 1, seed: 0, epochs: 2}", "'epochs' is given twice, in lines 1 and 1"),
        ("recipe: mf", "recipe is called system: write system: 'mf'"),
        ("training: 5", "training = 5: it is a section"),
        ("training: {learning_rate: .inf}", "finite"),
        (
            "acceleration: {processes: 1099511627776}",
            "processes = 1099511627776",
        ),
        ("acceleration: {processes: 1.0e+9}", "processes"),
        ('data: "a\\0b"', "data = 'a\\x00b': it holds a null byte"),
        ("data: &a [*a]", "data = "),
        ("training: {seed: 99999999999999999999}", "at most 9007199254740991"),
        ("evaluation: {metrics: []}", "evaluation.metrics is empty"),
        ("evaluation: {top_k: [0]}", "evaluation.top_k needs"),
        ("evaluation: {selection_metric: mr, metrics: [mr, mrr]}", "mr is not measured (a lower mr is better"),
        ("evaluation: {selection_metric: hits@7}", "one of mrr, hits@1, hits@3, hits@10"),
    ],
)
def test_what_would_be_taken_for_something_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(GraphmillError) as caught:
        parse_settings({"system": "hgt", **read_yaml(text, "settings.yaml")}, "settings.yaml")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_anchor_that_is_overridden_is_no_key_given_twice() -> None:
    text = "base: &b {epochs: 1, seed: 2}\ntraining: {<<: *b, epochs: 3}"
    assert read_yaml(text, "x")["training"] == {"epochs": 3, "seed": 2}


def test_more_than_the_cores_can_carry_is_refused_before_anything_starts(values: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"processes = 1000, .*\d+ cores"):
        prepare(merge(values, {"acceleration": {"processes": 1000}}), "test")


@pytest.mark.parametrize("name", ["mmgcn", "dragon"])
def test_feature_sets_are_looked_for_before_the_run_is_planned(name: str, tmp_path: Path) -> None:
    settings = settings_of(CASES[name], CASES[name].graph(tmp_path / "graph"))
    with pytest.raises(SettingsError, match="'audio' is not a feature set of the items"):
        prepare(merge(settings, {"model": {"modalities": ["audio"]}}), "test")
    bare = CASES["sasrec"].graph(tmp_path / "bare")
    with pytest.raises(InputError, match="the graph has no item features"):
        prepare(settings | {"data": str(bare.path)}, "test")


def test_a_number_of_thousands_of_digits_makes_no_long_message() -> None:
    with pytest.raises(InputError) as caught:
        read_yaml(f"a: {'0' * 5000}", "x.yaml")
    assert len(str(caught.value)) < 200


def test_the_workers_own_option_is_held_to_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--processes", "1000000000", "settings.yaml"]) == 2
    assert "error: --processes: acceleration.processes = 1000000000" in capsys.readouterr().err
    assert main(["--job", "nowhere.json"]) == 2
    assert "the job nowhere.json cannot be read" in capsys.readouterr().err


def test_fewer_epochs_than_a_run_has_done_are_said_to_be_so(values: dict[str, Any], tmp_path: Path) -> None:
    long = merge(values, {"training": {"epochs": 3, "lr_decay_epochs": 3}})
    run(long, tmp_path)
    again = run(merge(long, {"training": {"epochs": 2}}), tmp_path)
    said = "training.epochs is 2, but this run has been trained for 3"
    assert again["reused"]
    assert any(said in note for note in again["notes"])
    assert not any(said in note for note in run(long, tmp_path)["notes"])


FUZZED = (
    "hgt-full",
    "conve-kvsall",
    "complex",
    "rotate",
    "transe",
    "mf",
    "lightgcn",
    "kgat",
    "mmgcn",
    "dragon",
    "sasrec",
    "tisasrec-mhc",
)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TypedGraph]:
    folder = tmp_path_factory.mktemp("graphs")
    return {name: CASES[name].graph(folder / name) for name in FUZZED}


@pytest.mark.parametrize("count", [30, pytest.param(1500, marks=pytest.mark.long)])
def test_odd_settings_files_are_used_or_refused_in_a_sentence(
    count: int, graphs: dict[str, TypedGraph], tmp_path: Path
) -> None:
    """Nothing changes silently: each setting is what the text says to any reader of YAML, and all others their defaults."""
    file, used, refused = tmp_path / "settings.yaml", 0, []
    for name, graph in graphs.items():
        for text in odd_texts(settings_of(CASES[name], graph), seed=40, count=count):
            file.write_text(text, encoding="utf-8")
            try:
                written = read_settings(file)
                assert changed_silently(text, written) == {}
                prepare(written, "settings.yaml")
                used += 1
            except GraphmillError as error:
                refused.append(str(error))
    assert [text for text in refused if "\n" in text or len(text) > 2000] == []
    assert used > 30, "most were refused for one reason"


def changed_silently(text: str, written: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings by path that differ from what the text, or else the default, says: that, and what was taken."""
    taken = flat(parse_settings(written, "settings.yaml").model_dump())
    bare = {name: written[name] for name in ("system", "preset") if name in written}
    if taken.get("objective.loss") == "link_contrastive":  # which has defaults of its own
        bare["objective"] = {"loss": "link_contrastive"}
    default, said = flat(parse_settings(bare, "settings.yaml").model_dump()), flat(yaml.safe_load(text))
    wanted = {
        path: said[path] if path in said else default[path]
        for path in taken
        if path in said or not any(at.startswith(f"{path}.") or path.startswith(f"{at}.") for at in said)
    }
    return {path: (want, taken[path]) for path, want in wanted.items() if not means(want, taken[path])}


def flat(values: Any, at: str = "") -> dict[str, Any]:
    if not isinstance(values, dict) or not values:
        return {at: values}
    return {
        path: x for key, inner in values.items() for path, x in flat(inner, f"{at}.{key}" if at else str(key)).items()
    }


def means(written: Any, taken: Any) -> bool:
    """The same value; ``1e3`` is a number that YAML makes text of."""
    if isinstance(written, str) and isinstance(taken, bool):
        return taken == (written.lower() in ("on", "true", "yes", "1"))
    if isinstance(written, str) and isinstance(taken, int | float):
        return float(written) == taken
    if isinstance(written, list | tuple) and isinstance(taken, list | tuple):
        return len(written) == len(taken) and all(map(means, written, taken))
    if isinstance(taken, bool):
        return written in (0, 1) and bool(written) == taken
    return not isinstance(written, bool) and bool(written == taken)


# -- streams ---------------------------------------------------------------------------------------------------------


def test_a_training_whose_streams_are_full_or_closed_goes_on_to_its_end(values: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump(values))
    command = f"exec {sys.executable} -m graphmill.cli train {file} --output {tmp_path / 'runs'} --json"
    process = subprocess.run(["sh", "-c", f"{command} >/dev/full 2>&-"], check=False, timeout=300)
    assert process.returncode == 0
    (result,) = (path for path in (tmp_path / "runs").iterdir())
    assert RunDirectory(result).read_json("report.json")["epochs_done"] == 3
    assert (result / "embeddings" / "embeddings.parquet").exists()
    full = subprocess.run(["sh", "-c", f"{command} >/dev/full"], check=False, stderr=subprocess.PIPE, text=True)
    assert full.returncode == 0
    assert "could not be printed: No space left on device" in full.stderr
    assert "Traceback" not in full.stderr


def test_a_terminal_that_is_gone_is_not_written_to() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        terminal = Terminal(stream)
        for _ in range(3):
            terminal.send({"kind": "note", "text": "x"})


def test_every_system_refuses_a_metric_that_would_choose_nothing() -> None:
    for name in registry.SYSTEMS:
        with pytest.raises(SettingsError, match="selection_metric: nothing is not measured"):
            parse_settings({"system": name, "evaluation": {"selection_metric": "nothing"}}, "test")


def test_a_settings_file_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_bytes(b"system: \xff\xfe")
    with pytest.raises(InputError, match="not text in UTF-8"):
        read_settings(file)
    file.write_text("\ufeffsystem: hgt\n", encoding="utf-8")
    assert read_settings(file) == {"system": "hgt"}


def test_settings_without_a_system_are_those_that_train_takes_by_default() -> None:
    system = signature(graphmill.train).parameters["system"].default
    assert parse_settings({"data": "graph"}, "settings.yaml") == parse_settings(
        {"system": system, "data": "graph"}, "x"
    )
    with pytest.raises(SettingsError, match=r"unknown setting 'model.weight_factor'"):
        parse_settings({"data": "graph", "model": {"weight_factor": 2}}, "settings.yaml")
