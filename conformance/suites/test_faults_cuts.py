"""FAULTS: every writer is killed in the few places where most goes wrong, and what it leaves is judged.

The quick selection of `touchstone sweep`: before and after the sidecar, the first and the last table, the publish, and
around the acknowledgement. The sweep itself kills at every request, and inside every recovery as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from conformance.adapters import Unsupported
from conformance.judge import RequirementBroken, current_case, proving
from failpoints.cuts.cell import CellResult
from failpoints.cuts.cut import Cut, cuts_of, kills_of
from failpoints.cuts.sweep import SweptWriter, sweep_init
from failpoints.cuts.traces import trace_of
from failpoints.gate import Exchange
from failpoints.workshop import Bench, lacking
from failpoints.writers import WRITERS
from fixtures.stores.catalog import Store

# What a writer that was killed shows, beside what is required of every one.
SHOWN: Final = {
    "init": ("SCH-16",),
    "insert": ("REC-01", "REC-02", "REC-04", "REC-05"),
    "update": ("REC-02", "REC-22", "REC-23"),
    "branch-create": ("BRA-01",),
    "first-write": ("BRA-08", "REC-16"),
    "merge": ("REC-08",),
    "schema-add": ("SCH-17", "SCH-18"),
    "optimize": ("OPT-01",),
}
# The request of a role, the first or the last of them, and what is done to it: where most goes wrong.
DECISIVE: Final = (
    ("sidecar", 0, "applied"),
    ("table version", 0, "applied"),
    ("schema file", 0, "applied"),
    ("manifest ref", -1, "lost"),
    ("manifest version", -1, "before"),
    ("manifest version", -1, "lost"),
)


def decisive(durable: tuple[Exchange, ...]) -> list[Cut]:
    """A few cuts: of each role that decides something its first or last request."""
    cuts = cuts_of(durable)
    chosen = [cuts[-1]]
    for role, place, moment in DECISIVE:
        numbers = [number for number, each in enumerate(durable, 1) if each.role == role and each.verb == "PUT"]
        chosen += [cut for cut in cuts if numbers and cut.nth == numbers[place] and cut.moment == moment]
    return list(dict.fromkeys(chosen))


def judge(results: Sequence[CellResult]) -> None:
    """Fail with the first cell that is wrong, and leave it as a trace."""
    for result in results:
        if result.wrong is not None:
            case = current_case()
            if case is not None:
                case.sequence = {name: value for name, value in trace_of(result).items() if name != "test"}
            raise RequirementBroken(*result.wrong)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.requirement(*ids), id=name) for name, ids in SHOWN.items()]
)
def test_a_writer_that_is_killed_leaves_a_graph_that_recovers(bench: Bench, store: Store, name: str) -> None:
    writer = WRITERS[name]
    missing = lacking(bench, writer.needs)
    if missing:
        raise Unsupported(missing[0], "the engine does not declare it")
    with proving(*SHOWN[name]):
        if name == "init":
            judge(list(sweep_init(bench, store, writer, decisive)))
            return
        swept = SweptWriter.prepared(bench, store, writer, double="none")
        for cut in decisive(swept.count()):
            judge(list(swept.cell(cut)))


@pytest.mark.requirement("REC-18")
def test_a_recovery_that_is_killed_is_completed_by_the_next(bench: Bench, store: Store) -> None:
    """The writer dies between its tables and its publish, and whoever recovers it dies at the publish of that."""
    swept = SweptWriter.prepared(bench, store, WRITERS["insert"], double="none")
    publish = [cut for cut in cuts_of(swept.count()) if "manifest version" in cut.request and cut.moment == "before"]
    with proving("REC-18"):
        for moment in ("before", "applied"):
            judge([swept.double_at(publish[-1], lambda recovery, at=moment: at_publish(recovery, at))])  # type: ignore[misc]


def at_publish(recovery: tuple[Exchange, ...], moment: str) -> Cut:
    """Where a recovery makes its decision visible; its last request if it publishes nothing."""
    cuts = [cut for cut in kills_of(recovery) if cut.moment == moment]
    return next((cut for cut in cuts if "manifest version" in cut.request), cuts[-1])
