"""What a system's entry says that it can do, its class does: other code asks the entry alone."""

import pytest

from graphmill.explain.links import EXPLAINERS
from graphmill.systems.registry import SYSTEMS, entry, system_module


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_class_has_the_methods_of_the_abilities(name: str) -> None:
    known = entry(name)
    system = getattr(system_module(name), known.system)
    methods = {
        "recommend": known.recommends,
        "fold_in": known.recommends,
        "embed_later": known.new_nodes,
        "scoring": known.scores_exported,
        "tracer": known.traces,
        "embeddings": True,
    }
    assert {method: hasattr(system, method) for method in methods} == methods
    assert (name in EXPLAINERS) == known.explains
    if known.explains:
        assert not known.recommends
    assert any(phase.closed_form for phase in getattr(system, "phases", ())) == known.closed_form
