"""The tables of predicted links are what brute force gives, on three systems."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import graphmill
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions import top_tails
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from tests.training.cases import CASES, typed_graph
from tests.training.runs import settings_of

SYSTEMS = {"hgt": "hgt-softmax", "conve": "conve", "complex": "complex"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(tmp_path_factory.mktemp("links") / "graph")


@pytest.fixture(scope="module", params=SYSTEMS)
def run(request: pytest.FixtureRequest, graph: TypedGraph, tmp_path_factory: pytest.TempPathFactory) -> graphmill.Run:
    folder = tmp_path_factory.mktemp(request.param)
    result = train(settings_of(CASES[SYSTEMS[request.param]], graph), "test", root=str(folder))
    export_run(restore(result["run_dir"]))
    return graphmill.load(result["run_dir"])


def test_x(run):
    print(run.links(k=3).to_string())
    print(run.links("node 3", "disease_protein", k=3).to_string())
