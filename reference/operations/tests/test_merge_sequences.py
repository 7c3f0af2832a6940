"""Writes and merges in every direction among main, a branch, and a branch of that branch, against a naive model.

The model keeps every commit as plain dictionaries and merges them row by row. What it guards: an adopted pointer that
a higher version number hides, a merge back that undoes what the other side did, a base that is not the lowest one.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.errors import MergeConflicts
from reference.graph import Graph

SCHEMA = """
node Person { name: String @key  age: I32? }
node Pet { name: String @key  age: I32? }
"""
BRANCHES = ("main", "feature", "feature/sub", "other")
Rows = dict[tuple[str, str], int | None]

names = st.tuples(st.sampled_from(["Person", "Pet"]), st.sampled_from("abc"))
puts = st.tuples(st.just("put"), st.sampled_from(BRANCHES), names, st.sampled_from([None, 1, 2]))
removals = st.tuples(st.just("remove"), st.sampled_from(BRANCHES), names)
merges = st.tuples(st.just("merge"), st.permutations(BRANCHES))


@dataclass
class Model:
    """Every commit: its rows, its parents, and its place in the order of commits."""

    rows: dict[str, Rows] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    order: dict[str, tuple[int, int, str]] = field(default_factory=dict)

    def ancestors(self, commit: str) -> set[str]:
        return {commit}.union(*(self.ancestors(parent) for parent in self.parents[commit]))

    def base(self, one: str, other: str) -> str:
        common = self.ancestors(one) & self.ancestors(other)
        lowest = {each for each in common if not any(each in self.ancestors(rest) - {rest} for rest in common)}
        return max(lowest, key=lambda commit: self.order[commit])

    def merged(self, source: str, target: str) -> Rows | Literal["up to date", "conflict"]:
        base = self.base(source, target)
        if base == source:
            return "up to date"
        absent = "absent"
        before, theirs, ours = self.rows[base], self.rows[source], self.rows[target]
        result = dict(ours)
        for key in before.keys() | theirs.keys() | ours.keys():
            was, new, old = (rows.get(key, absent) for rows in (before, theirs, ours))
            if new in (was, old):
                continue
            if old != was:
                return "conflict"
            if new == absent:
                del result[key]
            else:
                result[key] = theirs[key]
        return result


def rows_of(graph: Graph, branch: str) -> Rows:
    snapshot = graph.snapshot(branch)
    return {(kind, row["id"]): row["age"] for kind in ("Person", "Pet") for row in graph.read(f"node:{kind}", snapshot)}


@pytest.mark.requirement("MRG-01", "MRG-02", "MRG-06", "MRG-09", "MRG-12", "LIN-09", "LIN-13", "BRA-08", "BRA-17")
@settings(max_examples=8, deadline=None)
@given(steps=st.lists(puts | removals | merges | merges, min_size=6, max_size=14))
def test_merges_in_every_direction_equal_the_naive_model(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run(Graph.init(f"{directory}/graph", SCHEMA), steps)


def run(graph: Graph, steps: list[tuple[Any, ...]]) -> None:
    model = Model()
    heads: dict[str, str] = {}

    def committed(branch: str, rows: Rows, *parents: str) -> None:
        commit = graph.commits(branch)[-1]
        heads[branch] = commit.graph_commit_id
        model.rows[heads[branch]], model.parents[heads[branch]] = rows, parents
        model.order[heads[branch]] = commit.order
        recorded = commit.parent_commit_id, commit.merged_parent_commit_id
        assert tuple(parent for parent in recorded if parent is not None) == parents

    committed("main", {})
    for branch, source in (("feature", "main"), ("feature/sub", "feature"), ("other", "main")):
        graph.branch_create(branch, source)
        heads[branch] = heads[source]

    for step in steps:
        if step[0] == "merge":
            source, target = step[1][:2]
            expected = model.merged(heads[source], heads[target])
            if expected == "conflict":
                with pytest.raises(MergeConflicts):
                    graph.merge(source, target)
            elif expected == "up to date":
                assert graph.merge(source, target).outcome == "already_up_to_date"
            else:
                assert graph.merge(source, target).commit is not None
                committed(target, expected, heads[target], heads[source])
        else:
            _, branch, (kind, name), *age = step
            rows = dict(model.rows[heads[branch]])
            if age:
                rows[kind, name] = age[0]
                record = {"type": kind, "data": {"name": name, "age": age[0]}}
                graph.load(json.dumps(record), mode="merge", branch=branch)
            elif rows.pop((kind, name), "absent") != "absent":
                where = {"property": "name", "op": "eq", "value": name}
                graph.mutate([{"op": "delete", "type": kind, "where": where}], branch=branch)
            else:
                continue
            committed(branch, rows, heads[branch])
        for branch in BRANCHES:
            assert rows_of(graph, branch) == model.rows[heads[branch]], f"after {step}, branch {branch}"
    Graph.open(graph.store.root.uri)
