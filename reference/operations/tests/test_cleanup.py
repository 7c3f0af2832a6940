"""Cleanup removes what nobody can read: old versions within a policy, and forks that no manifest places."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lance
import pytest

from failpoints import registry
from reference.errors import BadRequest, NotFound, OmniError, OutcomePending
from reference.graph import Graph
from reference.operations.cleanup import CleanupStats
from reference.operations.tests.people import add_person, named, new_graph, set_age


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """People at six versions, and a branch that still reads the second of them."""
    graph = new_graph(tmp_path)
    graph.branch_create("reader")
    for age in range(4):
        set_age(graph, "main", "Alice", age)
    return graph


def person_path(graph: Graph) -> str:
    return graph.snapshot().entry("node:Person").path


def versions(graph: Graph, branch: str | None = None) -> list[int]:
    path = person_path(graph) + (f"/tree/{branch}" if branch else "")
    return [each["version"] for each in lance.dataset(graph.store.root.join(path)).versions()]


def person_stats(stats: list[CleanupStats]) -> CleanupStats:
    return next(each for each in stats if each.table_key == "node:Person")


def assert_every_branch_works(root: str) -> None:
    graph = Graph.open(root)
    for branch in graph.branch_list():
        assert list(graph.export(branch))
        add_person(graph, branch, f"new-on-{branch}")
        graph.mutate([{"op": "delete", "type": "Person", "where": named("Bob")}], branch=branch)
        assert "Bob" not in [row["name"] for row in graph.read("node:Person", graph.snapshot(branch))]


@pytest.mark.requirement("CLN-01")
@pytest.mark.parametrize(
    "policy", [{}, {"keep_versions": 0}, {"older_than": timedelta(seconds=-1)}], ids=["none", "keep none", "negative"]
)
def test_a_policy_is_needed(graph: Graph, policy: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        graph.cleanup(**policy, confirm=True)  # type: ignore[arg-type]


@pytest.mark.requirement("CLN-04")
def test_a_preview_counts_and_removes_nothing(graph: Graph) -> None:
    before = versions(graph)

    preview = person_stats(graph.cleanup(keep_versions=1))

    assert preview.old_versions_removed == 4 and preview.bytes_removed > 0
    assert versions(graph) == before
    assert person_stats(graph.cleanup(keep_versions=1, confirm=True)) == preview


@pytest.mark.requirement("CLN-02", "CLN-03", "CLN-06")
@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ({"keep_versions": 2}, [2, 5, 6]),
        ({"keep_versions": 99}, [1, 2, 3, 4, 5, 6]),
        ({"older_than": timedelta(0)}, [2, 6]),
        ({"older_than": timedelta(hours=1)}, [1, 2, 3, 4, 5, 6]),
        ({"keep_versions": 1, "older_than": timedelta(hours=1)}, [1, 2, 3, 4, 5, 6]),
        ({"keep_versions": 3, "older_than": timedelta(0)}, [2, 4, 5, 6]),
    ],
)
def test_the_policy_decides_which_versions_are_old(graph: Graph, policy: dict[str, object], left: list[int]) -> None:
    manifest = lance.dataset(graph.store.root.join("__manifest"))
    rows, manifest_versions = list(graph.export()), [each["version"] for each in manifest.versions()]
    first = graph.snapshot(version=4)

    stats = graph.cleanup(**policy, confirm=True)  # type: ignore[arg-type]

    assert versions(graph) == left
    assert person_stats(stats).old_versions_removed == 6 - len(left)
    assert [each["version"] for each in manifest.versions()] == manifest_versions
    assert list(graph.export()) == rows
    fresh = Graph.open(graph.store.root.uri)
    assert fresh.read("node:Person", first)  # It reads version 2, as the branch does.
    if 3 not in left:
        with pytest.raises(NotFound):
            fresh.read("node:Person", graph.snapshot(version=5))
    assert_every_branch_works(graph.store.root.uri)


@pytest.mark.requirement("CLN-07", "BRA-18")
def test_what_any_branch_reads_is_kept_forked_or_not(graph: Graph) -> None:
    graph.branch_create("writer", "reader")
    add_person(graph, "writer", "Eve")
    graph.branch_create("writer-child", "writer")
    exports = {branch: list(graph.export(branch)) for branch in graph.branch_list()}

    graph.cleanup(older_than=timedelta(0), confirm=True)
    graph.cleanup(keep_versions=1, confirm=True)

    fresh = Graph.open(graph.store.root.uri)
    assert {branch: list(fresh.export(branch)) for branch in fresh.branch_list()} == exports
    assert versions(graph, "writer")
    assert_every_branch_works(graph.store.root.uri)


@pytest.mark.requirement("CLN-04")
def test_one_table_that_fails_does_not_stop_the_others(graph: Graph) -> None:
    with registry.armed("cleanup.table_gc", "error", times=1):
        stats = graph.cleanup(keep_versions=1, confirm=True)

    assert [each.error is not None for each in stats] == [True, False, False]
    assert person_stats(stats).old_versions_removed == 4


@pytest.mark.requirement("CLN-07")
def test_nothing_is_removed_if_a_branch_cannot_be_read(graph: Graph) -> None:
    before = versions(graph)

    with registry.armed("cleanup.resolve_branch_snapshot", "error"):
        stats = graph.cleanup(keep_versions=1, confirm=True)

    assert versions(graph) == before
    assert person_stats(stats).error is not None


@pytest.mark.requirement("REC-04", "CLN-06")
def test_what_recovery_may_need_is_kept(graph: Graph, tmp_path: Path) -> None:
    rows = list(graph.export())
    with (
        registry.armed("mutation.post_finalize_pre_publisher", "error"),
        pytest.raises(OutcomePending),
    ):
        set_age(graph, "main", "Alice", 77)

    graph.cleanup(keep_versions=1, confirm=True)

    assert versions(graph) == [2, 6, 7]
    recovered = Graph.open(str(tmp_path / "graph"))
    assert [row.recovery_kind for row in recovered.recovered] == ["RolledForward"]
    assert list(recovered.export()) != rows


@pytest.mark.requirement("CLN-06", "RPR-01")
def test_drift_stays_whole_for_repair_to_look_at(graph: Graph) -> None:
    for name in ("Bob", "Carol", "Dan"):
        lance.dataset(graph.store.root.join(person_path(graph))).delete(f"name = '{name}'")

    graph.cleanup(keep_versions=1, confirm=True)

    assert versions(graph) == [2, 6, 7, 8, 9]


# -- forks -------------------------------------------------------------------------------------------------------------


def fork(graph: Graph, branch: str, source: str | None = None) -> None:
    """A fork of the people's table that no manifest knows, as a write that died before its sidecar leaves it."""
    version = graph.store.tables.head_version(person_path(graph), source)
    graph.store.tables.fork(person_path(graph), source, version, branch)


def forks(graph: Graph) -> set[str]:
    return set(graph.store.tables.branches(person_path(graph)))


@pytest.mark.requirement("BRA-15", "CLN-05", "BRA-13")
def test_forks_that_no_manifest_places_are_dropped_and_the_others_stay(graph: Graph) -> None:
    graph.branch_create("owner")
    add_person(graph, "owner", "Eve")
    fork(graph, "gone")
    fork(graph, "gone/child", "gone")
    fork(graph, "reader")
    rows = list(graph.export("owner"))

    assert forks(graph) == {"owner", "gone", "gone/child", "reader"}
    graph.cleanup(keep_versions=99)
    assert forks(graph) == {"owner", "gone", "gone/child", "reader"}, "a preview dropped a fork"
    graph.cleanup(keep_versions=99, confirm=True)

    assert forks(graph) == {"owner"}
    assert list(graph.export("owner")) == rows
    graph.cleanup(keep_versions=99, confirm=True)
    assert forks(graph) == {"owner"}
    assert_every_branch_works(graph.store.root.uri)


@pytest.mark.requirement("BRA-15", "BRA-13")
def test_the_fork_that_a_branch_deletion_left_is_dropped(graph: Graph) -> None:
    graph.branch_create("owner")
    add_person(graph, "owner", "Eve")
    with registry.armed("branch_delete.before_table_cleanup", "error"):
        graph.branch_delete("owner")
    assert forks(graph) == {"owner"}

    graph.cleanup(keep_versions=99, confirm=True)

    assert forks(graph) == set()


@pytest.mark.requirement("BRA-15", "BRA-11")
@pytest.mark.parametrize(
    "failpoint", ["cleanup.reconcile_fork", "classify.fresh_read", "cleanup.resolve_branch_snapshot"]
)
def test_a_fork_of_which_nothing_is_known_for_certain_stays(graph: Graph, failpoint: str) -> None:
    fork(graph, "gone")

    with registry.armed(failpoint, "error"):
        stats = graph.cleanup(keep_versions=99, confirm=True)

    assert forks(graph) == {"gone"}
    assert person_stats(stats).error is not None
    assert stats[0].error is None or failpoint == "cleanup.resolve_branch_snapshot"


@pytest.mark.requirement("BRA-15", "BRA-18")
def test_a_fork_that_a_pending_write_covers_stays(graph: Graph, tmp_path: Path) -> None:
    with (
        registry.armed("mutation.post_finalize_pre_publisher", "error"),
        pytest.raises(OmniError),
    ):
        add_person(graph, "reader", "Eve")

    graph.cleanup(keep_versions=1, confirm=True)

    assert forks(graph) == {"reader"}
    recovered = Graph.open(str(tmp_path / "graph"))
    assert "Eve" in [row["name"] for row in recovered.read("node:Person", recovered.snapshot("reader"))]
