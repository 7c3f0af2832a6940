"""Writers and recoveries that meet: branches that go away, sidecars that are taken for dead, publishes that lose.

A callable at a failpoint plays the other process: it does, at exactly that point, what the other one would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from failpoints.registry import armed, paused
from reference.errors import Conflict, OmniError, OutcomePending, StorageError
from reference.format.manifest import GraphCommit
from reference.format.sidecar import RECOVERY_ACTOR
from reference.graph import Graph
from reference.protocol import recovery
from reference.protocol.publish import Changes, Lineage, now_micros
from reference.protocol.recovery import recover
from reference.protocol.sidecars import RENEW_VARIABLE, Sidecars
from reference.protocol.tests.test_recovery import assert_settled, cut, forge, heads_equal_pins, move_head
from reference.tests.graphs import knows, names, new_graph, person, reopened, state_of


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    found = new_graph(tmp_path / "graph")
    found.mutate([person("ann", 30), person("bea"), knows("ann", "bea")], actor="founder")
    return found


@pytest.mark.requirement("SNP-08", "PUB-21", "BRA-18")
@pytest.mark.parametrize("strict", [False, True], ids=["insert", "update"])
def test_a_branch_made_anew_under_a_writer_is_not_written_with_what_was_staged_for_the_old_one(
    graph: Graph, strict: bool
) -> None:
    graph.branch_create("feat")
    graph.mutate([person("cyd", 1)], branch="feat")
    other = reopened(graph)

    def replace_branch() -> None:
        other.branch_delete("feat")
        other.branch_create("feat")
        other.mutate([person("dan", 1)], branch="feat")

    update = {"op": "update", "type": "Person", "where": {"all": True}, "set": {"age": 9}}
    with armed("recovery.sidecar_write", replace_branch, times=1):
        if strict:
            with pytest.raises(Conflict):
                graph.mutate([update], branch="feat")
        else:
            graph.mutate([person("eve")], branch="feat")
    again = reopened(graph)
    assert names(again, branch="feat") == (["ann", "bea", "dan"] if strict else ["ann", "bea", "dan", "eve"])
    again.mutate([person("fay")], branch="feat")
    assert heads_equal_pins(again)


@pytest.mark.requirement("BRA-13", "PUB-21", "REC-17")
def test_a_branch_is_not_deleted_under_a_live_writer(graph: Graph) -> None:
    graph.branch_create("feat")
    other = reopened(graph)
    writer = Thread(target=lambda: graph.mutate([person("cyd")], branch="feat"))
    deleter = Thread(target=lambda: other.branch_delete("feat"))
    with paused("mutation.post_finalize_pre_publisher") as point:
        writer.start()
        point.wait_arrived()
        deleter.start()
        deleter.join(timeout=0.2)
        assert deleter.is_alive()
        point.release()
        writer.join()
        deleter.join()
    again = reopened(graph)
    assert (again.branch_list(), again.recoveries()) == (["main"], [])
    again.branch_create("feat")
    again.mutate([person("dan")], branch="feat")
    assert names(again, branch="feat") == ["ann", "bea", "dan"]


@pytest.mark.requirement("PUB-21", "PUB-23")
def test_a_writer_that_is_cut_by_the_store_puts_back_a_sidecar_that_others_removed(graph: Graph) -> None:
    def removed() -> None:
        for operation_id in graph.store.sidecars.operation_ids():
            graph.store.objects.delete(f"__recovery/{operation_id}.json")
        raise StorageError("the store went away")

    with armed("mutation.post_finalize_pre_publisher", removed), pytest.raises(OutcomePending):
        graph.mutate([person("cyd")])
    assert len(graph.store.sidecars.operation_ids()) == 1
    assert_settled(reopened(graph), "RolledForward")


@pytest.mark.requirement("PUB-21", "PUB-23", "MRG-14")
def test_a_writer_whose_publish_is_refused_takes_its_moves_back_at_once(graph: Graph) -> None:
    other = reopened(graph)
    before = state_of(graph)

    def overtake() -> None:
        entry = other.snapshot().entries["node:Person"]
        moved = other.store.tables.restore(entry.path, None, entry.version, "01OTHER")
        rows = int(moved.count_rows())
        changes = Changes(updates=(replace(entry, version=int(moved.version), row_count=rows),))
        other.store.publisher.publish(None, changes, {}, Lineage("rival"))

    update = {"op": "update", "type": "Person", "where": {"all": True}, "set": {"age": 9}}
    with armed("mutation.post_finalize_pre_publisher", overtake, times=1), pytest.raises(Conflict):
        graph.mutate([update])
    assert state_of(graph) == before
    assert heads_equal_pins(graph)
    assert graph.store.sidecars.operation_ids() == []
    assert [row.recovery_kind for row in graph.recoveries()] == ["RolledBack"]


@pytest.mark.requirement("PUB-22")
def test_a_writer_that_was_rolled_forward_by_another_process_reports_success(graph: Graph) -> None:
    other = reopened(graph)
    with armed("mutation.post_finalize_pre_publisher", lambda: roll_forward(other), times=1):
        result = graph.mutate([person("cyd")], actor="cyd")
    assert names(graph) == ["ann", "bea", "cyd"]
    assert result.commit == graph.commits()[-1]
    assert result.commit is not None
    assert result.commit.actor_id == "omnigraph:recovery"
    assert_settled(graph, "RolledForward")


@pytest.mark.requirement("PUB-22")
def test_a_writer_is_told_of_the_recovery_that_has_its_rows_and_of_no_other(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another operation is recovered at the same time; and who rolls this one forward has not audited that yet."""
    other = reopened(graph)

    def unaudited(*_: object) -> None:
        raise StorageError("the store went away")

    def overtake() -> None:
        other.store.publisher.publish(None, Changes(), {}, Lineage(RECOVERY_ACTOR))
        with monkeypatch.context() as patch, pytest.raises(StorageError):
            patch.setattr(recovery, "append_audit", unaudited)
            roll_forward(other)

    with armed("mutation.post_finalize_pre_publisher", overtake, times=1):
        result = graph.mutate([person("cyd")], actor="cyd")
    assert result.commit is not None
    assert result.commit == next(commit for commit in graph.commits()[1:] if "cyd" in names_at(graph, commit))


def names_at(graph: Graph, commit: GraphCommit) -> list[str]:
    snapshot = graph.store.manifests.at_version(None, commit.manifest_version)
    return [row["name"] for row in graph.read("node:Person", snapshot)]


def roll_forward(graph: Graph) -> None:
    """What another process does that takes the writer for dead."""
    for operation_id in graph.store.sidecars.operation_ids():
        recover(graph.store, operation_id, full=False)


@pytest.mark.requirement("PUB-21", "PUB-23")
def test_a_writer_that_was_rolled_back_before_it_moved_takes_back_what_it_moved_since(graph: Graph) -> None:
    """Another process saw the sidecar, nothing moved, audited a roll back and removed it; then the writer went on."""
    other = reopened(graph)
    before = state_of(graph)

    def presumed_dead() -> None:
        for operation_id in other.store.sidecars.operation_ids():
            recover(other.store, operation_id, full=True)

    def overtake() -> None:
        other.store.publisher.publish(None, Changes(), {}, Lineage("rival"))
        raise Conflict("lost", code="read_set_changed")

    calls: Iterator[Callable[[], None]] = iter([presumed_dead, lambda: None, lambda: None])
    with (
        armed("mutation.post_finalize_pre_publisher", overtake, times=1),
        pytest.raises(Conflict),
    ):
        original = graph.store.sidecars.renew

        def renew(sidecar: object) -> object:
            next(calls)()
            return original(sidecar)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(graph.store.sidecars, "renew", renew)
            graph.mutate([person("cyd")])
    assert state_of(graph) == before
    assert heads_equal_pins(graph)
    assert graph.store.sidecars.operation_ids() == []
    assert [row.recovery_kind for row in graph.recoveries()] == ["RolledBack"]
    graph.mutate([person("dan")])


@pytest.mark.requirement("REC-14", "REC-18")
def test_a_fast_open_after_a_cut_recovery_of_another_process_settles_it(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(graph, "mutation.post_finalize_pre_publisher", person("cyd"))
    with armed("recovery.record_audit", "error"), pytest.raises(OmniError):
        reopened(graph)
    monkeypatch.setattr(recovery, "_commits_of_this_process", set())  # As if that had been another process.
    assert_settled(reopened(graph), "RolledForward")


@pytest.mark.requirement("REC-24")
def test_a_writer_that_renews_its_sidecar_stays_alive_for_others(graph: Graph) -> None:
    sidecar = forge(graph)
    others = reopened(graph, read_only=True).store.sidecars
    assert not others.presumed_alive(sidecar)
    renewed = graph.store.sidecars.put(sidecar)
    assert others.presumed_alive(renewed)
    graph.store.objects.delete(f"__recovery/{sidecar.operation_id}.json")


def test_how_old_a_sidecar_gets_before_it_is_put_anew_can_be_said(graph: Graph) -> None:
    sidecar = replace(forge(graph), started_at=now_micros() - 60_000_000)
    for setting, is_renewed in (({RENEW_VARIABLE: "3600"}, False), ({}, True), ({RENEW_VARIABLE: "no number"}, True)):
        renewed = Sidecars(graph.store.objects, graph.store.queues, setting).renew(sidecar)
        assert (renewed is not sidecar) == is_renewed, setting
    graph.store.objects.delete(f"__recovery/{sidecar.operation_id}.json")


@pytest.mark.requirement("PUB-23", "PUB-22")
def test_a_writer_that_is_rolled_forward_while_it_gives_up_reports_success(graph: Graph) -> None:
    other = reopened(graph)
    undo = recovery.undo

    def too_late(store: object, sidecar: object) -> None:
        roll_forward(other)
        undo(store, sidecar)  # type: ignore[arg-type]

    def lose() -> None:
        raise Conflict("lost", code="row_level_cas_contention")

    with (
        pytest.MonkeyPatch.context() as patch,
        armed("mutation.post_finalize_pre_publisher", lose, times=1),
    ):
        patch.setattr("reference.protocol.commit.undo", too_late)
        result = graph.mutate([person("cyd")])
    assert result.commit is not None
    assert names(graph) == ["ann", "bea", "cyd"]
    assert_settled(graph, "RolledForward")


@pytest.mark.requirement("REC-04")
def test_a_table_that_moved_by_two_under_an_audited_sidecar_is_rolled_back_too(graph: Graph) -> None:
    before = state_of(graph)
    sidecar = forge(graph)
    assert [row.recovery_kind for row in reopened(graph).recoveries()] == ["RolledBack"]
    graph.store.objects.write(f"__recovery/{sidecar.operation_id}.json", sidecar.encode())
    move_head(graph, times=2)
    again = reopened(graph)
    assert state_of(again) == before
    assert_settled(again, "RolledBack")


@pytest.mark.requirement("REC-06", "PUB-21")
@pytest.mark.parametrize("name", ["00000000000000000000000000", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"], ids=["older", "younger"])
def test_a_write_outlives_a_rival_that_died_a_moment_ago(graph: Graph, name: str) -> None:
    """Its sidecar is too young to be touched when the write begins, and is rolled forward when its lease is over."""
    sidecar = forge(graph, operation_id=name, started_at=now_micros())
    move_head(graph)
    graph.mutate([person("cyd")])
    assert names(graph) == ["ann", "bea", "cyd", "moved0"]
    assert [row.operation_id for row in graph.recoveries()] == [sidecar.operation_id]
    assert_settled(graph, "RolledForward")
