"""What a user decides about a graph: nodes, reverse edges, split. Every field changes the graph: all are identity."""

from typing import Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting


class SplitSettings(Settings):
    """What is held out for validation and test: node pairs, the end of each sequence, or parts of users' interactions."""

    method: Literal["auto", "pairs", "by_time", "leave_one_out", "random", "user_time", "global_time"] = setting(
        "auto",
        "pairs: parts of each relation's node pairs; by_time: the newest of the pairs whose edges have times, one moment "
        "for all relations; leave_one_out: the last interaction of a sequence for the "
        "test, the one before for validation (valid, test, seed have no part); of each user's interactions a random "
        "part (random) or the newest (user_time); the newest of all interactions (global_time); auto: leave_one_out "
        "for sequences, random for interactions beside facts, which stay in train, else pairs",
    )
    valid: float = setting(
        0.05, "Part held out for validation, of each relation's pairs or each user's items", ge=0.0, lt=1.0
    )
    test: float = setting(0.05, "Part held out for the test", ge=0.0, lt=1.0)
    seed: int = setting(0, "Seed of the draw; the same seed holds out the same pairs when the data grows", ge=0)
    given: Literal["keep", "redraw", "add_valid"] = setting(
        "keep",
        "A split that comes with the data: keep it as it is (valid, test and seed then have no part); draw anew; or keep "
        "it and take `valid` of each user's training interactions for validation (add_valid; KGAT's data has none)",
    )

    @model_validator(mode="after")
    def _leaves_something_to_train_on(self) -> "SplitSettings":
        if self.valid + self.test >= 1.0:
            raise ValueError(
                f"split.valid + split.test = {self.valid + self.test:g} leaves nothing to train on; the sum must be < 1"
            )
        return self


class GraphSettings(Settings):
    """How tables become a typed graph."""

    include_node_types: list[str] = setting(
        [], "Node types of the graph, in this order; edges need both ends in it. Empty = all, in order of appearance"
    )
    add_reverse: Literal["missing", "never", "inverse"] = setting(
        "missing",
        "missing: add an edge's reverse where the table does not hold it; never: edges as given; "
        "inverse: a relation 'inverse_<name>' beside each directed relation",
    )
    isolated_nodes: Literal["keep", "drop"] = setting(
        "keep", "Nodes without any edge in the graph: keep them (each node of the types gets a vector), or drop them"
    )
    parallel_edges: Literal["keep", "merge"] = setting(
        "keep",
        "Edges of one relation between the same two nodes that differ in display_relation: keep each, or merge them",
    )
    split: SplitSettings = setting(SplitSettings(), "Held-out node pairs")

    @model_validator(mode="after")
    def _names_each_type_once(self) -> "GraphSettings":
        twice = sorted({name for name in self.include_node_types if self.include_node_types.count(name) > 1})
        if twice:
            raise ValueError(f"include_node_types names {', '.join(map(repr, twice))} twice; name each type once")
        return self
