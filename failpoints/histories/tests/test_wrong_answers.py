"""Answers and recoveries that are wrong: who is told what, and what recovery says that it did."""

from __future__ import annotations

import pytest

from conformance.audit.names import RECOVERY_ACTOR
from failpoints.histories.record import ALONE
from failpoints.histories.tests.made import (
    CONFLICT,
    Made,
    both,
    insert,
    log,
)
from failpoints.histories.tests.wrong import actors, contradiction


@pytest.mark.parametrize("somebody_was_killed", [False, True])
def test_who_was_not_killed_is_told_what_became_of_it(somebody_was_killed: bool) -> None:
    """The death of one process is no excuse for another."""
    made = Made()
    if somebody_was_killed:
        made.lost("p01-000", insert("cyd"), happened=False)
    made.record("p00-000", insert("bob"), "unknown", {"kind": "internal", "code": "panic", "message": "?"})
    contradiction(made.history(), made.look, "PUB-21")


def test_words_of_an_engine_that_are_cut_show_no_part_of_a_password() -> None:
    made = Made()
    message = f"cannot reach https://somebody:{'hush' * 100}@store.example.org"
    made.record("p00-000", insert("bob"), "unknown", {"kind": "internal", "code": "panic", "message": message})
    found = contradiction(made.history(), made.look, "PUB-21")
    assert [line.answered for line in found.slice] == ["internal/panic: cannot reach https://…@store.example.org"]


def test_when_all_is_over_a_write_has_to_work() -> None:
    made = Made()
    made.record("last-000", insert("bob"), "refused", CONFLICT, process=ALONE)
    contradiction(made.history(), made.look, "PUB-21")


def test_a_recovery_that_publishes_half_of_a_call_is_noticed() -> None:
    made = Made()
    made.lost("p00-000", both("bob"), happened=False)
    made.audited("RolledForward", "p00-000", made.rolled_forward(insert("bob")))
    assert actors(contradiction(made.history(), made.look, "REC-04", "REC-05")) == ["p00-000"]


def test_a_refused_call_that_recovery_publishes_is_noticed() -> None:
    made = Made()
    made.record("p00-000", insert("bob"), "refused", CONFLICT)
    made.audited("RolledForward", "p00-000", made.rolled_forward(insert("bob")))
    assert actors(contradiction(made.history(), made.look, "PUB-23")) == ["p00-000"]


def test_a_call_that_recovery_publishes_twice_is_noticed() -> None:
    made = Made()
    made.lost("p00-000", log("one"), happened=True)
    made.audited("RolledForward", "p00-000", made.rolled_forward(log("one")))
    contradiction(made.history(), made.look, "REC-04", "REC-05")


def test_an_answer_with_a_recovery_commit_of_somebody_else_is_noticed() -> None:
    made = Made()
    commit = made.maintained(RECOVERY_ACTOR)
    made.record("p00-000", insert("bob"), "ok", {"affected_nodes": 1, "affected_edges": 0, "commit": commit})
    contradiction(made.history(), made.look, "PUB-22")


def test_a_recovery_that_says_forward_and_publishes_nothing_is_noticed() -> None:
    made = Made()
    made.lost("p00-000", insert("bob"), happened=False)
    made.audited("RolledForward", "p00-000", made.maintained(RECOVERY_ACTOR))
    contradiction(made.history(), made.look, "REC-05")


def test_two_audit_rows_of_one_operation_are_noticed() -> None:
    """Two processes that recover at once may both be at it, and one of them tells."""
    made = Made()
    made.lost("p00-000", insert("bob"), happened=False)
    forward = made.rolled_forward(insert("bob"))
    for _ in range(2):
        made.audited("RolledForward", "p00-000", forward, "operation")
    found = contradiction(made.history(), made.look, "REC-14")
    assert "2 audit rows tell of the operation operation" in found.because
    assert actors(found) == ["p00-000"]
