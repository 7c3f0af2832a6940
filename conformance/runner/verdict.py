"""From what happened to each test to one outcome per requirement and store, and one verdict for the run.

    exit code  verdict                 when
    ---------  ----------------------  ------------------------------------------------------------------------
    0          conforms                at least one requirement was shown to hold, and none failed
    1          fails                   a requirement failed that is not on the list of known failures
    2                                  usage: the command line, the list of known failures (no report is written)
    3          could_not_run           the engine or its adapter could not run, or it or a store broke down on the way
    4          nothing_tested          nothing was shown: a selection without tests, or everything skipped
    5          stale_known_failures    a known failure did not fail
    130        interrupted             somebody has ended the run: Ctrl-C, SIGTERM

Where several hold, 130 and 3 come first, because such a run is not whole; then 1, then 4, then 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conformance.registry import Requirement, requirements
from conformance.runner.known import KnownFailure
from conformance.runner.records import SuiteTest, TestRecord

CONFORMS, FAILS, USAGE, COULD_NOT_RUN, NOTHING_TESTED, STALE = range(6)
INTERRUPTED: Final = 130
VERDICTS: Final[Mapping[int, str]] = {
    CONFORMS: "conforms",
    FAILS: "fails",
    COULD_NOT_RUN: "could_not_run",
    NOTHING_TESTED: "nothing_tested",
    STALE: "stale_known_failures",
    INTERRUPTED: "interrupted",
}
REQUIREMENT_OUTCOMES: Final = (
    "passed",
    "failed",
    "known_failing",
    "unsupported",
    "skipped",
    "not_tested",
    "gap",
)
TEST_OUTCOMES: Final = ("passed", "failed", "known_failing", "unsupported", "skipped", "faults", "store_faults")
_COUNTED_AS: Final = {"fault": "faults", "store_fault": "store_faults"}
# Over several stores, and over the tests of one, the first of these that occurs.
_WORST_FIRST: Final = ("failed", "known_failing", "passed", "unsupported", "skipped", "not_tested")


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run."""

    exit_code: int
    because: str
    requirements: tuple[dict[str, Any], ...]
    known: tuple[dict[str, Any], ...]
    summary: dict[str, dict[str, int]]

    @property
    def name(self) -> str:
        return VERDICTS[self.exit_code]


def judge(
    records: Sequence[TestRecord],
    stores: Sequence[str],
    known: Sequence[KnownFailure] = (),
    faults: Sequence[Mapping[str, Any]] = (),
    *,
    there: Sequence[SuiteTest] = (),
    whole: bool = True,
    missing_stores: Sequence[str] = (),
    interrupted: bool = False,
) -> Verdict:
    """What a run has shown. One that left examples out, and so is not `whole`, cannot call a known failure stale.

    Nor can any run if it has left out one of the tests that the line is about; `there` are all that the suites have.
    """
    rows = tuple(_requirement_row(each, records, stores) for each in requirements().values())
    ran = {record.name for record in records if record.outcome not in ("fault", "store_fault")}
    left_out = [test for test in there if test.name not in ran]
    lines = tuple(_known_row(failure, records, left_out, whole) for failure in known)
    summary = {
        "requirements": {"total": len(rows), **_counted(REQUIREMENT_OUTCOMES, [row["outcome"] for row in rows])},
        "tests": {
            "total": len(records),
            **_counted(TEST_OUTCOMES, [_COUNTED_AS.get(r.outcome, r.outcome) for r in records]),
        },
    }
    exit_code, because = _conclude(summary, lines, faults, missing_stores)
    if interrupted:
        done = _count(summary["tests"]["total"], "test")
        exit_code, because = INTERRUPTED, f"the run was ended after {done}; the others were not tried"
    if exit_code == CONFORMS and not whole:
        because += ", in a selection of the tests"
    return Verdict(exit_code, because, rows, lines, summary)


def _conclude(
    summary: Mapping[str, Mapping[str, int]],
    lines: Sequence[Mapping[str, Any]],
    faults: Sequence[Mapping[str, Any]],
    missing_stores: Sequence[str],
) -> tuple[int, str]:
    counted = summary["requirements"]
    failed, passed = counted["failed"], counted["passed"]
    stale = [str(line["names"]) for line in lines if line["state"] == "stale"]
    if faults:
        message = str(faults[0]["message"]).splitlines()[0]
        if faults[0]["store"] is not None:
            return COULD_NOT_RUN, f"{message}; this says nothing about the engine"
        return COULD_NOT_RUN, f"the engine or its adapter broke down: {message}"
    if failed or summary["tests"]["failed"]:
        tests = summary["tests"]["failed"]
        return FAILS, f"{_count(failed, 'requirement')} failed, in {_count(tests, 'test')}"
    if missing_stores:
        elsewhere = f"; elsewhere {_count(passed, 'requirement')} shown to hold, none failed" if passed else ""
        return NOTHING_TESTED, f"nothing was tested on {', '.join(missing_stores)}, which was asked for{elsewhere}"
    if not passed:
        return NOTHING_TESTED, "no requirement was shown to hold, so nothing good is known about the engine"
    if stale:
        return STALE, f"on the list of known failures, and not failing: {', '.join(stale)}"
    left = f", {_count(counted['known_failing'], 'known failure')}" if counted["known_failing"] else ""
    return CONFORMS, f"{_count(passed, 'requirement')} shown to hold{left}, none failed"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _counted(names: Iterable[str], found: Sequence[str]) -> dict[str, int]:
    return {name: found.count(name) for name in names}


def _requirement_row(requirement: Requirement, records: Sequence[TestRecord], stores: Sequence[str]) -> dict[str, Any]:
    by_store = {store: _on_store(requirement.id, records, store) for store in stores}
    outcomes = [cell["outcome"] for cell in by_store.values()]
    outcome = next((each for each in _WORST_FIRST if each in outcomes), "not_tested")
    if requirement.level == "gap" and outcome == "not_tested":
        outcome = "gap"
    return {
        "id": requirement.id,
        "group": requirement.group,
        "level": requirement.level,
        "capability": requirement.capability,
        "sentence": requirement.sentence,
        "outcome": outcome,
        "stores": by_store,
    }


def _on_store(requirement: str, records: Sequence[TestRecord], store: str) -> dict[str, Any]:
    tests: list[str] = []
    outcomes: set[str] = set()
    for record in records:
        if record.store not in (None, store):
            continue
        if requirement in record.broke:
            outcomes.add("known_failing" if record.outcome == "known_failing" else "failed")
        elif requirement in record.proved:
            outcomes.add("passed")
        elif requirement in record.requirements and record.outcome in ("unsupported", "skipped"):
            outcomes.add(record.outcome)
        elif requirement not in record.requirements:
            continue
        tests.append(record.name)
    return {"outcome": next((each for each in _WORST_FIRST if each in outcomes), "not_tested"), "tests": tests}


_RANDOM: Final = "test_seq_sequences.py::"


def _is_random(record: TestRecord) -> bool:
    return record.name.startswith(_RANDOM)


def _known_row(
    failure: KnownFailure, records: Sequence[TestRecord], left_out: Sequence[SuiteTest], whole: bool
) -> dict[str, Any]:
    """A line is stale when all that it names ran to its end, nothing of it failed, and a requirement was seen to hold.

    A test that was left out may be the one that fails: of a requirement every test that names it on a store that the
    line is about, of a glob every test that it fits. One that was skipped, or lacks an operation, has had its turn.
    What random sequences do not meet in one run, they meet in another: by them alone no requirement is stale.
    """
    concerned = [record for record in records if _concerns(failure, record)]
    is_whole = whole and not any(_concerns(failure, test) for test in left_out)
    failing = [
        record
        for record in concerned
        if record.outcome in ("known_failing", "failed") and failure.excuses(record.name, record.broke, record.store)
    ]
    ran = [
        record
        for record in concerned
        if record.outcome in ("passed", "failed", "known_failing")
        and (failure.requirement is None or (failure.requirement in record.proved and not _is_random(record)))
    ]
    held = "by_chance" if failure.is_by_chance else "stale"
    state = "failed" if failing else held if ran and is_whole else "not_run"
    return {"line": failure.line, "names": failure.names, "reason": failure.reason, "state": state}


def _concerns(failure: KnownFailure, test: TestRecord | SuiteTest) -> bool:
    if failure.requirement is None:
        return failure.names_test(test.name)
    broke = test.broke if isinstance(test, TestRecord) else ()
    is_about = failure.is_about(test.store) and failure.is_in(test.name)
    return is_about and failure.requirement in {*test.requirements, *broke}
