"""A load is one commit or nothing, in each of its three modes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failpoints.registry import armed
from reference.errors import BadRequest, Conflict, ExpectedVersionMismatch, NotFound, OutcomePending
from reference.graph import Graph
from reference.operations import reading
from reference.operations.load import LoadMode

SCHEMA = """
node Person { handle: String @key  age: I32?  email: String? @unique  @range(age, 0..150) }
node Note { title: String  body: Blob? }
edge Knows: Person -> Person { since: Date? }
edge Wrote: Person -> Note @card(1..2)
"""
MODES: tuple[LoadMode, ...] = ("append", "merge", "overwrite")
FIXTURES = Path(__file__).parents[3] / "fixtures"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(str(tmp_path / "graph"), SCHEMA)


def person(handle: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"handle": handle, **data}}


def note(note_id: str, **data: Any) -> dict[str, Any]:
    return {"type": "Note", "data": {"id": note_id, "title": "t", **data}}


def edge(name: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": name, "from": source, "to": target, "data": data}


def lines(*records: dict[str, Any]) -> str:
    return "\n".join(map(json.dumps, records))


TOWN = lines(
    person("ann", age=1),
    person("bob"),
    note("n"),
    edge("Knows", "ann", "bob", id="k"),
    edge("Wrote", "ann", "n", id="w"),
)


@pytest.fixture
def town(graph: Graph) -> Graph:
    graph.load(TOWN, mode="append")
    return graph


def ids(graph: Graph, table_key: str, branch: str | None = None) -> list[str]:
    return [row["id"] for row in graph.read(table_key, graph.snapshot(branch))]


def versions(graph: Graph) -> dict[str, int]:
    return {key: entry.version for key, entry in graph.snapshot().entries.items()}


# -- what the modes do --------------------------------------------------------------------------------------------


@pytest.mark.requirement("LOD-01", "LIN-02", "MAN-11")
@pytest.mark.parametrize("mode", MODES)
def test_a_load_into_an_empty_graph_is_one_commit(graph: Graph, mode: LoadMode) -> None:
    before = graph.snapshot()
    result = graph.load(TOWN.encode(), mode=mode, actor="me")
    assert (result.branch, result.base_branch, result.branch_created) == ("main", None, False)
    assert (result.nodes_loaded, result.edges_loaded) == (3, 2)
    assert result.commit.actor_id == "me" and result.commit.manifest_version == before.version + 1
    counts = {key: (entry.version, entry.row_count) for key, entry in graph.snapshot().entries.items()}
    assert counts == {"edge:Knows": (2, 1), "edge:Wrote": (2, 1), "node:Note": (2, 1), "node:Person": (2, 2)}


@pytest.mark.requirement("LIN-04")
@pytest.mark.parametrize("mode", MODES)
def test_a_load_without_records_still_records_a_commit(town: Graph, mode: LoadMode) -> None:
    before, commits = versions(town), len(town.commits())
    result = town.load(" \n", mode=mode)
    assert (result.nodes_loaded, result.edges_loaded) == (0, 0)
    assert versions(town) == before
    assert town.commits()[commits:] == [result.commit]


@pytest.mark.requirement("LOD-08")
def test_merge_replaces_whole_rows_and_adds_new_ones(town: Graph) -> None:
    town.load(lines(person("ann", email="a@x"), person("eve"), edge("Knows", "bob", "ann", id="k")), mode="merge")
    rows = [(row["id"], row["age"], row["email"]) for row in town.read("node:Person")]
    assert rows == [("ann", None, "a@x"), ("bob", None, None), ("eve", None, None)]
    assert [(row["src"], row["dst"]) for row in town.read("edge:Knows")] == [("bob", "ann")]


@pytest.mark.requirement("LOD-09", "LAY-07")
def test_overwrite_replaces_the_tables_it_names_and_no_other(town: Graph) -> None:
    before = versions(town)
    town.load(lines(person("bob"), person("ann"), person("eve")), mode="overwrite")
    assert ids(town, "node:Person") == ["ann", "bob", "eve"] and ids(town, "edge:Knows") == ["k"]
    assert [row["age"] for row in town.read("node:Person")] == [None, None, None]
    assert {key for key, version in versions(town).items() if version != before[key]} == {"node:Person"}


@pytest.mark.requirement("EXP-03")
@pytest.mark.parametrize("name", ["social", "everything"])
def test_what_was_loaded_exports_and_loads_again_to_the_same_bytes(tmp_path: Path, name: str) -> None:
    schema = (FIXTURES / "schemas" / f"{name}.pg").read_text()
    first = Graph.init(str(tmp_path / "first"), schema)
    first.load((FIXTURES / "records" / f"{name}.jsonl").read_bytes(), mode="append")
    exported = b"".join(first.export())
    other = Graph.init(str(tmp_path / "other"), schema)
    other.load(exported, mode="overwrite")
    assert b"".join(other.export()) == exported


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("LOD-06", "VAL-06")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "records",
    [
        (person("ann"), person("eve"), person("ann")),
        (note("a"), note("b"), note("a")),
        (person("eve", email="x"), note("b"), person("fay", email="x")),
        (person("ann"), edge("Knows", "ann", "ann", id="x"), edge("Knows", "ann", "ann", id="x")),
    ],
)
def test_two_records_with_one_identity_are_refused_in_every_mode(graph: Graph, mode: LoadMode, records: Any) -> None:
    before = versions(graph)
    with pytest.raises(BadRequest) as refused:
        graph.load(lines(*records), mode=mode)
    assert refused.value.code == "unique_violation" and refused.value.details["record"] == 3
    assert versions(graph) == before


@pytest.mark.requirement("LOD-07")
@pytest.mark.parametrize(
    "records",
    [(person("eve"), person("ann")), (person("eve"), note("n")), (person("eve"), edge("Knows", "ann", "ann", id="k"))],
)
@pytest.mark.parametrize("many", [False, True])
def test_append_refuses_what_is_there_already(
    town: Graph, records: Any, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if many:
        monkeypatch.setattr(reading, "PROBE_VALUES_MAX", 0)
    before = versions(town)
    with pytest.raises(BadRequest) as refused:
        town.load(lines(*records), mode="append")
    assert refused.value.code == "row_exists" and refused.value.details["record"] == 2
    assert versions(town) == before
    town.load(lines({"type": "Note", "data": {"title": "made"}}), mode="append")
    assert len(town.read("node:Note")) == 2


@pytest.mark.requirement("LOD-10", "LOD-11")
@pytest.mark.parametrize(
    ("records", "code"),
    [
        ((person("ann"),), "orphan_edge"),
        ((person("ann"), person("bob"), note("m")), "orphan_edge"),
        ((person("eve"), edge("Knows", "ann", "eve")), "orphan_edge"),
        ((edge("Wrote", "bob", "n"),), "cardinality_violation"),
        ((person("bob"), edge("Knows", "bob", "bob"), edge("Wrote", "bob", "n")), None),
        ((person("ann"), edge("Knows", "ann", "ann")), None),
    ],
)
def test_overwrite_is_checked_against_what_stays(town: Graph, records: Any, code: str | None) -> None:
    before = versions(town)
    if code is None:
        town.load(lines(*records), mode="overwrite")
        return
    with pytest.raises(BadRequest) as refused:
        town.load(lines(*records), mode="overwrite")
    assert refused.value.code == code
    assert versions(town) == before


@pytest.mark.requirement("LOD-11", "VAL-02", "LOD-16")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (person("eve", age=151), "range_violation"),
        (person("eve", age="1"), "invalid_value"),
        (person("eve", size=1), "undeclared_property"),
        (edge("Knows", "ann", "nobody"), "orphan_edge"),
        ({"type": "Nobody"}, "unknown_type"),
    ],
)
def test_a_bad_record_moves_nothing_in_any_mode(graph: Graph, mode: LoadMode, bad: Any, code: str) -> None:
    before, commits = versions(graph), graph.commits()
    with pytest.raises(BadRequest) as refused:
        graph.load(lines(person("ann"), bad, person("fay")), mode=mode)
    assert refused.value.code == code
    assert refused.value.details["record"] == 2 and refused.value.message.startswith("record 2: ")
    assert versions(graph) == before and graph.commits() == commits
    assert graph.load(lines(person("ann")), mode=mode).nodes_loaded == 1


@pytest.mark.requirement("LOD-01", "MUT-15")
def test_unknown_modes_internal_branches_and_read_only_handles_are_refused(graph: Graph) -> None:
    with pytest.raises(BadRequest) as refused:
        graph.load(TOWN, mode="replace")  # type: ignore[arg-type]
    assert refused.value.code == "invalid_mode"
    with pytest.raises(BadRequest) as refused:
        graph.load(TOWN, mode="merge", branch="__schema_apply_lock__")
    assert refused.value.code == "internal_branch"
    with pytest.raises(BadRequest) as refused:
        Graph.open(graph.store.root.uri, read_only=True).load(TOWN, mode="merge")
    assert refused.value.code == "read_only_handle"


# -- branches -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("LOD-12")
def test_a_missing_branch_is_made_from_the_base_if_one_is_named(town: Graph) -> None:
    with pytest.raises(NotFound):
        town.load(lines(person("eve")), mode="merge", branch="side")
    result = town.load(lines(person("eve")), mode="merge", branch="side", base="main")
    assert (result.branch, result.base_branch, result.branch_created) == ("side", "main", True)
    assert ids(town, "node:Person", "side") == ["ann", "bob", "eve"]
    assert ids(town, "node:Person", "main") == ["ann", "bob"]
    again = town.load(lines(person("fay")), mode="append", branch="side", base="main")
    assert again.branch_created is False
    with pytest.raises(BadRequest):
        town.load(lines(person("ann", age=-1)), mode="merge", branch="other", base="main")
    assert town.branch_list() == ["main", "other", "side"], "a branch stays when the load into it fails"


# -- other writers ------------------------------------------------------------------------------------------------


def meanwhile(graph: Graph, *records: dict[str, Any]) -> Any:
    """Another handle loads after the next load has been checked, and before it says so by a sidecar."""
    other = Graph.open(graph.store.root.uri)
    return armed("recovery.sidecar_write", lambda: other.load(lines(*records), mode="merge"), times=1)


@pytest.mark.requirement("PUB-18")
def test_an_overwrite_does_not_drop_rows_that_it_has_not_seen(town: Graph) -> None:
    with meanwhile(town, person("new")), pytest.raises(ExpectedVersionMismatch):
        town.load(lines(person("ann"), person("bob")), mode="overwrite")
    assert ids(town, "node:Person") == ["ann", "bob", "new"]


@pytest.mark.requirement("LOD-10", "VAL-09")
def test_an_overwrite_does_not_drop_a_node_that_gets_an_edge_meanwhile(town: Graph) -> None:
    town.load(lines(person("eve")), mode="append")
    with meanwhile(town, edge("Knows", "bob", "eve", id="late")), pytest.raises(Conflict) as lost:
        town.load(lines(person("ann"), person("bob")), mode="overwrite")
    assert lost.value.code == "read_set_changed"
    assert ids(town, "node:Person") == ["ann", "bob", "eve"] and ids(town, "edge:Knows") == ["k", "late"]


@pytest.mark.requirement("PUB-18", "LOD-07")
def test_a_merge_is_run_again_and_an_append_finds_the_new_row(town: Graph) -> None:
    with meanwhile(town, person("eve", age=1)):
        town.load(lines(person("eve", age=2)), mode="merge")
    assert [row["age"] for row in town.read("node:Person")] == [1, None, 2]
    with meanwhile(town, person("fay")), pytest.raises(BadRequest) as refused:
        town.load(lines(person("fay")), mode="append")
    assert refused.value.code == "row_exists"


@pytest.mark.requirement("PUB-23")
def test_a_cut_between_the_tables_and_the_publish_is_recovered(town: Graph) -> None:
    with armed("mutation.post_finalize_pre_publisher", "error"), pytest.raises(OutcomePending):
        town.load(lines(person("new"), note("x")), mode="append")
    assert ids(town, "node:Person") == ["ann", "bob"]
    opened = Graph.open(town.store.root.uri)
    assert ids(opened, "node:Person") == ["ann", "bob", "new"] and ids(opened, "node:Note") == ["n", "x"]
