"""What must not load torch or Dagster, since every step, command or reader of a file would pay for them; in one process."""

import json
import subprocess
import sys

import pytest

from tests.training.cases import typed_graph

STEPS = {
    "reading a graph": (
        "import graphmill.graph.build, graphmill.graph.co_occurrence\n"
        "from graphmill.graph.typed_graph import TypedGraph\n"
        "TypedGraph.open(sys.argv[1]).edges(0)"
    ),
    "a machine's memory": (
        "import graphmill.training.memory, graphmill.training.signals\n"
        "from graphmill.training.machine import this_machine\n"
        "this_machine()"
    ),
    "curves": "import graphmill.training.metrics_log",
    "the command line": "import graphmill, graphmill.cli",
    "the health report": "import graphmill.evaluation.health.report",
}
PROGRAM = """
import json, sys
for step, code in json.load(sys.stdin).items():
    exec(code)
    print(json.dumps([step, sorted(name for name in sys.modules if "." not in name)]))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Packages that are loaded after each step and those before it."""
    graph = typed_graph(tmp_path_factory.mktemp("light") / "graph")
    command = [sys.executable, "-c", PROGRAM, str(graph.path)]
    process = subprocess.run(command, input=json.dumps(STEPS), capture_output=True, text=True, check=True)
    return {step: set(names) for step, names in map(json.loads, process.stdout.splitlines())}


@pytest.mark.parametrize("step", STEPS)
def test_neither_torch_nor_dagster_is_loaded(step: str, loaded: dict[str, set[str]]) -> None:
    assert "numpy" in loaded[step]
    assert not loaded[step] & {"torch", "dagster", "sklearn", "tensorboard"}


def test_a_graph_is_read_without_pandas(loaded: dict[str, set[str]]) -> None:
    assert "pandas" not in loaded["reading a graph"]
