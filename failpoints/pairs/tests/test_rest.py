"""What the audit must say of those who died before a pair began: once, and what became of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.judge import RequirementBroken
from failpoints.pairs.judge import Decision
from failpoints.pairs.orders import CRASHED, Call, Done, Serial
from failpoints.pairs.rest import _judge_rows
from failpoints.pairs.stage import Dead
from failpoints.pairs.tests.graphs import done, graph, unsure
from failpoints.steps import Step
from failpoints.writers import BRANCH, insert, mutate

STEP = mutate(insert("Person", name="dan"))
ON_BRANCH = {**STEP, "branch": BRANCH}
DELETE: Step = {"do": "branch_delete", "name": BRANCH}
MOVED, IDLE = Dead("01A", 0, True), Dead("01A", 0, False)


def judged(dead: Dead, kind: str | None, *happened: Call, step: Step = STEP, rows: int = 1) -> None:
    """Hold the rows of one that died against the calls that are in the graph."""
    row = {"operation_id": dead.operation, "recovery_kind": kind}
    engine = SimpleNamespace(supports=lambda operation: True)
    handle: Any = SimpleNamespace(engine=engine, recoveries=lambda: [] if kind is None else [row] * rows)
    serial = Serial(tuple(Done(call, "main", None) for call in happened), graph())
    _judge_rows(handle, [dead], [step], Decision(serial, None), "after both")


def words(dead: Dead, kind: str | None, *happened: Call, rows: int = 1) -> str:
    with pytest.raises(RequirementBroken) as caught:
        judged(dead, kind, *happened, rows=rows)
    return caught.value.because


def test_the_audit_says_of_a_dead_writer_what_the_graph_says() -> None:
    there = unsure(CRASHED, STEP)
    judged(MOVED, "RolledForward", there)
    judged(MOVED, "RolledBack")
    assert "died is in the graph, and the audit says that it is not" in words(MOVED, "RolledBack", there)
    assert "died is not in the graph, and the audit says that it is" in words(MOVED, "RolledForward")
    assert "2 audit rows" in words(MOVED, "RolledBack", rows=2)


def test_of_one_that_had_moved_nothing_there_need_be_no_row_and_none_says_that_it_went_forward() -> None:
    judged(IDLE, None)
    judged(IDLE, "RolledBack")
    assert "no audit row tells of 01A" in words(MOVED, None)
    assert "the audit says that it is" in words(IDLE, "RolledForward")


def test_of_a_writer_whose_branch_is_gone_any_kind_may_be_told() -> None:
    for kind in ("RolledForward", "OrphanedBranchDiscarded"):
        judged(MOVED, kind, done("second", DELETE), step=ON_BRANCH)
