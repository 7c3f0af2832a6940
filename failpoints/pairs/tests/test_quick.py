"""The quick selection counts as proof only what came to be, and ended well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.judge import RequirementBroken
from conformance.judge.broken import Case, running
from conformance.suites import test_faults_races as quick
from failpoints.pairs.schedule import Hold, ScheduleResult
from failpoints.workshop import Refused, SweepBroken

GOOD = ScheduleResult(
    "insert-insert-tables", "first", Hold(1, "PUT", "sidecar", 1), {}, "both done", "AB", "ok", "", (), None, True,
    False, 0.1,
)  # fmt: skip
MISSED = replace(GOOD, reached=False)
GAP = replace(GOOD, verdict="gap", gap="a race")


def proved(monkeypatch: pytest.MonkeyPatch, *results: ScheduleResult | Refused) -> set[str]:
    """What the quick test of a pair has proved whose schedules end so."""
    monkeypatch.setattr(quick, "lacking", lambda bench, needs: [])
    monkeypatch.setattr(quick, "run_unit", lambda bench, store, unit: iter(results))
    case = Case("quick", ("PUB-08", "LIN-06"))
    with running(case):
        try:
            quick.test_two_processes_that_meet_leave_a_serial_order_or_a_conflict(
                None, None, "insert-insert-tables"  # type: ignore[arg-type]
            )  # fmt: skip
        except pytest.skip.Exception:
            assert case.proved == set(), "a test that is skipped proves nothing"
    return case.proved


def test_one_schedule_that_came_to_be_is_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proved(monkeypatch, MISSED, GOOD, GAP) == {"PUB-08", "LIN-06"}


@pytest.mark.parametrize("results", [(), (MISSED, MISSED), (GAP,), (Refused("p", "nobody dies there", True),)])
def test_nothing_is_proved_by_what_did_not_come_to_be(
    monkeypatch: pytest.MonkeyPatch, results: tuple[ScheduleResult | Refused, ...]
) -> None:
    assert proved(monkeypatch, *results) == set()


def test_what_is_wrong_fails_and_what_could_not_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequirementBroken, match="LIN-06: a forked chain"):
        proved(monkeypatch, GOOD, replace(GOOD, verdict="wrong", ids=("LIN-06",), because="a forked chain"))
    with pytest.raises(SweepBroken, match="refused"):
        proved(monkeypatch, Refused("p", "the load was refused", False))
