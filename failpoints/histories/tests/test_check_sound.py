"""Histories in which nothing is wrong, however they look: the checker must not object to any of them."""

from __future__ import annotations

import pytest

from conformance.audit.names import RECOVERY_ACTOR
from failpoints.histories.check import Sound, check
from failpoints.histories.record import ALONE, MAIN, History
from failpoints.histories.tests.made import (
    BAD_REQUEST,
    CARDINALITY,
    CONFLICT,
    Made,
    both,
    delete,
    insert,
    knows,
    log,
    merge,
    owns,
    update,
)


def assert_sound(made: Made) -> Sound:
    history = made.history()
    found = check(history, made.look)
    assert isinstance(found, Sound), str(found)
    again = check(History.from_json(history.as_json()), made.look)
    assert again == found, "a history is not the same after it was written down"
    return found


def test_commits_of_several_processes_in_one_chain_are_sound() -> None:
    made = Made()
    made.ok("p00-000", insert("bob", 1))
    made.ok("p01-000", update("bob", 2), process=1)
    made.ok("p00-001", both("cyd"))
    made.ok("p01-001", knows("k1", "bob", "cyd"), process=1)
    made.ok("p00-002", delete("bob"))
    made.record("p01-002", update("cyd", 3), "refused", CONFLICT, process=1)
    found = assert_sound(made)
    assert (found.counts["acknowledged"], found.counts["refused"], found.counts["commits"]) == (5, 1, 7)


def test_ids_that_the_engine_makes_are_its_own_business() -> None:
    made = Made()
    made.ok("p00-000", log("one"))
    made.ok("p01-000", log("two"))
    assert_sound(made)


def test_branches_and_merges_in_both_directions_are_sound() -> None:
    made = Made()
    made.branch("side")
    made.ok("p00-000", insert("bob", branch="side"))
    made.ok("p01-000", insert("cyd"))
    made.ok("p02-000", merge("side"))
    made.ok("p01-001", insert("dan", branch="side"))
    made.ok("p00-001", merge(MAIN, "side"))
    assert_sound(made)


def test_two_merges_that_cross_are_sound() -> None:
    """Each takes the head that the other branch had before: no order of whole branches has both."""
    made = Made()
    made.branch("side")
    made.branch("old-main")
    made.ok("p00-000", insert("bob", branch="side"))
    made.ok("p01-000", insert("cyd"))
    made.branch("side-then", "side")
    made.ok("p02-000", merge(MAIN, "side"))
    crossed = made.ok("p03-000", merge("side-then"))
    assert crossed["merged_parent_commit_id"] == "C002"
    crossing = next(done for done in made.calls if done.actor == "p03-000")
    crossing.step["source"] = "side"
    assert_sound(made)


def test_a_lost_answer_may_have_happened_or_not() -> None:
    made = Made()
    made.lost("p00-000", insert("bob"), happened=True)
    made.lost("p01-000", insert("cyd"), happened=False)
    assert assert_sound(made).counts["unknown"] == 2


def test_a_dead_call_that_recovery_rolled_forward_is_found_by_its_rows() -> None:
    made = Made()
    made.lost("p00-000", insert("bob"), happened=False)
    made.lost("p01-000", insert("cyd"), happened=False)
    made.audited("RolledForward", "p01-000", made.rolled_forward(insert("cyd")))
    assert_sound(made)


def test_an_audit_row_that_names_a_later_commit_of_recovery_misleads_nobody() -> None:
    """Recovery died between its publish and its audit row; the next one recorded it, with a commit of its own."""
    made = Made()
    made.lost("p00-000", insert("bob"), happened=False)
    made.rolled_forward(insert("bob"))
    made.ok("p01-000", update("bob", 7))
    made.audited("RolledForward", "p00-000", made.maintained(RECOVERY_ACTOR))
    assert_sound(made)


def test_a_roll_back_changes_no_row() -> None:
    made = Made()
    made.lost("p00-000", both("bob"), happened=False)
    made.audited("RolledBack", "p00-000", made.maintained(RECOVERY_ACTOR))
    made.ok("p00-001", both("bob"))
    assert_sound(made)


def test_a_writer_may_be_answered_with_the_commit_that_recovery_made_for_it() -> None:
    made = Made()
    commit = made.rolled_forward(insert("bob"))
    made.audited("RolledForward", "p00-000", commit)
    made.record("p00-000", insert("bob"), "ok", {"affected_nodes": 1, "affected_edges": 0, "commit": commit})
    assert_sound(made)


def test_a_merge_that_recovery_finished_is_found() -> None:
    made = Made()
    made.branch("side")
    made.ok("p00-000", insert("bob", branch="side"))
    made.lost("p01-000", merge("side"), happened=False)
    made.audited("RolledForward", "p01-000", made.rolled_forward(merge("side")))
    assert_sound(made)


def test_optimize_makes_commits_without_an_actor() -> None:
    made = Made()
    made.maintained()
    made.record("p00-000", {"do": "optimize"}, "ok", {"committed": ["node:Person"]})
    assert_sound(made)


def test_optimize_that_met_a_conflict_may_have_published_the_tables_before_it() -> None:
    made = Made()
    made.maintained()
    made.record("p00-000", {"do": "optimize"}, "refused", CONFLICT)
    assert_sound(made)


def test_an_engine_without_branches_is_not_blamed_for_that() -> None:
    made = Made()
    side = {"do": "branch_create", "name": "side", "source": MAIN}
    made.record("first-001", side, "passed over", {}, process=ALONE)
    assert_sound(made)


def test_what_found_nothing_to_do_or_was_refused_had_reason_to() -> None:
    made = Made()
    made.record("p00-000", update("bob", 1), "ok", {"affected_nodes": 0, "affected_edges": 0, "commit": None})
    made.record("p01-000", knows("k1", "ann", "bob"), "refused", BAD_REQUEST)
    made.ok("p02-000", insert("bob"))
    made.ok("p01-001", knows("k1", "ann", "bob"))
    assert_sound(made)


@pytest.mark.parametrize("kind, code", [("outcome_pending", "outcome_pending"), ("storage", "not_seen")])
def test_whoever_is_told_why_nobody_knows_is_told_enough(kind: str, code: str) -> None:
    """A recovery decides, or the adapter cannot see what the engine has done."""
    made = Made()
    made.record("p00-000", insert("bob"), "unknown", {"kind": kind, "code": code, "message": "who knows"})
    assert_sound(made)


@pytest.mark.parametrize("rival", ["killed", "refused"])
def test_a_mutation_counts_edges_of_a_rival_that_are_never_published(rival: str) -> None:
    """A source may have three. Two are published, and a third is in the table until somebody takes it back."""
    made = Made()
    for number in range(2):
        made.ok(f"p00-{number:03}", insert(f"pet{number}", kind="Pet"))
        made.ok(f"p01-{number:03}", owns(f"o{number}", "ann", f"pet{number}"))
    if rival == "killed":
        made.lost("p02-000", owns("o2", "ann", "pet0"), happened=False)
    else:
        made.record("p02-000", owns("o2", "ann", "pet0"), "refused", CONFLICT)
    made.record("p03-000", owns("o3", "ann", "pet1"), "refused", CARDINALITY)
    assert_sound(made)
