"""Beyond one process: what estimate says of files, of shards, and of where to train."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from graphmill.cli.entry import app
from graphmill.diagnostics import scaling
from graphmill.diagnostics.scaling import estimate_data, estimate_training, layer_widths
from graphmill.errors import InputError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs import planning
from graphmill.training.contract import StepSizes
from graphmill.training.planning import Part, estimate_of, sharded, sharded_bytes
from tests.training.cases import typed_graph

PARTS = [Part("table", "weights", 800), Part("states", "kept", 2000, recomputed=1000), Part("all", "evaluation", 600)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(Path(tmp_path_factory.mktemp("scaling")) / "graph")


def values(graph: TypedGraph, **acceleration: Any) -> dict[str, Any]:
    return {
        "system": "hgt",
        "data": str(graph.path),
        "preset": "none",
        "acceleration": {"device": "cpu", **acceleration},
    }


class TestTheModelOfShards:
    def test_bytes_are_those_of_adr_2(self) -> None:
        # PrimeKG's five types, d = 256, two layers: the table of the ADR, in MB of 10^6.
        sent = [sharded_bytes(ranks, 83_866, [256, 256]) / 1e6 for ranks in (2, 4, 8)]
        assert sent == pytest.approx([172, 258, 301], abs=0.7)

    def test_a_rank_holds_its_part_and_the_features_that_it_gathers(self) -> None:
        own = {part.name: part.count for part in sharded(PARTS, 2, nodes=10, widths=[4, 2])}
        assert (own["table"], own["states"], own["all"]) == (400, 1000, 300)
        assert own["features of all nodes and their gradient"] == 2 * 10 * 4
        assert own["features of all nodes"] == 10 * 4
        whole, part = (
            estimate_of(parts, "adam", StepSizes(checkpointing=True), device="cuda").peak
            for parts in (PARTS, sharded(PARTS, 2, nodes=0, widths=[]))
        )
        assert part == whole / 2

    def test_kgats_layers_have_widths_of_their_own(self) -> None:
        from graphmill.systems.kgat.settings import KgatSettings

        assert layer_widths(KgatSettings()) == [64, 64, 32]


class TestAdvice:
    def test_what_fits_stays_in_one_process(self, graph: TypedGraph) -> None:
        found = estimate_training(values(graph), "x")
        assert found.advice == "It fits here: launcher: local, 1 process."
        assert [shard.workers for shard in found.shards] == list(scaling.WORKERS)

    def test_systems_without_shards_have_none(self, graph: TypedGraph) -> None:
        assert estimate_training({**values(graph), "system": "conve"}, "x").shards == []

    @pytest.mark.parametrize(
        ("room", "words"),
        [
            (
                2.0,
                r"sharded by rows \(acceleration.sharding: rows, processes: 2\).* on 2 machines .* torchrun on each",
            ),
            (0.5, "fits neither in one process nor sharded over 64 workers.* choose sampled batching"),
        ],
    )
    def test_what_does_not_fit_names_workers_and_launcher(
        self, room: float, words: str, graph: TypedGraph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (planning, scaling):
            monkeypatch.setattr(module, "parts_of", lambda *_: [Part("table", "weights", 600 << 20, 1)])
            monkeypatch.setattr(module, "free_memory", lambda device: int(room * 2**30))
        found = estimate_training(values(graph, batching="full"), "x")
        assert found.run.chosen is None
        assert re.search(words, found.advice), found.advice

    def test_a_batching_that_fits_comes_before_more_workers(
        self, graph: TypedGraph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(planning, "free_memory", lambda device: 10 << 30)
        found = estimate_training(values(graph), "x")
        run = replace(found.run, chosen=None)
        from graphmill.runs.resolve import resolve

        advice = scaling._advice(resolve(values(graph), "x"), run, found.shards, 10 << 30)
        assert "batching: edge_sampled; launcher: local" in advice


class TestFiles:
    def test_edge_tables_take_memory_up_to_a_bound_and_interactions_that_of_all_rows(
        self, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = estimate_data(str(repository / "data/01_raw/kg.csv"))
        assert found.format == "kg_csv"
        assert found.size.rows == pytest.approx(12_000, rel=0.1)
        assert [row[2] for row in found.rows()] == ["yes", "yes"]
        (tmp_path / "x.csv").write_text("user,item,rating\n" + "u1,i1,3\nu2,i2,4\n" * 20_000)
        monkeypatch.setattr(scaling, "BOUNDED", 1 << 16)
        bounded = estimate_data(str(repository / "data/01_raw/kg.csv"))
        assert bounded.reading == bounded.build == 1 << 16
        monkeypatch.setattr(scaling, "available_memory", lambda: 1 << 17)
        assert [row[2] for row in estimate_data(str(tmp_path / "x.csv")).rows()] == ["no", "no"]

    def test_what_is_no_data_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x.bin").write_bytes(b"\x00\x01\x02")
        with pytest.raises(InputError, match="has no known format; `graphmill ingest-report"):
            estimate_data(str(tmp_path / "x.bin"))

    def test_a_built_graph_is_asked_of_with_a_system(self, graph: TypedGraph) -> None:
        with pytest.raises(InputError, match="is a graph that is built; ask `graphmill estimate SYSTEM --set data="):
            estimate_data(str(graph.path))

    def test_the_command_takes_files_and_settings(self, repository: Path, graph: TypedGraph) -> None:
        told = CliRunner().invoke(app, ["estimate", str(repository / "data/01_raw/kg.csv"), "--json"])
        assert json.loads(told.stdout)["reading"]["memory"] > 0
        told = CliRunner().invoke(app, ["estimate", "hgt", "--set", f"data={graph.path}", "--set", "preset=none"])
        assert "sharded by rows" in told.output
        assert "launcher: local" in told.output
