"""Publish: expected versions, one write, six attempts, and a commit row that tells the truth about its version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pytest

from failpoints.registry import armed, hits, reset
from reference.errors import (
    Conflict,
    ExpectedVersionMismatch,
    Internal,
    OmniError,
    RowLevelCasContention,
    StorageError,
)
from reference.format.manifest import TableEntry, rows_to_table
from reference.graph import Graph
from reference.protocol.publish import Changes, Checked, Lineage
from reference.tests.graphs import city, knows, names, new_graph, person, reopened


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path / "graph")


def version(graph: Graph) -> int:
    return graph.snapshot().version


def entry(graph: Graph, number: int, **changes: object) -> TableEntry:
    found = graph.snapshot().entries["node:Person"]
    return TableEntry(**{**vars(found), "version": number, **changes})


@pytest.mark.requirement("PUB-01", "LIN-02", "MUT-01")
def test_a_write_to_two_tables_is_one_manifest_version_with_one_commit(graph: Graph) -> None:
    before = version(graph)
    graph.mutate([person("ann"), person("bea"), knows("ann", "bea")])
    assert version(graph) == before + 1
    assert [commit.manifest_version for commit in graph.commits()][-1] == before + 1
    assert len(graph.commits()) == 2


@pytest.mark.requirement("PUB-02", "PUB-03", "PUB-15")
def test_drift_on_a_table_that_is_not_written_is_caught(graph: Graph) -> None:
    graph.mutate([city("Rome")])
    seen = version(graph)
    with pytest.raises(ExpectedVersionMismatch) as refused:
        graph.store.publisher.publish(None, Changes(), {"node:Person": 1, "node:City": 1}, Lineage())
    assert refused.value.details == {"table_key": "node:City", "expected": 1, "actual": 2}
    assert version(graph) == version(reopened(graph)) == seen


@pytest.mark.requirement("PUB-04")
def test_an_unknown_table_has_version_zero(graph: Graph) -> None:
    with pytest.raises(ExpectedVersionMismatch) as refused:
        graph.store.publisher.publish(None, Changes(), {"node:Nobody": 3}, Lineage())
    assert refused.value.details["actual"] == 0


@pytest.mark.requirement("PUB-13")
def test_nothing_to_publish_writes_nothing_and_lineage_alone_writes_one_version(graph: Graph) -> None:
    before = version(graph)
    assert graph.store.publisher.publish(None, Changes(), {}, None) is None
    assert graph.store.publisher.publish(None, Changes(), {"node:Person": 1}, None) is None
    assert version(graph) == before
    assert graph.store.publisher.publish(None, Changes(), {}, Lineage("ann")) is not None
    assert version(graph) == before + 1
    assert graph.commits()[-1].actor_id == "ann"


@pytest.mark.requirement("PUB-10", "PUB-11", "PUB-15")
@pytest.mark.parametrize(
    "changes",
    [
        Changes(updates=(TableEntry("node:Person", "nodes/40d76f1f51639ec0", 1, None, 0),)),
        Changes(updates=(TableEntry("node:Person", "nodes/40d76f1f51639ec0", 1, "b", 9),)),
        Changes(updates=(TableEntry("node:Person", "nodes/x", 5, None, 0), TableEntry("node:Person", "x", 6, None, 0))),
        Changes(updates=(TableEntry("node:Nobody", "nodes/x", 5, None, 0),)),
        Changes(registrations={"node:Person": "nodes/elsewhere"}),
        Changes(tombstones={"node:Nobody": 2}),
    ],
)
def test_a_publish_that_contradicts_the_catalog_is_refused_whole(graph: Graph, changes: Changes) -> None:
    before = version(graph)
    with pytest.raises(StorageError) as refused:
        graph.store.publisher.publish(None, changes, {}, Lineage())
    assert refused.value.code == "publish_refused"
    assert version(reopened(graph)) == before


@pytest.mark.requirement("PUB-10", "PUB-14", "MAN-08")
def test_a_version_may_be_handed_to_another_owner_in_place(graph: Graph) -> None:
    graph.store.publisher.publish(None, Changes(updates=(entry(graph, 1, branch="b"),)), {}, Lineage())
    assert graph.snapshot().entries["node:Person"].branch == "b"
    assert graph.snapshot().entries == reopened(graph).snapshot().entries


@pytest.mark.requirement("PUB-11")
def test_a_second_tombstone_at_the_same_version_is_refused(graph: Graph) -> None:
    graph.store.publisher.publish(None, Changes(tombstones={"node:Person": 2}), {}, Lineage())
    with pytest.raises(StorageError):
        graph.store.publisher.publish(None, Changes(tombstones={"node:Person": 2}), {}, Lineage())


@pytest.mark.requirement("PUB-12")
def test_a_registration_counts_for_the_updates_beside_it(graph: Graph) -> None:
    new = TableEntry("node:Robot", "nodes/robot", 1, None, 0)
    changes = Changes(registrations={"node:Robot": "nodes/robot"}, updates=(new,))
    graph.store.publisher.publish(None, changes, {"node:Robot": 0}, Lineage())
    assert reopened(graph, read_only=True).snapshot().entries["node:Robot"] == new


@pytest.mark.requirement("PUB-06", "PUB-09")
def test_contention_is_tried_six_times_and_then_reported_as_it_is(graph: Graph) -> None:
    reset()
    with (
        armed("publish.load_state_retryable_contention", "error"),
        pytest.raises(RowLevelCasContention) as refused,
    ):
        graph.store.publisher.publish(None, Changes(), {}, Lineage())
    reset()
    assert refused.value.kind == "conflict"


@pytest.mark.requirement("PUB-06", "PUB-09")
def test_contention_that_ends_in_time_costs_nothing_but_attempts(graph: Graph) -> None:
    reset()
    lineage = Lineage("ann")
    with armed("publish.load_state_retryable_contention", "error", times=5):
        commit = graph.store.publisher.publish(None, Changes(), {}, lineage)
        assert hits("publish.load_state_retryable_contention") == 6
    assert commit is not None
    assert commit.graph_commit_id == lineage.commit_id


@pytest.mark.requirement("PUB-08", "LIN-06", "PUB-07")
def test_a_handle_that_is_behind_publishes_on_top_of_what_others_published(graph: Graph) -> None:
    other = reopened(graph)
    held = other.store.manifests.fresh(None)
    stale = Checked(held, held.version)
    graph.mutate([person("ann")])
    commit = other.store.publisher.publish(None, Changes(), {}, Lineage("bea"), checked=stale)
    assert commit is not None
    assert commit.parent_commit_id == graph.commits()[-2].graph_commit_id
    assert [found.manifest_version for found in graph.commits()] == [1, 4, 5]


@pytest.mark.requirement("PUB-07")
def test_of_two_publishes_that_expect_the_same_version_one_succeeds(graph: Graph) -> None:
    other = reopened(graph)
    held = other.store.manifests.fresh(None)
    stale = Checked(held, held.version)
    graph.mutate([person("ann")])
    with pytest.raises(ExpectedVersionMismatch):
        other.store.publisher.publish(
            None, Changes(updates=(entry(graph, 9),)), {"node:Person": 1}, Lineage(), checked=stale
        )


@pytest.mark.requirement("PUB-17")
def test_the_first_commit_on_a_branch_conflicts_with_a_compaction_instead_of_rebasing_over_it(graph: Graph) -> None:
    for number in range(4):
        graph.mutate([person(f"p{number}")])
    graph.branch_create("feat")
    other = reopened(graph)
    held = other.store.manifests.fresh("feat")
    stale = Checked(held, held.version)
    manifest = lance.dataset(f"{graph.store.root.uri}/__manifest/tree/feat")
    manifest.optimize.compact_files()
    commit = other.store.publisher.publish("feat", Changes(), {}, Lineage(), checked=stale)
    assert commit is not None
    rows = lance.dataset(f"{graph.store.root.uri}/__manifest/tree/feat").to_table(
        columns=["table_version", "_row_created_at_version"], filter=f"object_id = '{commit.graph_commit_id}'"
    )
    assert [tuple(row.values()) for row in rows.to_pylist()] == [(commit.manifest_version, commit.manifest_version)]


@pytest.mark.requirement("PUB-16", "MAN-06")
def test_the_substrate_refuses_a_key_that_another_writer_inserted_first(graph: Graph) -> None:
    first, second = (graph.store.tables.open_latest("__manifest", None) for _ in range(2))
    row = graph.store.manifests.fresh(None).state.heads["graph_head:main"]
    rows = rows_to_table([{**row, "object_id": "graph_head:x", "base_objects": None}])
    graph.store.tables.publish_rows(first, rows)
    with pytest.raises(RowLevelCasContention):
        graph.store.tables.publish_rows(second, rows)


@pytest.mark.requirement("LIN-12", "MUT-05", "PUB-15", "PUB-23")
def test_a_crash_before_the_publish_leaves_neither_rows_nor_commit_until_recovery(graph: Graph) -> None:
    with armed("graph_publish.before_commit_append", "error"), pytest.raises(OmniError) as cut:
        graph.mutate([person("ann")])
    assert cut.value.kind == "outcome_pending"
    reader = reopened(graph, read_only=True)
    assert (names(reader), len(reader.commits())) == ([], 1)


@pytest.mark.requirement("LIN-11")
def test_a_crash_after_the_publish_leaves_rows_and_commit_together(graph: Graph) -> None:
    with armed("graph_publish.after_manifest_commit", "error"), pytest.raises(OmniError) as cut:
        graph.mutate([person("ann")])
    assert cut.value.kind == "outcome_pending"
    reader = reopened(graph, read_only=True)
    assert names(reader) == ["ann"]
    assert reader.commits()[-1].manifest_version == reader.snapshot().version


@pytest.mark.requirement("PUB-19")
def test_a_table_ahead_of_its_pin_without_a_sidecar_is_not_written(graph: Graph) -> None:
    graph.mutate([person("ann")])
    table = lance.dataset(f"{graph.store.root.uri}/{graph.snapshot().entries['node:Person'].path}")
    table.delete("id = 'ann'")
    with pytest.raises(Conflict) as refused:
        graph.mutate([person("bea")])
    assert refused.value.code == "head_ahead_of_manifest"
    assert "repair" in (refused.value.hint or "")
    assert names(graph) == ["ann"]
    assert graph.store.sidecars.operation_ids() == []


@pytest.mark.requirement("PUB-19")
def test_a_table_behind_its_pin_is_an_internal_error(graph: Graph) -> None:
    graph.store.publisher.publish(None, Changes(updates=(entry(graph, 7),)), {}, Lineage())
    with pytest.raises(Internal) as refused:
        graph.mutate([person("bea")])
    assert refused.value.code == "head_behind_manifest"
    assert graph.store.sidecars.operation_ids() == []


@pytest.mark.requirement("OPT-07", "COST-02")
def test_the_writer_keeps_its_manifest_short_and_loses_nothing_by_it(graph: Graph) -> None:
    for number in range(25):
        graph.mutate([person(f"p{number:02}")])
    manifest = lance.dataset(f"{graph.store.root.uri}/__manifest")
    assert len(manifest.get_fragments()) <= 9
    fresh = reopened(graph)
    assert fresh.snapshot().entries == graph.snapshot().entries
    assert len(fresh.commits()) == 26
    assert names(fresh) == [f"p{number:02}" for number in range(25)]
    ids = manifest.to_table(columns=["object_id"]).column(0).to_pylist()
    assert len(ids) == len(set(ids))


@pytest.mark.requirement("STM-03", "STM-06", "STM-09")
def test_a_branch_of_another_generation_can_be_read_and_not_written(graph: Graph) -> None:
    graph.branch_create("feat")
    branch = lance.dataset(f"{graph.store.root.uri}/__manifest/tree/feat")
    branch.update_schema_metadata({"omnigraph:internal_schema_version": "5"})
    fresh = reopened(graph)
    assert names(fresh, branch="feat") == []
    with pytest.raises(OmniError) as refused:
        fresh.mutate([person("ann")], branch="feat")
    assert refused.value.code == "stamp_newer"
    assert names(fresh, branch="feat") == []


@pytest.mark.requirement("STM-07")
def test_a_branch_inherits_the_stamp(graph: Graph) -> None:
    graph.branch_create("feat")
    assert graph.snapshot("feat").stamp == graph.snapshot().stamp == 4


@pytest.mark.requirement("PUB-08", "LIN-06")
def test_threads_that_share_one_handle_make_one_chain(tmp_path: Path) -> None:
    graph = new_graph(tmp_path / "threads", "".join(f"node T{n} {{ name: String @key }}\n" for n in range(4)))

    def write(number: int) -> None:
        for name in range(6):
            graph.mutate([{"op": "insert", "type": f"T{number}", "data": {"name": f"{name}"}}])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    commits = graph.commits()
    assert len(commits) == 1 + 4 * 6
    assert [commit.parent_commit_id for commit in commits[1:]] == [commit.graph_commit_id for commit in commits[:-1]]
    assert [len(names(graph, f"node:T{number}")) for number in range(4)] == [6] * 4
    assert graph.recoveries() == []
