"""What a user decides about a graph: nodes, reverse edges, split. Every field changes the graph: all are identity."""

from typing import Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting


class SplitSettings(Settings):
    """What is held out for validation and test: node pairs, the end of each sequence, or parts of users' interactions."""

    method: Literal["auto", "pairs", "by_time", "by_group", "leave_one_out", "random", "user_time", "global_time"] = (
        setting(
            "auto",
            "pairs: parts of each relation's node pairs; by_time: the newest pairs, where edges have times, from one moment "
            "on for all relations; by_group: all links of group_relations that whole groups of nodes have; leave_one_out: "
            "the last interaction of a sequence for the test, the one before for validation (valid, test, seed have no "
            "part); of each user's interactions a random part (random) or the newest (user_time); the newest of all "
            "interactions (global_time); auto: leave_one_out for sequences, random for interactions beside facts, which "
            "stay in train, else pairs",
        )
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

    group_type: str = setting("", "by_group: the node type whose nodes are grouped (disease)")
    group_relations: list[str] = setting([], "by_group: the relations whose links held-out groups lose (indication)")
    group_file: str = setting(
        "", "by_group: a table with the columns id and group; empty: each node of the type is a group of its own"
    )
    test_groups: list[str] = setting(
        [], "by_group: groups of the test by name; empty, as valid_groups: drawn until `test` of the links are held out"
    )
    valid_groups: list[str] = setting([], "by_group: groups of the validation")

    @model_validator(mode="after")
    def _groups_belong_to_their_method(self) -> "SplitSettings":
        named = [name for name in SplitSettings.model_fields if "group" in name and getattr(self, name)]
        if self.method != "by_group" and named:
            raise ValueError(f"split.{named[0]} belongs to split.method: by_group, but method is {self.method}")
        lacking = [name for name in ("group_type", "group_relations") if not getattr(self, name)]
        if self.method == "by_group" and lacking:
            raise ValueError(f"split.method: by_group needs split.{' and split.'.join(lacking)}")
        if both := sorted(set(self.test_groups) & set(self.valid_groups)):
            raise ValueError(f"split: group {both[0]!r} is in test_groups and in valid_groups; leave it in one")
        if self.valid_groups and not self.test_groups:
            raise ValueError("split.valid_groups without test_groups: name both, or neither to have them drawn")
        return self

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
