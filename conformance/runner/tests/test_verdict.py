"""From the outcome of each test to the outcome of each requirement, and to the exit code."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.runner.known import KnownFailure, excuse
from conformance.runner.records import Outcome, Phase, SuiteTest, TestRecord
from conformance.runner.verdict import CONFORMS, COULD_NOT_RUN, FAILS, NOTHING_TESTED, STALE, Verdict, judge


def record_of(
    outcome: Outcome,
    *,
    name: str = "test_lod_load.py::test_it[reference-local-core]",
    store: str = "local",
    ids: tuple[str, ...] = ("LOD-07",),
    proved: tuple[str, ...] = (),
    broke: tuple[str, ...] = (),
) -> TestRecord:
    return TestRecord(name, 0.1, [Phase(outcome, store, ids, proved, broke)])


PASSED = record_of("passed", proved=("LOD-07",))
FAILED = record_of("failed", broke=("LOD-07",))
PASSED_ELSE = record_of("passed", ids=("LOD-09",), proved=("LOD-09",))
FAULT = {"test": None, "store": None, "message": "it went away", "stderr": ""}


def outcome_of(verdict: Verdict, requirement: str) -> Any:
    (row,) = (row for row in verdict.requirements if row["id"] == requirement)
    return row["outcome"]


def test_an_engine_conforms_if_something_holds_and_nothing_fails() -> None:
    verdict = judge([PASSED], ["local"])

    assert (verdict.exit_code, verdict.name, outcome_of(verdict, "LOD-07")) == (CONFORMS, "conforms", "passed")
    assert outcome_of(verdict, "LOD-08") == "not_tested"


def test_one_failing_test_fails_its_requirement_whatever_the_others_say() -> None:
    verdict = judge([PASSED, FAILED], ["local"])

    assert (verdict.exit_code, outcome_of(verdict, "LOD-07")) == (FAILS, "failed")


def test_a_failure_on_one_store_is_a_failure() -> None:
    elsewhere = record_of("failed", store="moto", broke=("LOD-07",))

    verdict = judge([PASSED, elsewhere], ["local", "moto"])

    (row,) = (row for row in verdict.requirements if row["id"] == "LOD-07")
    assert verdict.exit_code == FAILS
    assert {store: cell["outcome"] for store, cell in row["stores"].items()} == {"local": "passed", "moto": "failed"}


@pytest.mark.parametrize("records", [[], [record_of("skipped")], [record_of("unsupported")]])
def test_a_run_that_showed_nothing_is_no_success(records: list[TestRecord]) -> None:
    assert judge(records, ["local"]).exit_code == NOTHING_TESTED


def test_a_test_that_passed_without_reaching_its_step_has_shown_nothing() -> None:
    verdict = judge([record_of("passed")], ["local"])

    assert (verdict.exit_code, outcome_of(verdict, "LOD-07")) == (NOTHING_TESTED, "not_tested")


def test_a_fault_comes_before_every_verdict() -> None:
    assert judge([PASSED, FAILED], ["local"], faults=[FAULT]).exit_code == COULD_NOT_RUN


def test_a_known_failure_that_fails_is_no_failure_of_the_run() -> None:
    known = record_of("known_failing", broke=("LOD-07",))

    verdict = judge([known, record_of("passed", proved=("LOD-08",), ids=("LOD-08",))], ["local"], [
        KnownFailure(1, "LOD-07", "why")
    ])  # fmt: skip

    assert (verdict.exit_code, outcome_of(verdict, "LOD-07")) == (CONFORMS, "known_failing")
    assert verdict.known[0]["state"] == "failed"


@pytest.mark.parametrize("names", ["LOD-07", "test_lod_load.py::test_it"])
def test_a_known_failure_that_passes_fails_the_run_by_name(names: str) -> None:
    verdict = judge([PASSED], ["local"], [KnownFailure(1, names, "why")])

    assert (verdict.exit_code, verdict.known[0]["state"]) == (STALE, "stale")
    assert names in verdict.because


def test_a_run_that_left_examples_out_calls_nothing_stale() -> None:
    verdict = judge([PASSED], ["local"], [KnownFailure(1, "LOD-07", "why")], whole=False)

    assert (verdict.exit_code, verdict.known[0]["state"]) == (CONFORMS, "not_run")


def test_a_store_that_was_asked_for_and_is_missing_is_no_success() -> None:
    verdict = judge([PASSED], ["local"], missing_stores=["moto"])

    assert verdict.exit_code == NOTHING_TESTED and "moto" in verdict.because


def test_a_selection_is_called_one() -> None:
    assert "in a selection of the tests" in judge([PASSED], ["local"], whole=False).because


def test_a_requirement_that_is_known_to_break_in_one_test_is_stale_if_that_one_shows_it() -> None:
    here, elsewhere = (
        KnownFailure(1, "LOD-07:test_lod_load.py::test_it", "why"),
        KnownFailure(1, "LOD-07:test_x.py::test_y", "why"),
    )

    assert judge([PASSED], ["local"], [here]).known[0]["state"] == "stale"
    assert judge([PASSED], ["local"], [elsewhere]).known[0]["state"] == "not_run"


@pytest.mark.parametrize(
    "record",
    [
        record_of("known_failing", ids=("LOD-07", "LOD-08"), broke=("LOD-08",)),
        record_of("passed", ids=("LOD-07", "LOD-08"), proved=("LOD-08",)),
    ],
    ids=["it broke something else before", "it did not get there"],
)
def test_a_requirement_that_nobody_has_seen_hold_is_not_stale(record: TestRecord) -> None:
    verdict = judge(
        [record, PASSED_ELSE], ["local"], [KnownFailure(1, "LOD-07", "why"), KnownFailure(2, "LOD-08", "why")]
    )

    assert verdict.known[0]["state"] == "not_run"


def test_a_known_failure_that_was_not_run_is_not_stale() -> None:
    verdict = judge([record_of("passed", ids=("LOD-08",), proved=("LOD-08",))], ["local"], [
        KnownFailure(1, "LOD-07", "why")
    ])  # fmt: skip

    assert (verdict.exit_code, verdict.known[0]["state"]) == (CONFORMS, "not_run")


def test_a_known_failure_of_one_store_is_stale_there_and_nowhere_else() -> None:
    """What holds on a directory, and is known to be broken on S3 only, is no news."""
    on_s3 = [KnownFailure(1, "LOD-07@s3", "why")]

    assert judge([PASSED], ["local"], on_s3).exit_code == CONFORMS
    assert judge([PASSED], ["local"], [KnownFailure(1, "LOD-07@local", "why")]).exit_code == STALE
    on_moto = TestRecord("test_lod_load.py::test_it", 0.1, [Phase("passed", "moto", ("LOD-07",), ("LOD-07",))])
    assert judge([PASSED, on_moto], ["local", "moto"], on_s3).exit_code == STALE
    broken = TestRecord(
        "test_lod_load.py::test_it", 0.1, [Phase("known_failing", "moto", ("LOD-07",), (), ("LOD-07",))]
    )
    assert judge([PASSED, broken], ["local", "moto"], on_s3).known[0]["state"] == "failed"


@pytest.mark.parametrize(
    ("names", "left_out", "is_stale"),
    [
        ("LOD-07", SuiteTest("test_x.py::test_other", "local", ("LOD-08", "LOD-07")), False),
        ("LOD-07", SuiteTest("test_x.py::test_other", "local", ("LOD-08",)), True),
        ("LOD-07", SuiteTest("test_x.py::test_other", "moto", ("LOD-07",)), False),
        ("LOD-07@local", SuiteTest("test_x.py::test_other", "moto", ("LOD-07",)), True),
        ("test_lod_load.py::*", SuiteTest("test_lod_load.py::test_other[x]", "local", ("LOD-08",)), False),
        ("test_lod_load.py::test_it", SuiteTest("test_lod_load.py::test_other[x]", "local", ("LOD-07",)), True),
        ("test_lod_load.py::test_it", SuiteTest("test_lod_load.py::test_it[another]", "local", ("LOD-07",)), False),
    ],
)
def test_a_line_is_stale_only_if_no_test_of_it_was_left_out(names: str, left_out: SuiteTest, is_stale: bool) -> None:
    there = [SuiteTest(PASSED.name, "local", ("LOD-07",)), left_out]

    verdict = judge([PASSED], ["local", "moto"], [KnownFailure(1, names, "why")], there=there)

    state = (STALE, "stale") if is_stale else (CONFORMS, "not_run")
    assert (verdict.exit_code, verdict.known[0]["state"]) == state


@pytest.mark.parametrize(("outcome", "state"), [("skipped", "stale"), ("unsupported", "stale"), ("fault", "not_run")])
def test_a_test_that_had_its_turn_was_not_left_out(outcome: Outcome, state: str) -> None:
    other = record_of(outcome, name="test_x.py::test_other")
    there = [SuiteTest(each.name, "local", ("LOD-07",)) for each in (PASSED, other)]

    verdict = judge([PASSED, other], ["local"], [KnownFailure(1, "LOD-07", "why")], there=there)

    assert verdict.known[0]["state"] == state


@pytest.mark.parametrize("names", ["~LOD-07", "~LOD-07@local", "~test_lod_load.py::test_it*"])
def test_what_fails_by_chance_excuses_and_is_never_stale(names: str) -> None:
    by_chance = KnownFailure(1, names, "why")
    phase = Phase("known_failing", "local", ("LOD-07",), (), ("LOD-07",))
    failed = TestRecord("test_lod_load.py::test_it", 0.1, [phase])

    held, met = (judge([record], ["local"], [by_chance]) for record in (PASSED, failed))

    assert excuse([by_chance], "test_lod_load.py::test_it", ["LOD-07"], "local") == "why"
    assert (held.exit_code, held.known[0]["state"]) == (CONFORMS, "by_chance")
    assert met.known[0]["state"] == "failed"


def test_what_a_random_sequence_has_not_met_is_not_stale() -> None:
    name = "test_seq_sequences.py::test_random_sequences_mean_what_the_model_says[reference-local-0]"
    record = TestRecord(name, 0.1, [Phase("passed", "local", ("LOD-07",), ("LOD-07",))])

    verdict = judge([record], ["local"], [KnownFailure(1, "LOD-07", "why")])
    assert (verdict.exit_code, verdict.known[0]["state"]) == (CONFORMS, "not_run")
    assert judge([record, PASSED], ["local"], [KnownFailure(1, "LOD-07", "why")]).exit_code == STALE
    by_name = [KnownFailure(1, "test_seq_sequences.py::*", "why")]
    assert judge([record], ["local"], by_name).exit_code == STALE, "who names sequences means them"


def test_what_the_auditor_finds_afterwards_fails_a_test_that_passed() -> None:
    """The test's own requirement holds; the one that the auditor names does not."""
    record = TestRecord("test_lod_load.py::test_it", 0.1, [
        Phase("passed", "local", ("LOD-07",), ("LOD-07",)),
        Phase("failed", "local", ("LOD-07",), ("LOD-07",), ("MAN-11",)),
    ])  # fmt: skip

    verdict = judge([record], ["local"])

    assert (outcome_of(verdict, "LOD-07"), outcome_of(verdict, "MAN-11")) == ("passed", "failed")
    assert verdict.exit_code == FAILS


def test_a_requirement_without_a_test_that_is_a_known_gap_is_a_gap() -> None:
    assert outcome_of(judge([PASSED], ["local"]), "SCH-15") == "gap"


def test_a_phase_travels_as_text() -> None:
    phase = Phase("failed", "moto", ("LOD-07",), (), ("LOD-07",), "because", "detail", trace={"test": "x"})

    assert Phase.from_text(phase.to_text()) == phase
