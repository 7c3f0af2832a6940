"""Indexes are derived: built where the schema asks for them, complete or not there, and never a reason to fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from failpoints import registry
from reference.errors import InjectedFailure, OutcomePending
from reference.graph import Graph
from reference.operations.indexes import wanted_indexes
from reference.schema.compiler import compile_schema

SCHEMA = """
node Thing {
  code: String @key
  label: String? @index
  mood: enum(calm, busy)? @index
  size: I64? @index
  at: DateTime? @index
  tags: [String]? @index
  face: Vector(2)? @index
  body: Blob?
  plain: I32?
  other: I32?
  @index(plain, other)
}
edge Links: Thing -> Thing { weight: F64? @index }
node Empty { x: I32? @index }
"""


def thing(code: str, **data: object) -> str:
    return json.dumps({"type": "Thing", "data": {"code": code, "label": f"thing {code}", "size": 1, **data}})


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA)
    link = json.dumps({"edge": "Links", "from": "a", "to": "b"})
    graph.load("\n".join([thing("a"), thing("b"), link]), mode="append")
    return graph


def indexes(graph: Graph, table_key: str, branch: str | None = None) -> dict[str, str]:
    """Each indexed column of a table, and the kind of its index, all of which must be complete."""
    entry = graph.snapshot(branch).entries[table_key]
    handle = graph.store.tables.open(entry.path, entry.branch, entry.version)
    for index in handle.describe_indices():
        covered = set().union(*(segment.fragment_ids for segment in index.segments))
        assert {fragment.fragment_id for fragment in handle.get_fragments()} <= covered
    return {index.field_names[0]: index.index_type for index in handle.describe_indices()}


@pytest.mark.requirement("IDX-02")
def test_each_column_gets_the_index_that_its_type_has() -> None:
    catalog = compile_schema(SCHEMA)

    assert wanted_indexes(catalog.nodes["Thing"]) == {
        "id": "BTREE",
        "code": "INVERTED",
        "label": "INVERTED",
        "mood": "BTREE",
        "size": "BTREE",
        "at": "BTREE",
        "face": "IVF_FLAT",
    }
    assert wanted_indexes(catalog.edges["Links"]) == dict.fromkeys(("id", "src", "dst", "weight"), "BTREE")


@pytest.mark.requirement("IDX-02", "IDX-03", "IDX-04", "IDX-05", "LIN-14")
def test_what_can_be_built_is_built_once_and_the_rest_is_pending(graph: Graph) -> None:
    rows = list(graph.export())

    pending = graph.ensure_indices()

    assert [(each.table_key, each.column) for each in pending] == [("node:Thing", "face")]
    assert set(indexes(graph, "node:Thing")) == {"id", "code", "label", "mood", "size", "at"}
    assert set(indexes(graph, "edge:Links")) == {"id", "src", "dst", "weight"}
    assert indexes(graph, "node:Empty") == {} and graph.snapshot().entry("node:Empty").version == 1
    assert graph.commits()[-1].actor_id is None
    assert list(graph.export()) == rows
    before = graph.snapshot()
    with registry.recorded() as reached:
        assert graph.ensure_indices() == pending
    assert graph.snapshot() == before
    assert "recovery.sidecar_write" not in reached


@pytest.mark.requirement("IDX-03", "IDX-01")
def test_an_index_that_is_behind_is_completed(graph: Graph) -> None:
    graph.ensure_indices()
    graph.load(thing("c", face=[1.0, 2.0], size=7) + "\n" + thing("a", size=9), mode="merge")

    assert graph.ensure_indices() == []

    assert indexes(graph, "node:Thing")["face"] == "IVF_FLAT"
    entry = graph.snapshot().entry("node:Thing")
    handle = graph.store.tables.open(entry.path, None, entry.version)
    assert sorted(handle.to_table(columns=["code"], filter="size >= 7")["code"].to_pylist()) == ["a", "c"]
    assert [row["size"] for row in graph.read("node:Thing")] == [9, 1, 7]


@pytest.mark.requirement("IDX-06")
def test_a_branch_indexes_only_the_tables_it_owns(graph: Graph) -> None:
    graph.branch_create("feature")
    graph.load(thing("c"), mode="append", branch="feature")
    main = graph.snapshot()

    graph.ensure_indices("feature")

    assert "id" in indexes(graph, "node:Thing", "feature")
    assert graph.snapshot("feature").entry("edge:Links") == main.entry("edge:Links")
    assert graph.snapshot() == main
    assert indexes(graph, "node:Thing") == {}


@pytest.mark.requirement("IDX-07")
def test_a_build_that_fails_leaves_the_tables_writable(graph: Graph) -> None:
    before = graph.snapshot()

    with (
        registry.armed("ensure_indices.post_stage_pre_commit_btree", "error"),
        pytest.raises(InjectedFailure),
    ):
        graph.ensure_indices()

    assert graph.snapshot() == before
    assert graph.store.sidecars.operation_ids() == []
    graph.load(thing("c"), mode="append")
    graph.ensure_indices()
    assert "id" in indexes(graph, "node:Thing")


@pytest.mark.requirement("REC-05", "REC-01")
def test_indexes_that_were_built_and_not_published_are_rolled_forward(graph: Graph, tmp_path: Path) -> None:
    with (
        registry.armed("ensure_indices.post_phase_b_pre_manifest_commit", "error"),
        pytest.raises(OutcomePending),
    ):
        graph.ensure_indices()

    recovered = Graph.open(str(tmp_path / "graph"))

    assert [row.recovery_kind for row in recovered.recovered] == ["RolledForward"]
    assert "id" in indexes(recovered, "node:Thing")
    assert [each.column for each in recovered.ensure_indices()] == ["face"]
    recovered.load(thing("c"), mode="append")
