"""The settings of a graph: nodes, reverse edges, split. Every field changes the graph, so all are part of its identity."""

from typing import Literal

from pydantic import model_validator

from graphmill.settings import Settings, setting


class SplitSettings(Settings):
    """The validation and test splits: node pairs, the end of each sequence, or parts of users' interactions."""

    method: Literal["auto", "pairs", "by_time", "by_group", "leave_one_out", "random"] = setting(
        "auto",
        "pairs: draw a share of each relation's node pairs; by_time: hold out the newest pairs or interactions, "
        "from one moment on for all; by_group: hold out all links of group_relations at whole groups of nodes; "
        "leave_one_out: the last interaction of a sequence is the test and the one before it the validation (valid, test "
        "and seed are not used); random: a random share of each user's interactions; auto: leave_one_out for sequences, "
        "random for interactions that come with facts (which stay in train), pairs otherwise",
    )
    valid: float = setting(
        0.05, "Share of each relation's pairs, or of each user's items, that is held out for validation", ge=0.0, lt=1.0
    )
    test: float = setting(0.05, "Share that is held out for the test", ge=0.0, lt=1.0)
    seed: int = setting(
        0, "Seed for drawing the held-out pairs; the same seed holds out the same pairs when the data grows", ge=0
    )
    given: Literal["keep", "redraw", "add_valid"] = setting(
        "keep",
        "What to do with a split that comes with the data: keep uses it unchanged (valid, test and seed are then not "
        "used); redraw draws a new one; add_valid keeps it and moves the share `valid` of each user's training "
        "interactions into validation (KGAT's data has none)",
    )

    group_type: str = setting("", "by_group: the node type whose nodes form the groups (such as disease)")
    group_relations: list[str] = setting(
        [], "by_group: the relations whose links are held out for the held-out groups (such as indication)"
    )
    group_file: str = setting(
        "", "by_group: a table with the columns id and group; empty: each node of the type is its own group"
    )
    test_groups: list[str] = setting(
        [],
        "by_group: names of the groups in the test; if this and valid_groups are empty, groups are drawn until the "
        "share `test` of the links is held out",
    )
    valid_groups: list[str] = setting([], "by_group: names of the groups in the validation")

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
        [],
        "Node types of the graph, in this order; an edge is kept if both of its ends have such a type. Empty = all, "
        "in order of appearance",
    )
    add_reverse: Literal["missing", "never"] = setting(
        "missing",
        "missing: add an edge's reverse if the table does not have it; never: keep the edges as they are",
    )
    isolated_nodes: Literal["keep", "drop"] = setting(
        "keep",
        "What to do with nodes that have no edge in the graph: keep them, so that each node of the types gets a "
        "vector, or drop them",
    )
    merge: Literal["max", "sum", "last"] = setting(
        "max",
        "Of rows that are the same edge: the largest weight, the sum of weights (both with the largest confidence and the "
        "earliest time), or the last row; the evidence of all is joined",
    )
    split: SplitSettings = setting(SplitSettings(), "Held-out node pairs")

    @model_validator(mode="after")
    def _names_each_type_once(self) -> "GraphSettings":
        twice = sorted({name for name in self.include_node_types if self.include_node_types.count(name) > 1})
        if twice:
            raise ValueError(f"include_node_types names {', '.join(map(repr, twice))} twice; name each type once")
        return self
