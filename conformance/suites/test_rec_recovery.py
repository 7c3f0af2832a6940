"""REC: a writer that died is finished or undone as a whole, once, and everybody can go on.

Crash states are forged: the operation runs to its end, and its publish is taken back. Where a state can only be reached
inside the engine, failpoints reach it in addition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.judge import Handle, JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.crashed import Crashed, audit_table_exists, hidden, rows_of
from conformance.suites.graphs import PEOPLE, SOCIAL, delete, edge, insert, lines, node, person, update, where
from fixtures.forge import Forge

Operation = Callable[[Handle], object]
TWO_TABLES = (insert("Person", name="dan", age=40), insert("Company", name="zeta"))
PERSON, COMPANY, KNOWS = "node:Person", "node:Company", "edge:Knows"


def mutation(handle: Handle, branch: str = "main") -> object:
    return handle.mutate(*TWO_TABLES, branch=branch, actor="mona")


def removal(handle: Handle) -> object:
    """A node that has edges goes: three tables move."""
    return handle.mutate(delete("Person", where("name", "ann")), actor="mona")


def load(handle: Handle, branch: str = "main") -> object:
    records = lines(person("dan", age=40), node("Company", name="zeta"), edge("Knows", "dan", "ann", id="k9"))
    return handle.load(records, "merge", branch=branch, actor="lola")


def overwrite(handle: Handle) -> object:
    return handle.load(lines(person("ann"), person("bob"), person("cat"), person("eve")), "overwrite", actor="lola")


def merge(handle: Handle) -> object:
    return handle.merge("side", actor="mia")


def forked(graph: JudgedGraph) -> None:
    """A branch whose merge into main moves two tables."""
    graph.branch_create("side")
    graph.mutate(*TWO_TABLES, branch="side")
    graph.mutate(update("Person", where("name", "bob"), age=77))


def nothing(graph: JudgedGraph) -> None:
    """No preparation."""


# -- forward -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("REC-05", "REC-27")
@pytest.mark.parametrize(
    ("operation", "writer_kind", "actor"),
    [
        (mutation, "Mutation", "mona"),
        (removal, "Mutation", "mona"),
        (load, "Load", "lola"),
        (overwrite, "Load", "lola"),
    ],
    ids=["mutation", "cascade", "load", "overwrite"],
)
def test_a_write_that_died_before_its_publish_is_rolled_forward(
    judged: Judged, forge: ForgeOf, operation: Operation, writer_kind: str, actor: str
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    crash = Crashed.before_publish(graph, forge(graph.uri), lambda: operation(graph.handle), writer_kind=writer_kind)
    kind = crash.expected_kind()

    handle = crash.reopened()

    with proving("REC-05"):
        audit = crash.check_audit(handle, kind)
        crash.check_sound(handle, crash.rows_after(kind))
        crash.check_outcomes(audit, kind)
        assert (audit["recovery_for_actor"], audit["sidecar_writer_kind"]) == (actor, writer_kind)
        assert len(handle.commits()) == crash.commits + 1, "one commit of the recovery is due"
        crash.check_second_open(handle)
        handle.mutate(insert("Person", name="zoe"))
        assert "zoe" in handle.export()
    with proving("REC-27"):
        crash.check_commit(handle, audit)


@pytest.mark.requirement("REC-05")
def test_index_work_that_died_before_its_publish_is_rolled_forward(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL.replace("age: I32?", "age: I32? @index"), PEOPLE)
    if not graph.engine.supports("ensure_indices"):
        pytest.skip("the engine has no index work of its own")
    anvil = forge(graph.uri)
    if not any(each["table_key"] == PERSON for each in _unindexed(anvil)):
        pytest.skip("the engine has built every index while it loaded")
    crash = Crashed.before_publish(graph, anvil, graph.handle.ensure_indices, writer_kind="EnsureIndices", actor="ivy")

    handle = crash.reopened()

    with proving("REC-05"):
        audit = crash.check_settled(handle, "RolledForward")
        assert audit["recovery_for_actor"] == "ivy"


def _unindexed(forge: Forge) -> list[dict[str, Any]]:
    return [{"table_key": key} for key in forge.entries() if not forge.indices(key)]


@pytest.mark.requirement("REC-05")
def test_an_optimize_that_died_before_its_publish_is_rolled_forward(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.ensure_indices()
    for name in ("dan", "eve"):
        graph.mutate(insert("Person", name=name), insert("Company", name=name))
    crash = Crashed.before_publish(graph, forge(graph.uri), graph.handle.optimize, writer_kind="Optimize")

    handle = crash.reopened()

    with proving("REC-05"):
        crash.check_settled(handle, "RolledForward")
        assert handle.read(PERSON, version=crash.graph.model.last_version()) == handle.read(PERSON)


# -- back --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("REC-04", "REC-22", "REC-23")
@pytest.mark.parametrize("back", [PERSON, COMPANY])
@pytest.mark.parametrize(("operation", "writer_kind"), [(mutation, "Mutation"), (load, "Load")])
def test_a_write_that_died_between_two_tables_is_rolled_back(
    judged: Judged, forge: ForgeOf, operation: Operation, writer_kind: str, back: str
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    crash = Crashed.half_way(
        graph, forge(graph.uri), lambda: operation(graph.handle), writer_kind=writer_kind, back=back
    )

    handle = crash.reopened()

    with proving("REC-04"):
        audit = crash.check_settled(handle, "RolledBack")
        for key in crash.drifted():
            assert crash.forge.pin(key) > crash.heads[key], "a restore is a version of its own, which is published"
        assert audit["sidecar_writer_kind"] == writer_kind
    with proving("REC-22"):
        untouched = "edge:WorksAt"
        assert (crash.forge.pin(untouched), crash.forge.head(untouched)) == (
            crash.pins[untouched],
            crash.heads[untouched],
        )
    with proving("REC-23"):
        operation(handle)
        assert rows_of(handle) == crash.after


@pytest.mark.requirement("REC-04", "REC-23")
def test_a_cascade_that_died_after_its_edges_is_rolled_back(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    crash = Crashed.half_way(
        graph, forge(graph.uri), lambda: removal(graph.handle), writer_kind="Mutation", back=PERSON
    )

    handle = crash.reopened()

    with proving("REC-04"):
        crash.check_settled(handle, "RolledBack")
        assert [row["id"] for row in handle.read(KNOWS)] == ["k1", "k2"]
    with proving("REC-23"):
        removal(handle)
        assert rows_of(handle) == crash.after


@pytest.mark.requirement("REC-04", "REC-20")
def test_a_write_that_died_before_its_first_table_leaves_no_trace_in_the_rows(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    anvil = forge(graph.uri)
    with proving("REC-20"):
        commits, version = graph.handle.commits(), anvil.manifest_version()
        handle = graph.engine.open(graph.uri)
        assert handle.commits() == commits and handle.recoveries() == []
        assert anvil.manifest_version() == version
        assert not audit_table_exists(anvil), "the open of a sound graph has made the audit table"
    body = anvil.sidecar(writer_kind="Load", tables=[anvil.pin_of(PERSON), anvil.pin_of(COMPANY)], actor="lola")
    crash = Crashed.with_sidecar(graph, anvil, body)

    handle = crash.reopened()

    with proving("REC-04"):
        assert crash.check_audit(handle, "RolledBack")["recovery_for_actor"] == "lola"
        crash.check_sound(handle, crash.before)
        crash.check_second_open(handle)


@pytest.mark.requirement("REC-28")
def test_a_crash_after_index_work_inside_a_load_leaves_a_sound_graph(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    anvil = forge(graph.uri)
    crash = Crashed.before_publish(
        graph, anvil, lambda: graph.handle.load(lines(person("dan", age=40))), writer_kind="Load"
    )
    anvil.table(PERSON).create_scalar_index("age", "BTREE")

    handle = crash.reopened()

    with proving("REC-28"):
        kind = crash.audits(handle)[0]["recovery_kind"]
        crash.check_audit(handle, kind)
        crash.check_sound(handle, crash.rows_after(kind))
        handle.load(lines(person("eve"), person("dan", age=41)))
        assert {row["id"] for row in handle.read(PERSON)} == {"ann", "bob", "cat", "dan", "eve"}


# -- merges ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("REC-08", "REC-23")
@pytest.mark.parametrize(("confirmed", "kind"), [(True, "RolledForward"), (False, "RolledBack")])
def test_a_merge_goes_forward_only_when_it_was_confirmed(
    judged: Judged, forge: ForgeOf, confirmed: bool, kind: str
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    forked(graph)
    source = graph.handle.commits("side")[-1]["graph_commit_id"]
    crash = Crashed.before_publish(
        graph, forge(graph.uri), lambda: merge(graph.handle), writer_kind="BranchMerge", confirmed=confirmed
    )
    assert crash.sidecar["merge_source_commit_id"] == source

    handle = crash.reopened()

    with proving("REC-08"):
        audit = crash.check_settled(handle, kind)
        commit = crash.check_commit(handle, audit)
        assert commit.get("merged_parent_commit_id") == (source if confirmed else None)
        assert audit["recovery_for_actor"] == "mia"
    with proving("REC-23"):
        again = handle.merge("side")
        assert again["outcome"] == ("already_up_to_date" if confirmed else "merged")
        assert rows_of(handle) == crash.after


@pytest.mark.requirement("REC-08")
def test_a_merge_with_one_table_still_to_do_is_rolled_back_also_when_it_claims_to_be_confirmed(
    judged: Judged, forge: ForgeOf
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    forked(graph)
    anvil = forge(graph.uri)
    crash = Crashed.half_way(graph, anvil, lambda: merge(graph.handle), writer_kind="BranchMerge", back=COMPANY)

    def confirm(body: dict[str, Any]) -> None:
        for pin in body["tables"]:
            pin["confirmed_version"] = max(anvil.head(pin["table_key"]), pin["expected_version"] + 1)

    anvil.edit_json(crash.sidecar_name, confirm)
    handle = crash.reopened()

    with proving("REC-08"):
        crash.check_settled(handle, "RolledBack")


def as_version_1(body: dict[str, Any]) -> None:
    body["schema_version"] = 1
    body.pop("merge_source_commit_id", None)


@pytest.mark.requirement("REC-09")
def test_a_merge_sidecar_of_version_1_is_rolled_forward_without_confirmation(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    forked(graph)
    crash = Crashed.before_publish(graph, forge(graph.uri), lambda: merge(graph.handle), writer_kind="BranchMerge")
    crash.forge.edit_json(crash.sidecar_name, as_version_1)
    handle = crash.reopened()

    with proving("REC-09"):
        crash.check_settled(handle, "RolledForward")


@pytest.mark.requirement("REC-09", "REC-13")
def test_a_merge_sidecar_of_version_1_over_a_finished_merge_takes_nothing_back(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    forked(graph)
    crash = Crashed.after_publish(graph, forge(graph.uri), lambda: merge(graph.handle), writer_kind="BranchMerge")
    crash.forge.edit_json(crash.sidecar_name, as_version_1)

    handle = crash.reopened()

    with proving("REC-09", "REC-13"):
        crash.check_audit(handle, "RolledForward")
        crash.check_sound(handle, crash.before)
        assert handle.merge("side")["outcome"] == "already_up_to_date"


# -- branches ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("REC-16", "REC-27")
@pytest.mark.parametrize("writes_before", [0, 1], ids=["first-write", "later-write"])
@pytest.mark.parametrize("is_whole", [True, False], ids=["forward", "back"])
def test_a_write_on_a_branch_is_judged_by_that_branch(
    judged: Judged, forge: ForgeOf, writes_before: int, is_whole: bool
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("feat/one")
    if writes_before:
        graph.mutate(insert("Person", name="eve"), insert("Company", name="beta"), branch="feat/one")
    graph.mutate(insert("Person", name="only-main"), insert("Company", name="only-main"))
    cut, anvil = Crashed.before_publish if is_whole else Crashed.half_way, forge(graph.uri)
    main = (graph.handle.commits("main"), anvil.entries(), anvil.head(PERSON))
    crash = cut(
        graph,
        anvil,
        lambda: mutation(graph.handle, "feat/one"),
        branch="feat/one",
        writer_kind="Mutation",
    )
    kind = crash.expected_kind() if is_whole else "RolledBack"

    handle = crash.reopened()

    with proving("REC-16"):
        audit = crash.check_audit(handle, kind)
        crash.check_sound(handle, crash.rows_after(kind))
        assert (handle.commits("main"), crash.forge.entries(), crash.forge.head(PERSON)) == main, "main has moved"
        crash.check_second_open(handle)
        handle.mutate(update("Person", where("name", "bob"), age=5), branch="feat/one")
        assert handle.row(PERSON, "bob", "feat/one")["age"] == 5  # type: ignore[index]
    with proving("REC-27"):
        crash.check_commit(handle, audit)


@pytest.mark.requirement("REC-17", "REC-27")
@pytest.mark.parametrize("through", ["open", "write", "refresh"])
def test_the_sidecar_of_a_deleted_branch_is_discarded(judged: Judged, forge: ForgeOf, through: str) -> None:
    graph = judged(SOCIAL, PEOPLE)
    anvil = forge(graph.uri)
    pin = {**anvil.pin_of(PERSON), "table_branch": "gone"}
    body = anvil.sidecar(writer_kind="Load", tables=[pin], branch="gone", actor="gus")
    with hidden(anvil, "__recovery"):
        handle = graph.engine.open(graph.uri)
    before, commits = rows_of(handle), handle.commits()
    name = anvil.write_sidecar(body)

    if through == "open":
        handle = graph.engine.open(graph.uri)
    elif through == "write":
        handle.mutate(insert("Company", name="zeta"))
    else:
        handle.refresh()

    with proving("REC-17"):
        audits = [row for row in handle.recoveries() if row["operation_id"] == body["operation_id"]]
        assert [row["recovery_kind"] for row in audits] == ["OrphanedBranchDiscarded"]
        assert (audits[0]["outcomes"], audits[0]["recovery_for_actor"]) == ([], "gus")
        assert name not in anvil.sidecars()
        if through != "write":
            assert rows_of(handle) == before
        again = graph.engine.open(graph.uri)
        assert len(again.recoveries()) == 1
        again.mutate(insert("Person", name="zoe"))
    with proving("REC-27"):
        (commit,) = (each for each in handle.commits() if each["graph_commit_id"] == audits[0]["graph_commit_id"])
        assert commit["manifest_branch"] is None and commit.get("actor_id") == "omnigraph:recovery"
        assert commit.get("parent_commit_id") == commits[-1]["graph_commit_id"]
