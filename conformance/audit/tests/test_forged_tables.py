"""Tables that are not where, or not what, the manifests say: pins, HEADs, forks and the settings of datasets."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest

from conformance.audit.names import version_object_id
from conformance.audit.tests.forge import Forgery, copy_of, write_graph
from conformance.audit.tests.test_forged_manifest import PERSON, defect, pinned, wrong_codes

Damage = Callable[[Forgery], Any]


def move_head(forgery: Forgery, table_key: str = PERSON) -> None:
    """A commit that nobody publishes."""
    forgery.table(table_key).delete("false")


def pin_ahead(forgery: Forgery) -> None:
    """The manifest was published, and the table's commit is not there: it came first, or it was lost."""
    row, version = pinned(forgery), forgery.pin(PERSON) + 5
    forgery.set(row, object_id=version_object_id(PERSON, version), table_version=version)


def pin_removed(forgery: Forgery) -> None:
    """A cleanup that did not ask what is pinned."""
    move_head(forgery)
    forgery.table(PERSON).cleanup_old_versions(timedelta(0), delete_unverified=True)


def rewrite_table(forgery: Forgery, **options: Any) -> None:
    """Create the dataset anew with other settings, and go up to the pinned version."""
    pin, rows = forgery.pin(PERSON), forgery.table(PERSON).to_table()
    shutil.rmtree(forgery.table_dir(PERSON))
    handle = lance.write_dataset(rows, str(forgery.table_dir(PERSON)), **options)
    while handle.version < pin:
        handle.delete("false")


def restore(forgery: Forgery) -> None:
    """A rollback that was never published."""
    handle: Any = forgery.table(PERSON)
    handle.restore()


TABLES = [
    defect("row-count", lambda f: f.set(pinned(f), row_count=7)),
    defect("head-behind", pin_ahead, also=("manifest-path",)),
    defect("pin-missing", pin_removed, also=("drift-uncovered",)),
    defect("pin-missing", lambda f: shutil.rmtree(f.table_dir(PERSON)), name="table-gone"),
    defect("drift-uncovered", move_head),
    defect("drift-uncovered", restore, name="drift-by-restore"),
    defect("stable-row-ids", lambda f: rewrite_table(f, enable_stable_row_ids=False), name="table-row-ids"),
    defect(
        "file-version",
        lambda f: rewrite_table(f, enable_stable_row_ids=True, data_storage_version="2.1"),
        name="table-file-version",
    ),
    defect(
        "auto-cleanup",
        lambda f: f.amend(PERSON, lambda table: table.update_config({"lance.auto_cleanup.older_than": "14d"})),
        name="table-auto-cleanup",
    ),
    defect(
        "table-unreadable",
        lambda f: shutil.rmtree(f.table_dir(PERSON) / "data"),
        name="data-files-gone",
    ),
    defect(
        "table-unreadable",
        lambda f: [file.write_bytes(b"rot") for file in (f.table_dir(PERSON) / "_versions").glob("*.manifest")],
        name="version-files-corrupt",
    ),
]


@pytest.mark.parametrize(("damage", "codes"), TABLES)
def test_a_table_that_is_not_as_pinned_is_found(forgery: Forgery, damage: Damage, codes: set[str]) -> None:
    damage(forgery)
    assert wrong_codes(forgery) == codes


@pytest.mark.requirement("REC-01", "PUB-21")
def test_drift_that_a_sidecar_covers_is_a_warning(forgery: Forgery) -> None:
    forgery.sidecar()
    move_head(forgery)
    report = forgery.audit()
    assert report.ok
    assert [each.code for each in report.findings] == ["drift-covered", "sidecar-pending"]


@pytest.mark.requirement("BRA-07")
def test_a_fork_without_its_ref_is_found(branched: Forgery) -> None:
    (branched.table_dir(PERSON) / "_refs" / "branches" / "feature.json").unlink()
    found = {(each.code, each.where) for each in branched.audit().of("error")}
    assert found == {("fork-missing", f"feature/{PERSON}"), ("storage-missing", f"child/{PERSON}")}


@pytest.mark.requirement("BRA-18")
def test_a_branch_that_reads_storage_which_is_gone_is_found(branched: Forgery) -> None:
    """The branch was deleted although a child of it reads its tables."""
    graph = branched.graph()
    graph.mutate([{"op": "insert", "type": "Person", "data": {"handle": "eve"}}], branch="feature")
    branched.table(PERSON).branches.delete("feature")
    found = {(each.code, each.where) for each in branched.audit().of("error")}
    assert found == {("fork-missing", f"feature/{PERSON}"), ("storage-missing", f"child/{PERSON}")}


@pytest.mark.requirement("CLN-07")
def test_a_version_that_only_a_branch_reads_is_missed_when_it_is_cleaned_up(branched: Forgery) -> None:
    branched.graph().mutate([{"op": "insert", "type": "City", "data": {"country": "be", "zip": 1}}])
    assert wrong_codes(branched) == set()
    branched.table("node:City").cleanup_old_versions(timedelta(0), delete_unverified=True)
    found = {(each.code, each.where) for each in branched.audit().of("error")}
    assert found == {("pin-missing", "child/node:City"), ("pin-missing", "feature/node:City")}


@pytest.mark.requirement("BRA-15")
def test_a_fork_that_no_manifest_places_is_noted(branched: Forgery) -> None:
    branched.table("node:City").create_branch("ghost")
    branched.table("edge:Knows").create_branch("feature")
    found = {(each.code, each.severity, each.where) for each in branched.audit().findings}
    assert found == {
        ("fork-orphan", "note", "node:City/tree/ghost"),
        ("fork-orphan", "note", "edge:Knows/tree/feature"),
    }


@pytest.mark.requirement("BRA-12")
def test_storage_of_a_branch_that_is_gone_and_still_read_is_a_warning(branched: Forgery) -> None:
    refs = branched.path / "__manifest" / "_refs" / "branches"
    (refs / "feature.json").unlink()
    assert "fork-owner-gone" in wrong_codes(branched)


@pytest.mark.requirement("BRA-02")
def test_files_of_a_branch_without_a_ref_are_noted(branched: Forgery) -> None:
    tree = branched.path / "__manifest" / "tree"
    shutil.copytree(tree / "feature", tree / "left" / "over")
    shutil.copytree(tree / "feature", tree / "feature" / "sub")
    found = {(each.code, each.where) for each in branched.audit().findings}
    assert found == {
        ("branch-residue", "__manifest/tree/left/over"),
        ("branch-residue", "__manifest/tree/feature/sub"),
    }


@pytest.mark.requirement("STM-07")
def test_the_stamp_of_a_branch_is_checked(branched: Forgery) -> None:
    branched.manifest("feature").update_schema_metadata({"omnigraph:internal_schema_version": "5"})
    assert wrong_codes(branched) == {"branch-stamp"}


@pytest.mark.requirement("LAY-12")
def test_a_branch_that_cannot_be_read_is_found_and_the_rest_is_audited(branched: Forgery) -> None:
    shutil.rmtree(branched.path / "__manifest" / "tree" / "child")
    branched.set(pinned(branched), row_count=7)
    assert wrong_codes(branched) == {"branch-unreadable", "row-count"}


@pytest.mark.requirement("LAY-04")
def test_branches_of_a_copied_graph_are_noted_and_not_read(branched: Forgery, tmp_path: Path) -> None:
    copied = copy_of(branched, tmp_path / "copy")
    assert {(each.code, each.severity) for each in copied.audit().findings} == {("branch-moved", "note")}
    shutil.rmtree(branched.path)
    assert {each.code for each in copied.audit().findings} == {"branch-moved"}


@pytest.mark.requirement("LAY-04")
def test_a_table_whose_files_lie_elsewhere_is_noted_and_not_read(branched: Forgery, tmp_path: Path) -> None:
    """The fork of one table was brought here from a copy of the graph."""
    copied = copy_of(branched, tmp_path / "copy")
    fork = copied.table_dir("node:City")
    copied.table("node:City").create_branch("feature")
    target = branched.table_dir("node:City")
    for part in ("tree", "_refs"):
        shutil.copytree(fork / part, target / part)
    branched.manifest("feature").update(
        {"table_branch": "'feature'"},
        where=f"object_id = 'node:City${branched.pin('node:City'):020d}'",
    )
    found = {(each.code, each.where) for each in branched.audit().findings}
    assert found == {("table-moved", "feature/node:City"), ("manifest-path", found_path(branched))}


def found_path(forgery: Forgery) -> str:
    return f"feature/{version_object_id('node:City', forgery.pin('node:City'))}"


@pytest.mark.requirement("LAY-02", "LAY-08", "LAY-15")
def test_what_does_not_belong_into_a_graph_is_said(tmp_path: Path) -> None:
    forgery = write_graph(tmp_path / "graph")
    for name in ("_graph_commits.lance", "stray", "nodes/0123456789abcdef", "edges/Knows"):
        (forgery.path / name).mkdir()
    for name in ("notes.txt", "_schema.pg#12", "nodes/readme", "__recovery/foo.txt"):
        (forgery.path / name).parent.mkdir(exist_ok=True)
        (forgery.path / name).write_text("x")
    found = {(each.severity, each.code, each.where) for each in forgery.audit().findings}
    assert found == {
        ("error", "legacy-table", "_graph_commits.lance"),
        ("note", "unreferenced-table", "nodes/0123456789abcdef"),
        *(
            ("note", "unknown-file", where)
            for where in ("stray", "edges/Knows", "notes.txt", "_schema.pg#12", "nodes/readme", "__recovery/foo.txt")
        ),
    }
