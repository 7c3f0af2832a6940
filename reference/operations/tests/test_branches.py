"""Branches: names, what creating and deleting them touches, and the lazy forks of their tables [BRA]."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from failpoints import registry
from reference.errors import BadRequest, Conflict, NotFound, OmniError, StorageError
from reference.format.names import MANIFEST_DIR, SCHEMA_LOCK_BRANCH
from reference.graph import Graph
from reference.operations import changeset
from reference.operations.branches import ensure_fork
from reference.operations.tests.people import (
    add_person,
    add_place,
    ages,
    new_graph,
    places,
    remove_person,
    set_age,
)
from reference.storage.tables import Staged


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path)


def files(graph: Graph) -> set[str]:
    root = Path(graph.store.root.uri)
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def forks(graph: Graph, table_key: str) -> set[str]:
    return set(graph.store.tables.branches(graph.snapshot("main").entry(table_key).path))


def leave_fork_behind(graph: Graph, branch: str) -> None:
    """Delete a branch and be cut before its forks are removed."""
    with registry.armed("branch_delete.before_table_cleanup", "error"):
        graph.branch_delete(branch)


# -- creating ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BRA-01", "LAY-12", "STM-07", "LIN-07")
def test_a_new_branch_is_one_ref_and_touches_no_table(graph: Graph) -> None:
    before = files(graph)
    graph.branch_create("feat/one")
    assert all(name.startswith(f"{MANIFEST_DIR}/") for name in files(graph) - before)
    assert f"{MANIFEST_DIR}/_refs/branches/feat%2Fone.json" in files(graph)
    main, branch = graph.snapshot("main"), graph.snapshot("feat/one")
    assert (branch.version, branch.stamp, branch.entries) == (main.version, main.stamp, main.entries)
    assert graph.commits("feat/one") == graph.commits("main"), "creating a branch left a commit"


@pytest.mark.requirement("BRA-02", "BRA-16")
@pytest.mark.parametrize(
    "name",
    ["", "  ", "a b", "a//b", "/a", "a/", "a..b", ".a", "a.lock", "a%2Fb", "a\\b", "a:b", "x" * 300]
    + [f"x/{part}" for part in ("data", "tree", "_versions", "_transactions", "_indices", "_deletions", "_refs")],
)
def test_a_name_that_is_none_is_refused_and_leaves_nothing(graph: Graph, name: str) -> None:
    before = files(graph)
    with pytest.raises(BadRequest) as caught:
        graph.branch_create(name)
    assert caught.value.code == "invalid_branch_name"
    assert files(graph) == before


@pytest.mark.requirement("BRA-02", "BRA-04")
def test_a_name_that_is_taken_is_refused_and_leaves_nothing(graph: Graph) -> None:
    graph.branch_create("  Übung-1.a ")
    before = files(graph)
    for name in ("Übung-1.a", "main"):
        with pytest.raises(Conflict) as caught:
            graph.branch_create(name)
        assert caught.value.code == "branch_exists"
    assert files(graph) == before
    assert set(graph.branch_list()) == {"main", "Übung-1.a"}


@pytest.mark.requirement("BRA-03", "MUT-15")
@pytest.mark.parametrize("name", [SCHEMA_LOCK_BRANCH, f"/{SCHEMA_LOCK_BRANCH}"])
def test_the_lock_branch_is_nobodys_and_is_not_listed(graph: Graph, name: str) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: graph.branch_create(name),
        lambda: graph.branch_create("x", name),
        lambda: graph.branch_delete(name),
        lambda: add_person(graph, name, "Eve"),
        lambda: graph.load("", mode="merge", branch=name),
    ]
    for attempt in attempts:
        with pytest.raises(BadRequest) as caught:
            attempt()
        assert caught.value.code == "internal_branch"
    graph.branch_create("__run__7")
    assert set(graph.branch_list()) == {"main", "__run__7"}


@pytest.mark.requirement("BRA-05")
def test_a_branch_does_not_start_at_a_snapshot(graph: Graph) -> None:
    with pytest.raises(BadRequest):
        graph.branch_create("x", f"snapshot:{graph.commits()[0].graph_commit_id}")
    with pytest.raises(NotFound):
        graph.branch_create("x", "nowhere")
    assert graph.branch_list() == ["main"]


@pytest.mark.requirement("BRA-06", "MUT-16")
def test_a_schema_apply_keeps_branch_operations_out(graph: Graph) -> None:
    graph.branch_create("feature")
    graph.store.tables.fork(MANIFEST_DIR, None, graph.snapshot().version, SCHEMA_LOCK_BRANCH)
    attempts: list[Callable[[], object]] = [
        lambda: graph.branch_create("x"),
        lambda: graph.branch_delete("feature"),
        lambda: graph.merge("feature", "main"),
        lambda: add_person(graph, "main", "Eve"),
    ]
    for attempt in attempts:
        with pytest.raises(Conflict) as caught:
            attempt()
        assert caught.value.code == "schema_apply_in_progress"
    assert graph.branch_list() == ["feature", "main"]


@pytest.mark.requirement("BRA-06", "SCH-02")
def test_a_branch_that_appears_while_a_schema_apply_takes_its_lock_withdraws(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The apply looked for branches just before this one was there, so it goes on: the branch must not stay."""
    tables = graph.store.tables
    fork = tables.fork

    def lock_then_fork(path: str, source: str | None, version: int, branch: str) -> object:
        fork(path, None, version, SCHEMA_LOCK_BRANCH)
        return fork(path, source, version, branch)

    monkeypatch.setattr(tables, "fork", lock_then_fork)
    with pytest.raises(Conflict) as caught:
        graph.branch_create("feature")
    assert caught.value.code == "schema_apply_in_progress"
    assert graph.branch_list() == ["main"]


@pytest.mark.requirement("BRA-02", "BRA-14")
def test_files_that_a_cut_deletion_left_do_not_block_the_name(graph: Graph) -> None:
    graph.branch_create("feature")
    add_person(graph, "feature", "Eve")
    graph.store.objects.delete(f"{MANIFEST_DIR}/_refs/branches/feature.json")
    add_person(graph, "main", "Finn")
    graph.branch_create("feature")
    assert "Finn" in ages(graph, "feature") and "Eve" not in ages(graph, "feature")
    add_person(graph, "feature", "Eve", 3)
    assert ages(graph, "feature")["Eve"] == 3


@pytest.mark.requirement("BRA-02")
def test_whoever_was_taken_for_dead_while_it_made_a_branch_is_told(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process took the files for residue, just before the ref was put."""
    right = graph.store.tables.fork

    def fork(path: str, source: str | None, version: int, branch: str) -> None:
        right(path, source, version, branch)
        graph.store.objects.delete_prefix(f"{path}/tree/{branch}/_versions")

    monkeypatch.setattr(graph.store.tables, "fork", fork)
    with pytest.raises(Conflict) as refused:
        graph.branch_create("feat")
    assert refused.value.code == "branch_replaced"


@pytest.mark.requirement("BRA-01", "BRA-18")
def test_of_two_that_create_one_branch_the_second_destroys_nothing(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second looked before the first had made the branch; the first has written to it since."""
    other = Graph.open(graph.store.root.uri)
    tables = graph.store.tables
    fork = tables.fork

    def be_late(path: str, source: str | None, version: int, branch: str) -> object:
        monkeypatch.setattr(tables, "fork", fork)
        other.branch_create("feature")
        add_person(other, "feature", "Eve")
        return fork(path, source, version, branch)

    monkeypatch.setattr(tables, "fork", be_late)
    with pytest.raises(Conflict) as caught:
        graph.branch_create("feature")
    assert caught.value.code == "branch_exists"
    assert "Eve" in ages(graph, "feature")


# -- lazy forks --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BRA-07", "BRA-08", "MAN-10", "LAY-05", "DEL-06")
def test_only_what_a_branch_writes_becomes_its_own(graph: Graph) -> None:
    graph.branch_create("a/b")
    before = graph.snapshot("main")
    add_person(graph, "a/b", "Eve")
    owners = {key: entry.branch for key, entry in graph.snapshot("a/b").entries.items()}
    assert owners == {"edge:Knows": None, "node:Person": "a/b", "node:Place": None}
    assert graph.snapshot("main") == before
    remove_person(graph, "a/b", "Bob")
    assert graph.snapshot("a/b").entry("edge:Knows").branch == "a/b", "the cascade wrote to another branch"
    path = Path(graph.store.root.uri) / before.entry("node:Person").path / "tree" / "a" / "b"
    assert path.is_dir()
    assert "Eve" not in ages(graph) and "Bob" in ages(graph)


@pytest.mark.requirement("BRA-10", "BRA-14")
@pytest.mark.parametrize("later_writes", [0, 2])
def test_a_fork_that_nobody_owns_is_replaced_by_the_first_write(graph: Graph, later_writes: int) -> None:
    graph.branch_create("feature")
    add_person(graph, "feature", "Ghost")
    leave_fork_behind(graph, "feature")
    for age in range(later_writes):
        set_age(graph, "main", "Alice", age)
    graph.branch_create("feature")
    add_person(graph, "feature", "Eve")
    assert ages(graph, "feature").keys() - ages(graph).keys() == {"Eve"}


@pytest.mark.requirement("BRA-10", "BRA-14", "BRA-17")
def test_a_fork_that_nobody_owns_is_replaced_with_the_forks_that_came_from_it(graph: Graph) -> None:
    graph.branch_create("feature")
    add_person(graph, "feature", "Ghost")
    graph.branch_create("child", "feature")
    add_person(graph, "child", "Phantom")
    leave_fork_behind(graph, "child")
    leave_fork_behind(graph, "feature")
    assert forks(graph, "node:Person") == {"feature", "child"}
    graph.branch_create("feature")
    add_person(graph, "feature", "Eve")
    assert ages(graph, "feature").keys() - ages(graph).keys() == {"Eve"}


@pytest.mark.requirement("BRA-10")
def test_a_first_write_that_dies_between_fork_and_reclaim_can_be_tried_again(graph: Graph) -> None:
    graph.branch_create("feature")
    add_person(graph, "feature", "Ghost")
    leave_fork_behind(graph, "feature")
    graph.branch_create("feature")
    with registry.armed("fork.before_reclaim", "error"), pytest.raises(OmniError):
        add_person(graph, "feature", "Eve")
    add_person(graph, "feature", "Eve")
    assert "Eve" in ages(graph, "feature")


@pytest.mark.requirement("BRA-09")
def test_a_fork_that_another_writer_has_placed_is_a_version_mismatch(graph: Graph) -> None:
    graph.branch_create("feature")
    stale = graph.snapshot("feature").entry("node:Person")
    add_person(graph, "feature", "Eve")
    with pytest.raises(Conflict) as caught:
        ensure_fork(graph.store, "feature", stale)
    assert caught.value.code == "expected_version_mismatch"
    assert "Eve" in ages(graph, "feature")


@pytest.mark.requirement("BRA-11")
def test_without_the_manifests_word_no_fork_is_removed(graph: Graph) -> None:
    graph.branch_create("feature")
    add_person(graph, "feature", "Ghost")
    leave_fork_behind(graph, "feature")
    graph.branch_create("feature")
    with registry.armed("classify.fresh_read", "error"), pytest.raises(Conflict) as caught:
        ensure_fork(graph.store, "feature", graph.snapshot("feature").entry("node:Person"))
    assert caught.value.code == "authority_unavailable"
    assert forks(graph, "node:Person") == {"feature"}


@pytest.mark.requirement("BRA-17", "BRA-18")
def test_a_branch_of_a_branch_goes_on_whatever_its_parent_does(graph: Graph) -> None:
    graph.branch_create("feature")
    add_person(graph, "feature", "Eve", 1)
    graph.branch_create("feature/sub", "feature")
    set_age(graph, "feature", "Eve", 2)
    assert ages(graph, "feature/sub")["Eve"] == 1
    set_age(graph, "feature/sub", "Eve", 3)
    add_place(graph, "feature/sub", "Oslo", "p")
    remove_person(graph, "feature", "Eve")
    assert (ages(graph, "feature/sub")["Eve"], places(graph, "feature/sub")) == (3, {"Oslo"})
    reopened = Graph.open(graph.store.root.uri)
    assert ages(reopened, "feature/sub")["Eve"] == 3 and "Eve" not in ages(reopened, "feature")


# -- deleting ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BRA-12")
def test_what_cannot_be_deleted_is_refused(graph: Graph) -> None:
    graph.branch_create("feature")
    graph.branch_create("child", "feature")
    with pytest.raises(NotFound):
        graph.branch_delete("nowhere")
    with pytest.raises(BadRequest):
        graph.branch_delete("main")
    with pytest.raises(Conflict) as caught:
        graph.branch_delete("feature")
    assert (caught.value.code, caught.value.details["dependent"]) == ("branch_in_use", "child")
    with pytest.raises(Conflict) as caught:
        Graph.open(graph.store.root.uri, branch="child").branch_delete("child")
    assert caught.value.code == "branch_is_current"
    assert graph.branch_list() == ["child", "feature", "main"]


@pytest.mark.requirement("BRA-12", "BRA-13", "BRA-18")
def test_a_deleted_branch_takes_its_forks_with_it_and_nothing_else(graph: Graph) -> None:
    graph.branch_create("feature")
    graph.branch_create("feature/sub")  # below it by name, not by descent
    for branch in ("feature", "feature/sub"):
        add_person(graph, branch, "Eve")
    commits = graph.commits()
    graph.branch_delete("feature")
    assert graph.branch_list() == ["feature/sub", "main"]
    assert forks(graph, "node:Person") == {"feature/sub"}
    assert "Eve" in ages(Graph.open(graph.store.root.uri), "feature/sub"), "files of another branch were removed"
    assert graph.commits() == commits, "deleting a branch left a commit"
    graph.branch_create("feature")
    assert "Eve" not in ages(graph, "feature")
    add_person(graph, "feature", "Finn")
    assert ages(graph, "feature/sub").keys() - ages(graph).keys() == {"Eve"}


@pytest.mark.requirement("BRA-13")
def test_forks_that_cannot_be_removed_do_not_fail_the_deletion(graph: Graph) -> None:
    graph.branch_create("feature")
    add_person(graph, "feature", "Eve")
    leave_fork_behind(graph, "feature")
    assert graph.branch_list() == ["main"]
    assert forks(graph, "node:Person") == {"feature"}


@pytest.mark.requirement("BRA-18", "SNP-08")
def test_a_handle_of_a_deleted_branch_does_not_serve_its_rows_under_the_new_one(graph: Graph) -> None:
    graph.branch_create("feature")
    add_person(graph, "feature", "Eve")
    reader = Graph.open(graph.store.root.uri, branch="feature", read_only=True)
    assert "Eve" in ages(reader, "feature")
    graph.branch_delete("feature")
    graph.branch_create("feature")
    add_person(graph, "feature", "Finn")
    assert ages(reader, "feature").keys() - ages(graph).keys() == {"Finn"}


@pytest.mark.requirement("PUB-21", "SNP-08")
@pytest.mark.parametrize("error", [NotFound("no such file", code="gone"), StorageError("half a file", code="broken")])
def test_a_write_whose_branch_is_made_anew_while_it_is_staged_is_a_conflict(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, error: OmniError
) -> None:
    """The new branch has the same versions of the same tables, and other files."""
    graph.branch_create("feature")
    set_age(graph, "feature", "Bob", 1)
    other = Graph.open(graph.store.root.uri)

    def stage(*_: object) -> Staged:
        monkeypatch.undo()
        other.branch_delete("feature")
        other.branch_create("feature")
        set_age(other, "feature", "Bob", 2)
        raise error

    monkeypatch.setattr(changeset, "stage_change", stage)
    with pytest.raises(Conflict):
        set_age(graph, "feature", "Bob", 7)

    assert ages(other, "feature")["Bob"] == 2
