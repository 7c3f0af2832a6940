"""Schema apply: what it does to tables and rows, who keeps whom out, and the golden graph that crashed in one.

The public engine leaves its lock for ever when it is killed in a schema apply, and cannot open a graph that it was
killed in between two staging files. `test_schema_apply_cuts` holds this engine to more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failpoints import registry
from fixtures import golden
from reference.errors import BadRequest, Conflict, NotFound
from reference.format.names import SCHEMA_LOCK_BRANCH
from reference.graph import Graph
from reference.protocol.publish import Changes, Lineage
from reference.protocol.schema_lock import release_schema_lock, take_schema_lock

PERSON = "node Person {{ handle: String @key age: I32? {more} }}\n"
BEFORE = (
    PERSON.format(more="") + "edge Knows: Person -> Person { since: I32? }\nnode Note { text: String body: Blob? }\n"
)


def line(type_name: str, **data: Any) -> str:
    return json.dumps({"type": type_name, "data": data})


def graph_with_rows(path: Path, schema: str = BEFORE) -> Graph:
    graph = Graph.init(str(path / "graph"), schema)
    people = [line("Person", handle="ada", age=36), line("Person", handle="bob")]
    knows = json.dumps({"edge": "Knows", "from": "ada", "to": "bob", "data": {"since": 1843}})
    note = line("Note", text="hello", body="base64:AAEC")
    graph.load("\n".join([*people, knows, note]), mode="append")
    return graph


def versions(graph: Graph) -> dict[str, int]:
    return {key: entry.version for key, entry in graph.snapshot().entries.items()}


def column(graph: Graph, table_key: str, name: str) -> list[Any]:
    return [row[name] for row in graph.read(table_key)]


@pytest.mark.requirement("SCH-04", "SCH-03")
def test_the_accepted_schema_is_not_applied_again(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)
    before = graph.snapshot().version

    result = graph.schema_apply(BEFORE)

    assert (result.supported, result.applied, result.commit) == (True, False, None)
    assert result.manifest_version == graph.snapshot().version == before
    assert graph.schema_plan(BEFORE).steps == ()


@pytest.mark.requirement("SCH-05")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("age: I32?", "age: I32? shoe: I32"), id="a required property"),
        pytest.param(("age: I32?", "age: I64?"), id="another type"),
        pytest.param(("age: I32?", "age: I32? @unique"), id="a new constraint"),
    ],
)
def test_what_cannot_be_done_without_guessing_changes_nothing(tmp_path: Path, change: tuple[str, str]) -> None:
    graph = graph_with_rows(tmp_path)
    before = (graph.snapshot(), sorted((tmp_path / "graph").iterdir()))

    with pytest.raises(BadRequest) as refusal:
        graph.schema_apply(BEFORE.replace(*change))

    assert refusal.value.code == "schema_change_unsupported"
    assert (graph.snapshot(), sorted((tmp_path / "graph").iterdir())) == before
    assert not graph.store.manifests.schema_lock_is_held()


@pytest.mark.requirement("SCH-08", "LIN-14", "SCH-01")
def test_a_property_and_a_type_are_added_in_one_commit(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)
    before = versions(graph)

    result = graph.schema_apply(BEFORE.replace("age: I32?", "age: I32? city: String?") + "node Place { name: String }")

    assert result.commit is not None and result.commit.actor_id is None
    assert result.commit == graph.commits()[-1]
    assert versions(graph) == before | {"node:Person": before["node:Person"] + 1, "node:Place": 1}
    assert column(graph, "node:Person", "city") == [None, None]
    assert column(graph, "node:Person", "age") == [36, None]
    assert "Place" in graph.catalog.nodes
    graph.load(line("Place", name="London"), mode="append")
    assert graph.store.manifests.branch_names() == []
    assert graph.store.sidecars.operation_ids() == []


@pytest.mark.requirement("SCH-09", "LIN-04")
def test_an_index_alone_touches_no_table_and_is_a_commit_all_the_same(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)
    before, commits = versions(graph), len(graph.commits())

    graph.schema_apply(BEFORE.replace("age: I32?", "age: I32? @index"))

    assert versions(graph) == before
    assert len(graph.commits()) == commits + 1
    assert Graph.open(str(tmp_path / "graph")).catalog.nodes["Person"].indexes == (("age",),)


@pytest.mark.requirement("SCH-06", "TMB-01", "SNP-07")
def test_a_renamed_type_keeps_its_rows_and_its_old_table_is_hidden(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)
    before = graph.snapshot()
    renamed = BEFORE.replace("node Note {", 'node Memo @rename_from("Note") {').replace("text:", "line:")

    graph.schema_apply(renamed.replace("line: String", 'line: String @rename_from("text")'))

    assert "node:Note" not in graph.snapshot().entries
    assert graph.store.manifests.fresh(None).state.tombstones == {"node:Note": before.entry("node:Note").version + 1}
    [memo] = graph.read("node:Memo")
    assert memo["line"] == "hello" and memo["body"] == "base64:AAEC"
    assert graph.read("node:Note", before)[0]["text"] == "hello"


@pytest.mark.requirement("SCH-19")
def test_renames_of_one_plan_happen_at_once(tmp_path: Path) -> None:
    schema = "node A { x: I32? y: I32? }\nnode B { x: I32? y: I32? }\n"
    graph = Graph.init(str(tmp_path / "graph"), schema)
    graph.load(line("A", x=1, y=2) + "\n" + line("B", x=3, y=4), mode="append")
    swapped = (
        'node A @rename_from("B") { z: I32? @rename_from("x") x: I32? y: I32? }\n'
        'node B @rename_from("A") { x: I32? @rename_from("y") y: I32? @rename_from("x") }\n'
    )

    graph.schema_apply(swapped)

    [a], [b] = graph.read("node:A"), graph.read("node:B")
    assert (a["x"], a["y"], a["z"]) == (None, 4, 3)
    assert (b["x"], b["y"]) == (2, 1)


@pytest.mark.requirement("SCH-19", "SCH-06")
def test_a_type_is_renamed_away_and_its_name_is_used_again(tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "graph"), "node A { x: I32? }\n")
    graph.load(line("A", x=1), mode="append")

    graph.schema_apply('node C @rename_from("A") { x: I32? }\nnode A { other: String? }\n')

    assert column(graph, "node:C", "x") == [1]
    assert graph.read("node:A") == []
    assert not graph.store.manifests.fresh(None).state.tombstones


@pytest.mark.requirement("SCH-07", "SNP-07")
@pytest.mark.parametrize("allow_data_loss", [False, True])
def test_dropped_rows_stay_readable_unless_data_loss_is_allowed(tmp_path: Path, allow_data_loss: bool) -> None:
    graph = graph_with_rows(tmp_path)
    before = graph.snapshot()
    no_age = BEFORE.replace("age: I32?", "")

    graph.schema_apply(no_age.partition("node Note")[0], allow_data_loss=allow_data_loss)

    assert sorted(graph.snapshot().entries) == ["edge:Knows", "node:Person"]
    assert sorted(graph.read("node:Person")[0]) == ["handle", "id"]
    fresh = Graph.open(str(tmp_path / "graph"))
    if allow_data_loss:
        with pytest.raises(NotFound):
            fresh.read("node:Person", before)
    else:
        assert column_at(fresh, before) == [36, None]


def column_at(graph: Graph, snapshot: Any) -> list[Any]:
    return [row["age"] for row in graph.read("node:Person", snapshot)]


@pytest.mark.requirement("SCH-15", "MAN-09")
def test_a_dropped_name_that_is_added_again_starts_empty(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)
    old = graph.snapshot()
    graph.schema_apply(BEFORE.partition("node Note")[0])

    for round_number in range(2):
        graph.schema_apply(BEFORE.partition("node Note")[0] + "node Note { other: I32? }\n")
        assert graph.read("node:Note") == []
        graph.load(line("Note", other=round_number), mode="append")
        assert column(graph, "node:Note", "other") == [round_number]
        graph.schema_apply(BEFORE.partition("node Note")[0])

    assert graph.read("node:Note", old)[0]["text"] == "hello"


@pytest.mark.requirement("SCH-02")
def test_another_branch_stands_in_the_way(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)
    graph.branch_create("feature")

    with pytest.raises(Conflict) as refusal:
        graph.schema_apply(BEFORE + "node Place { name: String }")

    assert refusal.value.code == "schema_apply_has_branches"
    assert refusal.value.details == {"branches": ["feature"]}


@pytest.mark.requirement("SCH-02", "SCH-10")
def test_a_branch_made_just_before_the_lock_stands_in_the_way(tmp_path: Path) -> None:
    graph, other = graph_with_rows(tmp_path), Graph.open(str(tmp_path / "graph"))
    before = graph.snapshot()

    with (
        registry.armed("recovery.sidecar_write", lambda: other.branch_create("late"), times=1),
        pytest.raises(Conflict) as refusal,
    ):
        graph.schema_apply(BEFORE.replace("age: I32?", "age: I32? city: String?"))

    assert refusal.value.code == "schema_apply_has_branches"
    assert graph.snapshot() == before
    assert graph.store.manifests.branch_names() == ["late"]
    assert graph.store.sidecars.operation_ids() == []


@pytest.mark.requirement("SCH-10")
def test_a_commit_that_came_after_the_plan_ends_the_apply(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)

    def intrude() -> None:
        graph.store.publisher.publish(None, Changes(), {}, Lineage())

    with registry.armed("recovery.sidecar_write", intrude, times=1), pytest.raises(Conflict) as refusal:
        graph.schema_apply(BEFORE.replace("age: I32?", "age: I32? city: String?"))

    assert refusal.value.code == "schema_apply_lost_lease"
    assert not graph.store.manifests.schema_lock_is_held()
    assert graph.schema_apply(BEFORE.replace("age: I32?", "age: I32? city: String?")).applied


@pytest.mark.requirement("SCH-01", "BRA-06", "SCH-17")
def test_while_the_lock_is_held_everybody_else_is_told_to_wait(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)
    take_schema_lock(graph.store.tables, graph.store.manifests)

    for operation in (
        lambda: graph.schema_apply(BEFORE + "node Place { name: String }"),
        lambda: graph.load(line("Person", handle="eve"), mode="append"),
        lambda: graph.branch_create("feature"),
        lambda: graph.branch_delete("feature"),
        lambda: graph.optimize(),
        lambda: graph.cleanup(keep_versions=1, confirm=True),
        lambda: graph.ensure_indices(),
    ):
        with pytest.raises(Conflict) as refusal:
            operation()
        assert refusal.value.code == "schema_apply_in_progress"
        assert SCHEMA_LOCK_BRANCH in refusal.value.message
    assert graph.branch_list() == ["main"]
    release_schema_lock(graph.store.tables, graph.store.manifests)
    assert graph.schema_apply(BEFORE + "node Place { name: String }").applied


@pytest.mark.requirement("SCH-01", "SCH-17")
def test_a_lock_that_another_took_a_moment_ago_stays_its_own(tmp_path: Path) -> None:
    graph, other = graph_with_rows(tmp_path), Graph.open(str(tmp_path / "graph")).store

    with (
        registry.armed("recovery.sidecar_write", lambda: take_schema_lock(other.tables, other.manifests), times=1),
        pytest.raises(Conflict) as refusal,
    ):
        graph.schema_apply(BEFORE + "node Place { name: String }")

    assert refusal.value.code == "schema_apply_in_progress"
    assert graph.store.manifests.schema_lock_is_held()
    assert graph.store.sidecars.operation_ids() == []


@pytest.mark.requirement("SCH-12", "SCH-17", "REC-05")
def test_the_golden_schema_crash_recovers_to_the_new_schema(tmp_path: Path) -> None:
    golden.unpack("crashed-schema", tmp_path)
    root = golden.localize(tmp_path)
    expected = golden.expect("crashed-schema")

    graph = Graph.open(str(root))

    assert [row.recovery_kind for row in graph.recovered] == ["RolledForward"]
    assert b"".join(graph.export()).decode() == expected["export"]["main"]
    assert graph.snapshot().to_json()["tables"] == expected["snapshot"]["main"]["tables"]
    assert graph.store.manifests.branch_names() == []
    assert not list(root.glob("*.staging")) and not list((root / "__recovery").glob("*"))
    assert graph.schema_apply((root / "_schema.pg").read_text() + "\nnode Extra { x: I32? }\n").applied
