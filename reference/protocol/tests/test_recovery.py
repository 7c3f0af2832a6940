"""Recovery: every gap of the protocol, every class of a table, every decision.

A failpoint armed with `error` stops a writer where a crash would: its sidecar and its table commits stay as they are.
After each recovery the same oracle is asked: no sidecar, one audit row of the right kind, pins equal to HEADs, a second
open that changes nothing, and a write that works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from failpoints.registry import armed
from reference.errors import Conflict, Internal, OmniError, OutcomePending
from reference.format.names import table_path
from reference.format.sidecar import Pin, Sidecar, WriterKind
from reference.graph import Graph
from reference.protocol.recovery import classify
from reference.tests.graphs import city, knows, names, new_graph, person, reopened, state_of

OPERATION = "01M7GZSZTDJD97MA655G1X2CDR"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    found = new_graph(tmp_path / "graph")
    found.mutate([person("ann", 30), person("bea"), knows("ann", "bea")], actor="founder")
    return found


def cut(graph: Graph, failpoint: str, *statements: dict[str, Any], **options: Any) -> None:
    """Run a mutation that dies at a failpoint."""
    with armed(failpoint, "error"), pytest.raises(OmniError):
        graph.mutate(list(statements), **options)


def forge(graph: Graph, kind: WriterKind = "Mutation", **changes: Any) -> Sidecar:
    """Put a sidecar on the store that no writer of this process knows."""
    entry = graph.snapshot().entries["node:Person"]
    pin = Pin("node:Person", graph.store.root.join(entry.path), entry.version, entry.version + 1)
    sidecar = replace(Sidecar(OPERATION, 1, None, "eve", kind, (pin,)), **changes)
    graph.store.objects.write(f"__recovery/{sidecar.operation_id}.json", sidecar.encode())
    return sidecar


def move_head(graph: Graph, table_key: str = "node:Person", times: int = 1) -> None:
    """Commit to a table behind the engine's back, as a writer of another engine does before it publishes."""
    table = lance.dataset(graph.store.root.join(table_path(table_key)))
    for number in range(times):
        row = {"id": f"moved{number}", "name": f"moved{number}", "age": 1}
        table.insert(pa.Table.from_pylist([row], schema=table.schema))


def heads_equal_pins(graph: Graph) -> bool:
    entries = [entry for branch in graph.branch_list() for entry in graph.snapshot(branch).entries.values()]
    return all(
        graph.store.tables.open_latest(entry.path, entry.branch).version == entry.version
        for entry in entries
        if entry.branch is not None or entry in graph.snapshot("main").entries.values()
    )


def assert_settled(graph: Graph, *kinds: str) -> None:
    """The oracle after a recovery."""
    assert graph.store.sidecars.operation_ids() == []
    assert [row.recovery_kind for row in graph.recoveries()] == list(kinds)
    assert heads_equal_pins(graph)
    before = graph.snapshot().version
    again = reopened(graph)
    assert (again.recovered, again.snapshot().version) == ([], before)
    again.mutate([person("after")])
    again.mutate([{"op": "delete", "type": "Person", "where": {"property": "name", "op": "eq", "value": "after"}}])


# -- the life of a sidecar -------------------------------------------------------------------------------------


@pytest.mark.requirement("LAY-09", "REC-20", "LAY-08")
def test_a_graph_that_never_crashed_has_no_sidecar_no_audit_table_and_no_recovery_commit(graph: Graph) -> None:
    again = reopened(graph)
    assert again.recovered == []
    assert graph.store.objects.list_dir("__recovery") == []
    assert not graph.store.objects.exists("_graph_commit_recoveries.lance")
    assert len(again.commits()) == 2


@pytest.mark.requirement("REC-03", "REC-01", "PUB-23")
def test_a_sidecar_that_cannot_be_written_stops_the_write_before_anything_moves(graph: Graph) -> None:
    before = state_of(graph)
    with armed("recovery.sidecar_write", "error"), pytest.raises(OmniError) as refused:
        graph.mutate([person("cyd")])
    assert refused.value.kind != "outcome_pending"
    assert (state_of(graph), graph.store.sidecars.operation_ids(), heads_equal_pins(graph)) == (before, [], True)
    graph.mutate([person("cyd")])


@pytest.mark.requirement("REC-01", "REC-02", "REC-05", "REC-27", "LIN-14")
def test_a_cut_before_the_publish_is_rolled_forward_by_the_next_open(graph: Graph) -> None:
    cut(graph, "mutation.post_finalize_pre_publisher", person("cyd"), knows("cyd", "ann"), actor="cyd")
    assert len(graph.store.sidecars.operation_ids()) == 1
    parent = graph.commits()[-1]
    again = reopened(graph)
    assert names(again) == ["ann", "bea", "cyd"]
    recovery = again.commits()[-1]
    assert (recovery.actor_id, recovery.parent_commit_id) == ("omnigraph:recovery", parent.graph_commit_id)
    assert again.recovered[0].recovery_for_actor == "cyd"
    assert again.recovered[0].graph_commit_id == recovery.graph_commit_id
    assert {(o.table_key, o.from_version, o.to_version) for o in again.recovered[0].outcomes} == {
        ("edge:Knows", 2, 3),
        ("node:Person", 2, 3),
    }
    assert_settled(again, "RolledForward")


@pytest.mark.requirement("REC-06")
@pytest.mark.parametrize("heal", ["mutate", "load", "merge", "refresh", "branch_delete"])
def test_a_live_handle_rolls_forward_at_its_next_write_or_refresh(graph: Graph, heal: str) -> None:
    graph.branch_create("side")
    cut(graph, "mutation.post_finalize_pre_publisher", person("cyd"))
    healers: dict[str, Callable[[], object]] = {
        "mutate": lambda: graph.mutate([city("Rome")]),
        "load": lambda: graph.load('{"type":"City","data":{"name":"Rome"}}', mode="merge"),
        "merge": lambda: graph.merge("side", "main"),
        "refresh": graph.refresh,
        "branch_delete": lambda: graph.branch_delete("side"),
    }
    healers[heal]()
    assert "cyd" in names(graph)
    assert_settled(graph, "RolledForward")


@pytest.mark.requirement("REC-04", "REC-22", "REC-23", "PUB-21")
def test_a_cut_between_two_tables_is_rolled_back_whole(graph: Graph) -> None:
    before = state_of(graph)
    cities = graph.snapshot().entries["node:City"]
    sidecar = forge(graph)
    knows_entry = graph.snapshot().entries["edge:Knows"]
    forge(
        graph,
        tables=(
            *sidecar.tables,
            Pin("edge:Knows", graph.store.root.join(knows_entry.path), knows_entry.version, knows_entry.version + 1),
        ),
    )
    move_head(graph)
    again = reopened(graph)
    assert state_of(again) == before
    assert again.snapshot().entries["node:Person"].version == 4
    assert again.snapshot().entries["node:City"] == cities
    assert [vars(outcome) for outcome in again.recovered[0].outcomes] == [
        {"table_key": "node:Person", "from_version": 3, "to_version": 2}
    ]
    assert_settled(again, "RolledBack")


@pytest.mark.requirement("REC-07")
def test_a_live_handle_never_rolls_back(graph: Graph) -> None:
    forge(graph)
    move_head(graph, times=2)
    graph.refresh()
    assert graph.store.sidecars.operation_ids() == [OPERATION]
    with pytest.raises(Conflict) as refused:
        graph.mutate([person("cyd")])
    assert refused.value.code == "recovery_pending"
    assert_settled(reopened(graph), "RolledBack")


@pytest.mark.requirement("REC-13", "REC-02")
def test_a_sidecar_that_cannot_be_deleted_does_not_fail_the_write(graph: Graph) -> None:
    with armed("recovery.sidecar_delete", "error"):
        graph.mutate([person("cyd")], actor="cyd")
    assert len(graph.store.sidecars.operation_ids()) == 1
    commits = len(graph.commits())
    graph.mutate([person("dan")])
    assert names(graph) == ["ann", "bea", "cyd", "dan"]
    assert len(graph.commits()) == commits + 2
    assert_settled(graph, "RolledForward")


@pytest.mark.requirement("REC-12")
def test_a_listing_that_fails_is_not_an_empty_one(graph: Graph) -> None:
    with armed("recovery.sidecar_list", "error"):
        with pytest.raises(OmniError):
            graph.mutate([person("cyd")])
        with pytest.raises(OmniError):
            reopened(graph)
        assert names(reopened(graph, read_only=True)) == ["ann", "bea"]


@pytest.mark.requirement("REC-10", "REC-11", "EXP-05")
@pytest.mark.parametrize("text", ["{", '{"schema_version": 3}'])
def test_a_sidecar_that_cannot_be_understood_stops_writers_and_stays(graph: Graph, text: str) -> None:
    graph.store.objects.write(f"__recovery/{OPERATION}.json", text)
    for attempt in (lambda: reopened(graph), lambda: graph.mutate([person("cyd")]), graph.refresh):
        with pytest.raises(Internal) as refused:
            attempt()
        assert refused.value.code == "sidecar_unreadable"
    assert graph.store.objects.read(f"__recovery/{OPERATION}.json") == text
    assert names(reopened(graph, read_only=True)) == ["ann", "bea"]


@pytest.mark.requirement("LAY-15")
def test_other_files_in_the_recovery_directory_are_ignored(graph: Graph) -> None:
    graph.store.objects.write("__recovery/notes.txt", "not a sidecar")
    Path(graph.store.root.path, "__recovery", f"{OPERATION}.json#7").write_text("{")
    assert reopened(graph).recovered == []
    graph.mutate([person("cyd")])


@pytest.mark.requirement("REC-10")
def test_a_sidecar_with_the_addresses_of_another_graph_is_not_acted_upon(graph: Graph) -> None:
    sidecar = forge(graph)
    forge(graph, tables=(replace(sidecar.tables[0], table_path="s3://elsewhere/nodes/40d76f1f51639ec0"),))
    move_head(graph)
    with pytest.raises(Internal) as refused:
        reopened(graph)
    assert refused.value.code == "sidecar_foreign"
    assert graph.store.sidecars.operation_ids() == [OPERATION]


# -- audit and idempotence -------------------------------------------------------------------------------------


@pytest.mark.requirement("REC-14", "REC-18")
def test_a_recovery_cut_before_its_audit_ends_in_one_audit_row(graph: Graph) -> None:
    cut(graph, "mutation.post_finalize_pre_publisher", person("cyd"))
    with armed("recovery.record_audit", "error"), pytest.raises(OmniError):
        reopened(graph)
    assert len(graph.store.sidecars.operation_ids()) == 1
    again = reopened(graph)
    assert names(again) == ["ann", "bea", "cyd"]
    assert_settled(again, "RolledForward")


@pytest.mark.requirement("REC-14", "REC-18")
def test_a_rollback_cut_before_its_audit_is_still_told_from_a_roll_forward(graph: Graph) -> None:
    before = state_of(graph)
    forge(graph)
    move_head(graph, times=2)
    with armed("recovery.record_audit", "error"), pytest.raises(OmniError):
        reopened(graph)
    again = reopened(graph)
    assert state_of(again) == before
    assert_settled(again, "RolledBack")


@pytest.mark.requirement("REC-18")
def test_a_recovery_cut_before_its_publish_starts_over(graph: Graph) -> None:
    cut(graph, "mutation.post_finalize_pre_publisher", person("cyd"))
    with armed("recovery.before_roll_forward_publish", "error"), pytest.raises(OmniError):
        reopened(graph)
    assert_settled(reopened(graph), "RolledForward")


@pytest.mark.requirement("REC-18", "REC-13")
def test_a_recovery_cut_after_its_audit_only_removes_the_sidecar(graph: Graph) -> None:
    cut(graph, "mutation.post_finalize_pre_publisher", person("cyd"))
    with armed("recovery.sidecar_delete", "error"), pytest.raises(OmniError):
        reopened(graph)
    commits = len(graph.commits())
    assert len(reopened(graph).commits()) == commits
    assert_settled(reopened(graph), "RolledForward")


@pytest.mark.requirement("REC-18")
@pytest.mark.parametrize("point", ["graph_publish.before_commit_append", "graph_publish.after_manifest_commit"])
def test_a_rollback_cut_around_its_publish_converges(graph: Graph, point: str) -> None:
    before = state_of(graph)
    forge(graph)
    move_head(graph, times=2)
    for _ in range(3):
        with armed(point, "error"), pytest.raises(OmniError):
            reopened(graph)
    again = reopened(graph)
    assert state_of(again) == before
    assert [row.recovery_kind for row in again.recoveries()] == ["RolledBack"]
    assert heads_equal_pins(again)


# -- branches --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("REC-16", "REC-27")
def test_a_cut_on_a_branch_is_recovered_on_that_branch_and_main_stays(graph: Graph) -> None:
    graph.branch_create("feat")
    main = graph.snapshot("main")
    cut(graph, "mutation.post_finalize_pre_publisher", person("cyd"), branch="feat")
    again = reopened(graph)
    assert (names(again, branch="feat"), names(again)) == (["ann", "bea", "cyd"], ["ann", "bea"])
    assert again.snapshot("main") == main
    assert again.commits("feat")[-1].manifest_branch == "feat"
    assert again.snapshot("feat").entries["node:Person"].branch == "feat"
    assert_settled(again, "RolledForward")


@pytest.mark.requirement("REC-17", "REC-27")
@pytest.mark.parametrize("failpoint", [None, "recovery.orphan_discard_audit_append"])
def test_the_sidecar_of_a_deleted_branch_is_discarded_with_an_audit_row(graph: Graph, failpoint: str | None) -> None:
    forge(graph, branch="gone")
    if failpoint is not None:
        with armed(failpoint, "error"), pytest.raises(OmniError):
            reopened(graph)
    again = reopened(graph)
    assert again.commits()[-1].manifest_branch is None
    assert again.recoveries()[0].outcomes == ()
    assert_settled(again, "OrphanedBranchDiscarded")


# -- several sidecars, other processes -------------------------------------------------------------------------


@pytest.mark.requirement("REC-15")
def test_sidecars_are_dealt_with_in_the_order_of_their_names(graph: Graph) -> None:
    cut(graph, "mutation.post_finalize_pre_publisher", person("cyd"), actor="first")
    with armed("mutation.post_finalize_pre_publisher", "error"), pytest.raises(OmniError):
        # The heal of this write is what rolls the first one forward.
        graph.mutate([city("Rome")], actor="second")
    forge(graph, operation_id="00000000000000000000000000", tables=(), actor_id="zeroth", branch="gone")
    done = [row.recovery_for_actor for row in reopened(graph).recovered]
    assert done == ["zeroth", "second"]


@pytest.mark.requirement("REC-15", "REC-04")
def test_an_intent_under_which_nothing_moved_is_rolled_back_without_touching_a_table(graph: Graph) -> None:
    entries = graph.snapshot().entries
    forge(graph)
    again = reopened(graph)
    assert again.snapshot().entries == entries
    assert again.recoveries()[0].outcomes == ()
    assert_settled(again, "RolledBack")


@pytest.mark.requirement("REC-19", "REC-24")
def test_a_version_of_another_operation_is_not_taken_for_the_writers_own(graph: Graph) -> None:
    forge(graph)
    cut(graph, "mutation.post_finalize_pre_publisher", city("Rome"))
    # A rival of this engine moved the table by exactly one version, and died too.
    graph.store.objects.delete(f"__recovery/{OPERATION}.json")
    cut(graph, "mutation.post_finalize_pre_publisher", person("rival"))
    rival = graph.store.sidecars.operation_ids()[-1]
    graph.store.objects.delete(f"__recovery/{rival}.json")
    forge(graph)
    again = reopened(graph)
    assert "rival" not in names(again)


@pytest.mark.requirement("REC-21", "SNP-09", "EXP-05")
def test_a_read_only_open_leaves_a_crashed_graph_exactly_as_it_is(graph: Graph) -> None:
    cut(graph, "mutation.post_finalize_pre_publisher", person("cyd"))
    root = Path(graph.store.root.path)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    reader = reopened(graph, read_only=True)
    assert names(reader) == ["ann", "bea"]
    assert state_of(reader)
    reader.refresh()
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


# -- the tables of sections 11.2 and 11.3 ----------------------------------------------------------------------

KINDS: dict[str, tuple[WriterKind, int]] = {
    "strict": ("Mutation", 2),
    "confirmed": ("BranchMerge", 2),
    "loose": ("Optimize", 2),
    "loose v1 merge": ("BranchMerge", 1),
}


@pytest.mark.requirement("REC-04", "REC-08", "REC-09")
@pytest.mark.parametrize(
    ("mode", "head", "pinned", "expected", "confirmed", "verdict"),
    [
        ("strict", 4, 5, 5, None, "InvariantViolation"),
        ("strict", 5, 5, 5, None, "NoMovement"),
        ("strict", 6, 5, 5, None, "RolledPastExpected"),
        ("strict", 6, 5, 4, None, "UnexpectedAtP1"),
        ("strict", 7, 5, 5, None, "UnexpectedMultistep"),
        ("confirmed", 4, 5, 5, 6, "InvariantViolation"),
        ("confirmed", 5, 5, 5, None, "NoMovement"),
        ("confirmed", 6, 5, 5, None, "IncompletePhaseB"),
        ("confirmed", 8, 5, 5, 8, "RolledPastExpected"),
        ("confirmed", 8, 5, 5, 7, "UnexpectedMultistep"),
        ("confirmed", 6, 5, 4, 6, "UnexpectedMultistep"),
        ("loose", 4, 5, 5, None, "InvariantViolation"),
        ("loose", 5, 5, 5, None, "NoMovement"),
        ("loose", 6, 5, 5, None, "RolledPastExpected"),
        ("loose", 9, 5, 5, None, "RolledPastExpected"),
        ("loose", 6, 5, 4, None, "UnexpectedAtP1"),
        ("loose", 9, 5, 4, None, "UnexpectedMultistep"),
        ("loose v1 merge", 9, 5, 5, None, "RolledPastExpected"),
    ],
)
def test_a_table_is_classified_by_its_head_its_pin_and_the_intent(
    mode: str, head: int, pinned: int, expected: int, confirmed: int | None, verdict: str
) -> None:
    kind, schema_version = KINDS[mode]
    pin = Pin("node:A", "p", expected, expected + 1, confirmed_version=confirmed)
    sidecar = Sidecar(OPERATION, 1, None, None, kind, (pin,), schema_version=schema_version)
    assert classify(sidecar, pin, head, pinned) == verdict


@pytest.mark.requirement("REC-04")
def test_a_head_behind_its_pin_stops_the_open_and_not_the_live_handle(graph: Graph) -> None:
    sidecar = forge(graph)
    path = Path(graph.store.root.path) / table_path("node:Person") / "_versions"
    newest = min(path.glob("*.manifest"))
    moved = newest.rename(newest.with_suffix(".away"))
    (path / "latest_version_hint.json").unlink(missing_ok=True)
    with pytest.raises(Internal) as refused:
        reopened(graph)
    assert refused.value.code == "recovery_invariant_violation"
    assert graph.store.sidecars.operation_ids() == [sidecar.operation_id]
    moved.rename(newest)


@pytest.mark.requirement("REC-08", "REC-09")
@pytest.mark.parametrize(
    ("schema_version", "confirmed", "forward"), [(2, None, False), (2, 4, True), (2, 3, False), (1, None, True)]
)
def test_a_merge_goes_forward_only_when_confirmed_or_of_version_1(
    graph: Graph, schema_version: int, confirmed: int | None, forward: bool
) -> None:
    sidecar = forge(graph)
    pin = replace(sidecar.tables[0], confirmed_version=confirmed)
    source = graph.commits()[-1].graph_commit_id
    forge(graph, "BranchMerge", tables=(pin,), schema_version=schema_version, merge_source_commit_id=source)
    move_head(graph, times=2)
    again = reopened(graph)
    assert ("moved1" in names(again)) is forward
    assert again.commits()[-1].merged_parent_commit_id == (source if forward else None)
    assert_settled(again, "RolledForward" if forward else "RolledBack")


@pytest.mark.requirement("PUB-23", "DEL-08")
def test_an_outcome_that_is_open_has_a_kind_of_its_own(graph: Graph) -> None:
    with armed("mutation.post_finalize_pre_publisher", "error"), pytest.raises(OutcomePending) as cut_short:
        graph.mutate([person("cyd")])
    assert cut_short.value.details["operation_id"] in graph.store.sidecars.operation_ids()
    everyone = {"op": "delete", "type": "Person", "where": {"all": True}}
    with armed("mutation.delete_node_pre_primary_delete", "error"), pytest.raises(OmniError) as refused:
        graph.mutate([everyone])
    assert refused.value.kind != "outcome_pending"
    assert names(graph) == ["ann", "bea", "cyd"]
