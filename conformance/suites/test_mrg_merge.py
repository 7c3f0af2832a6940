"""MRG: how a merge ends, what it records, what it moves, and that a refused one leaves nothing behind.

How rows are compared is in `test_mrg_rows.py`, merges in all directions in `test_mrg_directions.py`, and the 36 cells
in `test_mrg_truth_table.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from conformance.adapters import EngineError
from conformance.judge import Engine, JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import (
    NOTES,
    PEOPLE,
    SOCIAL,
    delete,
    delete_edge,
    edge,
    insert,
    insert_edge,
    note,
    person,
    set_note,
    update,
    where,
)
from conformance.suites.refusals import refused
from fixtures.forge import Forge
from fixtures.forge.sidecars import new_operation_id


def notes(graph: JudgedGraph, branch: str = "main") -> dict[str, int]:
    return {row["id"]: row["x"] for row in graph.handle.read("node:Note", branch)}


def heads(forge: Forge, *table_keys: str) -> dict[str, int]:
    """The HEADs of main's copies of tables."""
    return {key: int(forge.storage(key).version) for key in table_keys}


def pins(graph: JudgedGraph, branch: str = "main") -> dict[str, tuple[int, str | None]]:
    tables = graph.handle.snapshot(branch)["tables"]
    return {each["table_key"]: (each["table_version"], each["table_branch"]) for each in tables}


# -- how a merge ends --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MRG-01", "MRG-06")
def test_a_merge_is_up_to_date_then_fast_forward_then_merged(judged: Judged) -> None:
    graph = judged(NOTES, [note("a", 1)])
    graph.branch_create("b")

    with proving("MRG-01"):
        fresh = graph.merge("b")
        assert (fresh["outcome"], fresh["commit"]) == ("already_up_to_date", None), "two equal heads have met already"

        graph.mutate(set_note("a", 2), branch="b")
        source, target = graph.handle.commits("b")[-1], graph.handle.commits()[-1]
        forward = graph.merge("b")
        assert forward["outcome"] == "fast_forward"
        assert forward["commit"]["parent_commit_id"] == target["graph_commit_id"]
        assert forward["commit"]["merged_parent_commit_id"] == source["graph_commit_id"]
        assert forward["commit"]["manifest_version"] > target["manifest_version"]
        assert graph.handle.commits()[-1]["graph_commit_id"] == forward["commit"]["graph_commit_id"]

        graph.mutate(insert("Note", name="main", x=1))
        graph.mutate(insert("Note", name="branch", x=1), branch="b")
        source, target = graph.handle.commits("b")[-1], graph.handle.commits()[-1]
        both = graph.merge("b")
        assert both["outcome"] == "merged"
        assert both["commit"]["parent_commit_id"] == target["graph_commit_id"]
        assert both["commit"]["merged_parent_commit_id"] == source["graph_commit_id"]
    with proving("MRG-06"):
        commits, pinned = graph.handle.commits(), pins(graph)
        again = graph.merge("b")
        assert (again["outcome"], again["commit"]) == ("already_up_to_date", None)
        assert (graph.handle.commits(), pins(graph)) == (commits, pinned), "up to date publishes nothing"


@pytest.mark.requirement("MRG-01")
def test_a_branch_that_is_only_behind_is_up_to_date_and_the_other_way_is_fast_forward(judged: Judged) -> None:
    graph = judged(NOTES, [note("a", 1)])
    graph.branch_create("b")
    graph.mutate(set_note("a", 2))

    with proving("MRG-01"):
        assert graph.merge("b", "main")["outcome"] == "already_up_to_date"
        assert graph.merge("main", "b")["outcome"] == "fast_forward"
        # Main's head is in the branch now, but the merge commit of the branch is not in main.
        assert graph.merge("main", "b")["outcome"] == "already_up_to_date"
        assert graph.merge("b", "main")["outcome"] == "fast_forward"


@pytest.mark.requirement("MRG-05")
def test_a_merge_into_itself_or_of_an_internal_branch_is_a_bad_request(judged: Judged) -> None:
    graph = judged(NOTES, [note("a", 1)])
    graph.branch_create("b")
    lock = "__schema_apply_lock__"

    with proving("MRG-05"):
        for source, target in (("b", "b"), ("main", "main"), (lock, "main"), ("b", lock)):
            refused("bad_request", lambda one=source, two=target: graph.merge(one, two), f"{source} into {target}")  # type: ignore[misc]


@pytest.mark.requirement("MRG-05")
def test_branches_without_a_common_commit_do_not_merge(judged: Judged, forge: ForgeOf) -> None:
    """A branch whose manifest begins with a commit of its own, as no engine would make one."""
    graph = judged(NOTES)
    graph.branch_create("b")
    graph.audited = False
    damaged = forge(graph.uri)
    (genesis,) = (row for row in damaged.rows("b") if row["object_type"] == "graph_commit")
    damaged.remove_row(genesis["object_id"], branch="b")
    damaged.add_row(
        branch="b",
        object_id=new_operation_id(),
        object_type="graph_commit",
        table_version=damaged.manifest_version("b") + 1,
        table_branch="b",
        metadata='{"created_at":1700000000000000}',
    )
    handle = graph.engine.open(graph.uri)

    with proving("MRG-05"):
        refused("bad_request", lambda: handle.merge("b", "main"), "a merge without a common commit")


@pytest.mark.requirement("MRG-06")
def test_a_merge_that_recovery_completed_is_up_to_date(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(NOTES, [note("a", 1)])
    graph.branch_create("b")
    graph.mutate(set_note("a", 2), branch="b")
    source = graph.handle.commits("b")[-1]["graph_commit_id"]
    forge(graph.uri).crash_between_commit_and_publish(
        lambda: graph.handle.merge("b", "main"), writer_kind="BranchMerge", confirmed=True
    )

    handle = graph.engine.open(graph.uri)

    with proving("MRG-06"):
        assert source in [each.get("merged_parent_commit_id") for each in handle.commits()]
        assert handle.read("node:Note") == handle.read("node:Note", "b")
        again = handle.merge("b", "main")
        assert (again["outcome"], again["commit"]) == ("already_up_to_date", None)


# -- what a merge moves ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MRG-08")
def test_an_append_only_fast_forward_only_appends(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(NOTES, [note(f"old{number}", number) for number in range(5)])
    graph.branch_create("b")
    graph.load([note("new1", 1)], branch="b")
    graph.load([note("new2", 2)], "append", branch="b")
    disk = forge(graph.uri)
    before = disk.storage("node:Note")
    indexes = [index.name for index in disk.indices("node:Note")]

    graph.merge("b")

    with proving("MRG-08"):
        after = disk.storage("node:Note")
        versions = range(int(before.version) + 1, int(after.version) + 1)
        transactions = [after.read_transaction(version) for version in versions]
        operations = {type(each.operation).__name__ for each in transactions if each is not None}
        assert operations == {"Append"}, f"new rows are appended and nothing else is done, and there is {operations}"
        assert [index.name for index in disk.indices("node:Note")] == indexes, "no index is built"


@pytest.mark.requirement("MRG-08")
def test_an_adoption_writes_only_the_rows_that_differ(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(NOTES, [note(f"n{number}", number) for number in range(6)])
    graph.branch_create("b")
    graph.load([note("new", 1)], branch="b")
    graph.mutate(set_note("n1", 10), branch="b")
    graph.mutate(delete("Note", where("name", "n2")), branch="b")
    disk = forge(graph.uri)
    columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
    before = {row["id"]: row for row in disk.storage("node:Note").to_table(columns=columns).to_pylist()}

    graph.merge("b")

    with proving("MRG-08"):
        after = {row["id"]: row for row in disk.storage("node:Note").to_table(columns=columns).to_pylist()}
        assert {row_id for row_id, row in after.items() if before.get(row_id) != row} == {"new", "n1"}
        assert before.keys() - after.keys() == {"n2"}
        assert after["n1"]["_row_created_at_version"] == before["n1"]["_row_created_at_version"], "it is the same row"


@pytest.mark.requirement("MRG-09")
def test_a_branch_without_tables_of_its_own_adopts_what_main_has_by_pointer(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("b")
    graph.load([person("dan", age=1), edge("Knows", "dan", "ann", id="k3")])
    disk = forge(graph.uri)
    before = heads(disk, "node:Person", "edge:Knows", "node:Company", "edge:WorksAt")

    graph.merge("main", "b")

    with proving("MRG-09"):
        assert heads(disk, *before) == before, "main's tables do not move"
        assert pins(graph, "b") == pins(graph), "the branch reads what main reads"
        assert not [name for name in disk.list("") if "/tree/b/" in name and not name.startswith("__manifest/")]
    graph.mutate(update("Person", where("name", "dan"), age=2), branch="b")
    graph.mutate(delete("Person", where("name", "ann")), branch="b")


@pytest.mark.requirement("MRG-09")
def test_a_branch_that_adopts_another_branch_moves_neither_main_nor_the_other(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(NOTES, [note("a", 1)])
    graph.branch_create("one")
    graph.branch_create("two")
    graph.mutate(set_note("a", 2), branch="one")
    disk = forge(graph.uri)
    before = (disk.storage("node:Note").version, disk.storage("node:Note", "one").version)

    graph.merge("one", "two")

    with proving("MRG-09"):
        assert (disk.storage("node:Note").version, disk.storage("node:Note", "one").version) == before
        assert notes(graph, "two") == {"a": 2}
    graph.mutate(set_note("a", 3), branch="two")
    graph.mutate(set_note("a", 4), branch="one")


@pytest.mark.requirement("MRG-09")
@pytest.mark.parametrize("source", ["main", "other"])
def test_adopted_rows_are_held_to_the_rules_of_the_target(judged: Judged, source: str) -> None:
    """The edges are adopted as they are, since the branch has not changed any; but it has removed an end of one."""
    graph = judged(SOCIAL, [person("ann"), person("bob")])
    graph.branch_create("b")
    graph.branch_create("other")
    graph.mutate(delete("Person", where("name", "bob")), branch="b")
    graph.mutate(insert_edge("Knows", "ann", "bob", id="k"), branch=source)

    with proving("MRG-09"):
        error = refused("conflict", lambda: graph.merge(source, "b"), "the adoption of an edge to a removed node")
        found = [(each["table_key"], each["row_id"], each["kind"]) for each in error.details["conflicts"]]
        assert found == [("edge:Knows", "k", "OrphanEdge")]


# -- branches whose changes cancel out ---------------------------------------------------------------------------------


def edge_and_back(graph: JudgedGraph, branch: str) -> None:
    graph.mutate(insert_edge("Knows", "cat", "ann", id="short-lived"), branch=branch)
    graph.mutate(delete_edge("Knows", where("from", "cat")), branch=branch)


def same_rows_again(graph: JudgedGraph, branch: str) -> None:
    graph.load(PEOPLE, branch=branch)


def value_and_back(graph: JudgedGraph, branch: str) -> None:
    graph.mutate(update("Person", where("name", "ann"), age=99), branch=branch)
    graph.mutate(update("Person", where("name", "ann"), age=30), branch=branch)


def row_away_and_back(graph: JudgedGraph, branch: str) -> None:
    graph.mutate(delete_edge("Knows", where("from", "ann")), branch=branch)
    graph.load([PEOPLE[4]], branch=branch)


def overwritten_with_the_same(graph: JudgedGraph, branch: str) -> None:
    graph.load(PEOPLE, "overwrite", branch=branch)


NET_ZERO: Final = (edge_and_back, same_rows_again, value_and_back, row_away_and_back, overwritten_with_the_same)


@pytest.mark.requirement("MRG-10")
@pytest.mark.parametrize("edits", NET_ZERO, ids=lambda edits: edits.__name__)
def test_edits_that_cancel_out_merge_with_one_commit_and_no_table_version(
    judged: Judged, forge: ForgeOf, edits: Any
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("b")
    edits(graph, "b")
    before, commits = pins(graph), len(graph.handle.commits())
    disk = forge(graph.uri)
    moved = heads(disk, *before)

    with proving("MRG-10"):
        assert graph.merge("b")["outcome"] == "fast_forward"
        assert len(graph.handle.commits()) == commits + 1
        assert pins(graph) == before and heads(disk, *before) == moved, "no table gets a version"
        assert graph.merge("b")["outcome"] == "already_up_to_date"
    graph.mutate(update("Person", where("name", "bob"), age=1), branch="b")
    graph.merge("b")


@pytest.mark.requirement("MRG-10", "MRG-12")
def test_edits_that_cancel_out_merge_beside_edits_that_do_not(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("b")
    edge_and_back(graph, "b")
    graph.mutate(update("Person", where("name", "bob"), age=32), branch="b")
    graph.mutate(update("Person", where("name", "cat"), age=33))
    graph.mutate(insert_edge("Knows", "cat", "bob", id="k9"))
    before = pins(graph)["edge:Knows"]
    head = heads(forge(graph.uri), "edge:Knows")

    with proving("MRG-10"):
        assert graph.merge("b")["outcome"] == "merged"
        assert pins(graph)["edge:Knows"] == before and heads(forge(graph.uri), "edge:Knows") == head
        assert graph.merge("b")["outcome"] == "already_up_to_date"
    with proving("MRG-12"):
        assert graph.merge("main", "b")["outcome"] == "fast_forward"
        assert graph.handle.export("b") == graph.handle.export()


# -- races and refusals ------------------------------------------------------------------------------------------------


def race(merge: Callable[[], object], write: Callable[[], object], refusals: dict[str, EngineError]) -> None:
    """Do both at the same moment, and note who was refused."""
    barrier = threading.Barrier(2)

    def run(what: str, work: Callable[[], object]) -> None:
        barrier.wait()
        try:
            work()
        except EngineError as error:
            refusals[what] = error

    threads = [threading.Thread(target=run, args=each) for each in (("merge", merge), ("write", write))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.requirement("MRG-07", "MRG-14", "PUB-23")
def test_a_merge_that_races_a_write_on_its_target_loses_neither(judged: Judged, peers: Peers) -> None:
    """Whoever is first, the other comes after it or is refused; a refused one is not applied later."""
    graph = judged(NOTES, [note("a", 0), note("b", 0)])
    one, two = peers().open(graph.uri), peers().open(graph.uri)
    expected = {"a": 0, "b": 0}
    for number in range(1, 5):
        name = f"round{number}"
        one.branch_create(name)
        one.mutate(set_note("b", number), branch=name)
        refusals: dict[str, EngineError] = {}

        race(partial(one.merge, name, "main"), partial(two.mutate, set_note("a", number)), refusals)

        with proving("MRG-07"):
            for what, error in refusals.items():
                assert error.kind == "conflict", f"the {what} that lost must say so, and says {error}"
            done = {} if "write" in refusals else {"a": number}
            done |= {} if "merge" in refusals else {"b": number}
            found = {row["id"]: row["x"] for row in one.read("node:Note")}
            assert found | done == found, f"what was acknowledged is lost; refused: {sorted(refusals)}"
        expected |= done
        with proving("PUB-23"):
            assert found == expected, f"refused, and done all the same: {sorted(refusals)}"
    with proving("MRG-14"):
        reopened = graph.engine.open(graph.uri)
        assert {row["id"]: row["x"] for row in reopened.read("node:Note")} == expected


@pytest.mark.requirement("MRG-14", "MRG-02")
def test_a_merge_with_conflicts_is_never_applied(judged: Judged, forge: ForgeOf, engine: Engine) -> None:
    """One table merges, the other conflicts: neither moves, and no later open, refresh or write brings it."""
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("b")
    graph.mutate(insert("Company", name="beta"), branch="b")
    graph.mutate(update("Person", where("name", "ann"), age=1), branch="b")
    graph.mutate(update("Person", where("name", "ann"), age=2))
    disk = forge(graph.uri)
    before = heads(disk, *pins(graph))

    with proving("MRG-02"):
        error = refused("conflict", lambda: graph.merge("b"), "a merge with a divergent update")
        found = [(each["table_key"], each["row_id"], each["kind"]) for each in error.details["conflicts"]]
        assert found == [("node:Person", "ann", "DivergentUpdate")]
    with proving("MRG-14"):
        assert disk.sidecars() == {} and heads(disk, *pins(graph)) == before
        graph.reopen()
        graph.mutate(update("Person", where("name", "bob"), age=5))
        graph.reopen(engine=engine)
        assert [row["id"] for row in graph.handle.read("node:Company")] == ["acme"]
    graph.mutate(update("Person", where("name", "ann"), age=2), branch="b")
    assert graph.merge("b")["outcome"] == "merged"
    assert [row["id"] for row in graph.handle.read("node:Company")] == ["acme", "beta"]


@pytest.mark.requirement("MRG-14")
def test_a_merge_that_failed_before_its_tables_moved_is_never_applied(judged: Judged, peers: Peers) -> None:
    graph = judged(NOTES, [note("a", 0)])
    graph.branch_create("b")
    graph.mutate(set_note("a", 1), branch="b")
    failing = peers(failpoints="recovery.sidecar_write=error").open(graph.uri)

    with pytest.raises(EngineError) as caught:
        failing.merge("b", "main")
    refusal = caught.value.kind

    with proving("MRG-14"):
        assert refusal != "outcome_pending", "no table can have moved before the sidecar is written"
        graph.reopen()
        assert notes(graph) == {"a": 0}
