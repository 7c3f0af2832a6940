"""What the page shows, derived from the record: failures with their sentences, tests set aside by reason, groups.

The record is checked already (`check_report`); nothing here decides an outcome, it only arranges them.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conformance.report.words import COUNTED_AS, GROUPS, OUTCOMES, Outcome

Record = Mapping[str, Any]

# The capability whose requirements `touchstone cost` measures.
COST: Final = "cost"
NO_REASON: Final = "No reason was given."
SET_ASIDE: Final = ("unsupported", "skipped")


@dataclass(frozen=True)
class Count:
    """How many have one outcome."""

    outcome: Outcome
    number: int


@dataclass(frozen=True)
class Failure:
    """A test that failed, with the requirements that it found broken, or those it checks where it names none."""

    test: Record
    requirements: Sequence[Record]
    replay: str | None


@dataclass(frozen=True)
class UntestedFailure:
    """A requirement that failed though none of its tests did: an engine without what every engine must have."""

    requirement: Record
    reasons: Sequence[str]


@dataclass(frozen=True)
class Fault:
    """The adapter, or a store, went wrong: where, how, what its process said, and the tests lost to it."""

    test: str | None
    store: str | None
    message: str
    stderr: str | None
    lost: Sequence[str] = ()


@dataclass(frozen=True)
class Parity:
    """One question that stores answer differently: what each of this run's answered, in their order."""

    question: str
    answers: Sequence[str | None]
    differs: bool


@dataclass(frozen=True)
class SetAside:
    """Tests that were not judged, all for one reason."""

    outcome: Outcome
    reason: str
    tests: Sequence[Record]
    ids: Sequence[str]


@dataclass(frozen=True)
class Cell:
    """One requirement on one store."""

    store: str
    outcome: Outcome
    tests: int


@dataclass(frozen=True)
class Row:
    """One requirement on every store."""

    requirement: Record
    outcome: Outcome
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Group:
    """The requirements of one group."""

    key: str
    title: str
    counts: Sequence[Count]
    rows: Sequence[Row]


def replay_command(trace: str, engine: str, store: str | None) -> str:
    """The command that runs a trace again on the same engine and store, from the directory of the report."""
    on_store = [] if store is None else ["--store", store]
    return shlex.join(["touchstone", "replay", trace, "--engine", engine, *on_store])


def counts(summary: Mapping[str, int]) -> tuple[Count, ...]:
    """Every count of a summary, zeros too: what did not fail is a fact as well."""
    return tuple(
        Count(outcome, summary[COUNTED_AS.get(key, key)])
        for key, outcome in OUTCOMES.items()
        if COUNTED_AS.get(key, key) in summary
    )


def failures(report: Record) -> tuple[Failure, ...]:
    """Tests that failed, in the order of the first requirement that each broke."""
    by_id = {requirement["id"]: requirement for requirement in report["requirements"]}
    order = {requirement: number for number, requirement in enumerate(by_id)}
    found = [
        Failure(
            test=test,
            requirements=[by_id[requirement] for requirement in test["broke"] or test["requirements"]],
            replay=_replay(test, report["engine"]["spec"]),
        )
        for test in report["tests"]
        if test["outcome"] == "failed"
    ]
    return tuple(
        sorted(found, key=lambda each: min((order[one["id"]] for one in each.requirements), default=len(order)))
    )


def _replay(test: Record, engine: str) -> str | None:
    return None if test["trace"] is None else replay_command(test["trace"], engine, test["store"])


def place(test: Record) -> str:
    """Where a test ran."""
    return "without a store" if test["store"] is None else f"on {test['store']}"


def untested_failures(report: Record) -> tuple[UntestedFailure, ...]:
    """Requirements that failed and that no failed test speaks of."""
    spoken_of = {requirement["id"] for failure in failures(report) for requirement in failure.requirements}
    return tuple(
        UntestedFailure(requirement, tuple(dict.fromkeys(_reasons(report, requirement["id"]))))
        for requirement in report["requirements"]
        if requirement["outcome"] == "failed" and requirement["id"] not in spoken_of
    )


def _reasons(report: Record, requirement: str) -> Iterator[str]:
    for test in report["tests"]:
        if requirement in test["requirements"] and test["outcome"] != "passed":
            outcome = OUTCOMES[test["outcome"]].word
            yield f"{test['name']} {place(test)}: {outcome}. {test['because'] or test['reason'] or NO_REASON}"


def faults(report: Record) -> tuple[Fault, ...]:
    """Every fault of the adapter, also those that only a test's outcome tells, and every store that broke down."""
    listed = [
        Fault(each["test"], each["store"], each["message"], each["stderr"], _lost_with(report, each["store"]))
        for each in report["faults"]
    ]
    named = {fault.test for fault in listed}
    of_tests = [
        Fault(test["name"], None, test["because"] or test["reason"] or NO_REASON, test["detail"])
        for test in report["tests"]
        if test["outcome"] == "fault" and test["name"] not in named
    ]
    return (*listed, *of_tests)


def _lost_with(report: Record, store: str | None) -> tuple[str, ...]:
    lost = [test["name"] for test in report["tests"] if test["outcome"] == "store_fault" and test["store"] == store]
    return tuple(lost)


def parity(report: Record) -> tuple[Parity, ...]:
    """What the stores answered, those questions first on which they differ."""
    names = [store["name"] for store in asked_stores(report)]
    rows = [[row["answers"].get(name) for name in names] for row in report["parity"]]
    found = [
        Parity(row["question"], answers, len(set(answers)) > 1)
        for row, answers in zip(report["parity"], rows, strict=True)
    ]
    return tuple(sorted(found, key=lambda each: not each.differs))


def asked_stores(report: Record) -> tuple[Record, ...]:
    """The stores that have answered, in the order of the run."""
    answered = {name for row in report["parity"] for name in row["answers"]}
    return tuple(store for store in report["stores"] if store["name"] in answered)


def set_aside(report: Record) -> tuple[SetAside, ...]:
    """Unsupported and skipped tests by their reasons, the most frequent reason first."""
    by_reason: dict[tuple[str, str], list[Record]] = {}
    for test in report["tests"]:
        if test["outcome"] in SET_ASIDE:
            reason = test["reason"] or test["because"] or NO_REASON
            by_reason.setdefault((test["outcome"], reason), []).append(test)
    return tuple(
        SetAside(OUTCOMES[outcome], reason, tests, sorted({one for test in tests for one in test["requirements"]}))
        for (outcome, reason), tests in sorted(
            by_reason.items(), key=lambda item: (SET_ASIDE.index(item[0][0]), -len(item[1]))
        )
    )


def without_test(report: Record) -> dict[str, list[str]]:
    """Ids of requirements that were set aside and that no test says why, by the word for their outcome."""
    explained = {(each.outcome.key, one) for each in set_aside(report) for one in each.ids}
    found: dict[str, list[str]] = {}
    for requirement in report["requirements"]:
        key = requirement["outcome"]
        if _is_measured(requirement):
            continue
        if key in (*SET_ASIDE, "not_tested") and (key, requirement["id"]) not in explained:
            found.setdefault(key, []).append(requirement["id"])
    return found


def measured(report: Record) -> tuple[Record, ...]:
    """Requirements that no test of a run is for: another command measures them."""
    return tuple(filter(_is_measured, report["requirements"]))


def _is_measured(requirement: Record) -> bool:
    return (requirement["outcome"], requirement["capability"]) == ("not_tested", COST)


def groups(report: Record) -> tuple[Group, ...]:
    """Every requirement on every store, by group, in the order of the record."""
    by_group: dict[str, list[Row]] = {}
    for requirement in report["requirements"]:
        row = Row(requirement, OUTCOMES[requirement["outcome"]], _cells(requirement, report["stores"]))
        by_group.setdefault(requirement["group"], []).append(row)
    return tuple(Group(key, GROUPS.get(key, key), _counted(rows), rows) for key, rows in by_group.items())


def _cells(requirement: Record, stores: Sequence[Record]) -> tuple[Cell, ...]:
    return tuple(_cell(requirement, store) for store in stores)


def _cell(requirement: Record, store: Record) -> Cell:
    untried: Record = {"outcome": "skipped" if store["skipped"] else "not_tested", "tests": []}
    tried = requirement["stores"].get(store["name"], untried)
    outcome = "gap" if requirement["outcome"] == "gap" else tried["outcome"]
    return Cell(store["name"], OUTCOMES[outcome], len(tried["tests"]))


def _counted(rows: Sequence[Row]) -> tuple[Count, ...]:
    counted = Counter(row.outcome.key for row in rows)
    return tuple(Count(outcome, counted[key]) for key, outcome in OUTCOMES.items() if counted[key])
