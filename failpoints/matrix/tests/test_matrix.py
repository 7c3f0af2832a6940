"""The reference in the matrix: killed at every name that it reaches, made to fail or held at some, never wrong."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from failpoints.matrix import ERROR, GO_ON, KILL, PAUSE, RENDEZVOUS, SUBJECTS, Action, Crew, Spot, SpotResult, try_spots
from failpoints.matrix.tests.reached import REACHED
from failpoints.names import NAMES, RECOVERY_SIDECAR_LIST

# An open lists the sidecars before the subject does anything: what dies there is the open, whoever comes after it.
LISTS = ("insert", "recovery-insert", "recovery-insert-half-way")

# One of each kind of writer at each kind of gap: before its sidecar, before and after its publish, and best effort.
FAILURES: dict[str, tuple[str, ...]] = {
    "init": ("init.after_coordinator_init",),
    "insert": ("recovery.sidecar_list", "recovery.sidecar_write", "mutation.post_finalize_pre_publisher"),
    "delete": ("mutation.delete_node_pre_primary_delete", "graph_publish.after_manifest_commit"),
    "load-new-branch": ("recovery.sidecar_write", "recovery.sidecar_delete"),
    "branch-delete": ("branch_delete.before_table_cleanup",),
    "merge": ("branch_merge.rewrite_after_merge_pre_delete", "recovery.sidecar_confirm"),
    "schema-add": ("schema_apply.before_staging_write", "schema_apply.after_manifest_commit"),
    "schema-drop": ("schema_apply.after_manifest_commit",),
    "optimize": ("optimize.inject_reindex_conflict", "optimize.post_phase_b_pre_manifest_commit"),
    "recovery-insert": ("publish.load_state_retryable_contention", "recovery.record_audit"),
    "recovery-schema-add-half-way": ("graph_publish.after_manifest_commit",),
    "orphan": ("recovery.orphan_discard_audit_append",),
    "fork-reclaim": ("fork.before_reclaim", "classify.fresh_read"),
    "cleanup-forks": ("cleanup.reconcile_fork",),
}
# Killed at the names of another subject, in the same code: `sweep` tries these too, a test run has no time for them.
ALIKE = {
    "load-merge": "load-append",
    "load-overwrite": "load-append",
    "update": "insert",
    "branch-write": "first-write",
    "merge-into-branch": "merge",
    "schema-rename": "schema-add",
}
MEETINGS = tuple(
    (subject, name)
    for subject in ("optimize", "recovery-insert", "fork-reuse")
    for name in REACHED[subject]
    if name in RENDEZVOUS
)


def killed_at(subject: str) -> list[str]:
    return [name for name in REACHED[subject] if name != RECOVERY_SIDECAR_LIST or subject in LISTS]


def tried(crew: Crew, subject: str, names: Iterable[str], action: Action) -> list[SpotResult]:
    return list(try_spots(crew, SUBJECTS[subject], [Spot(subject, name, action) for name in names]))


def wrong(results: Iterable[SpotResult]) -> list[str]:
    return [str(each) for each in results if each.wrong is not None]


def test_every_name_is_fired_somewhere_in_the_matrix() -> None:
    fired = {name for subject in SUBJECTS for name in killed_at(subject)}

    assert NAMES - fired == set(), "these names are fired by nobody"


def test_what_is_left_out_reaches_no_name_of_its_own() -> None:
    assert {subject: set(REACHED[subject]) - set(REACHED[alike]) for subject, alike in ALIKE.items()} == {
        subject: set() for subject in ALIKE
    }


@pytest.mark.parametrize("subject", [subject for subject in SUBJECTS if killed_at(subject) and subject not in ALIKE])
def test_whoever_is_killed_at_a_name_leaves_a_graph_that_recovers(crew: Crew, subject: str) -> None:
    results = tried(crew, subject, killed_at(subject), KILL)

    assert [each.spot.name for each in results if not each.reached] == [], "never came to these names"
    assert wrong(results) == []


@pytest.mark.parametrize("action", [ERROR, GO_ON])
@pytest.mark.parametrize("subject", FAILURES)
def test_whoever_fails_at_a_name_leaves_a_graph_that_is_sound(crew: Crew, subject: str, action: Action) -> None:
    assert wrong(tried(crew, subject, FAILURES[subject], action)) == []


@pytest.mark.parametrize(("subject", "name"), MEETINGS)
def test_whoever_stands_still_at_a_rendezvous_is_no_harm_to_others(crew: Crew, subject: str, name: str) -> None:
    (result,) = tried(crew, subject, [name], PAUSE)

    assert result.reached, f"{subject} never came to {name}"
    assert wrong([result]) == []
