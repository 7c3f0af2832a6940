"""FAULTS: every writer is killed in the few places where most goes wrong, and what it leaves is judged.

The quick selection of `touchstone sweep`: before and after the sidecar, the first and the last table, the publish, and
around the acknowledgement. The sweep itself kills at every request, and inside every recovery as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pytest

from conformance.adapters import Unsupported
from conformance.judge import RequirementBroken, current_case, proving
from conformance.judge.blame import operation_of
from failpoints.baseline import SetupFailed
from failpoints.cuts.cell import CellResult
from failpoints.cuts.cut import AT_A_REQUEST, Cut, again_cuts_of, cuts_of
from failpoints.cuts.sweep import SweptWriter, sweep_init
from failpoints.cuts.traces import trace_of
from failpoints.gate import WRITE_VERBS, Exchange
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
    ("sidecar", 0, "failed"),
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
        numbers = [number for number, each in enumerate(durable, 1) if each.role == role and each.verb in WRITE_VERBS]
        chosen += [cut for cut in cuts if numbers and cut.nth == numbers[place] and cut.moment == moment]
    return list(dict.fromkeys(chosen))


def tried(cells: Iterable[CellResult]) -> list[CellResult]:
    """The cells up to the first that is wrong. Where no request came that was to be cut, nothing was tried."""
    found: list[CellResult] = []
    for result in cells:
        found.append(result)
        if result.wrong is not None:
            return found
    if not any(result.reached and result.cut.moment in AT_A_REQUEST for result in found):
        pytest.skip("none of the requests that were to be cut came again: nothing was tried")
    return found


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
    try:
        results = tried(_cells(bench, store, name))
    except SetupFailed as failed:  # What cannot be done when nobody cuts it says nothing of recovery.
        raise RequirementBroken((operation_of(writer.step["do"], writer.step),), str(failed)) from failed
    with proving(*SHOWN[name]):
        judge(results)


def _cells(bench: Bench, store: Store, name: str) -> Iterator[CellResult]:
    if name == "init":
        yield from sweep_init(bench, store, WRITERS[name], decisive)
        return
    swept = SweptWriter.prepared(bench, store, WRITERS[name], double="none")
    for cut in decisive(swept.count()):
        yield from swept.cell(cut)


@pytest.mark.requirement("REC-18")
def test_a_recovery_that_is_killed_is_completed_by_the_next(bench: Bench, store: Store) -> None:
    """The writer dies between its tables and its publish, and whoever recovers it is cut at the publish of that."""
    swept = SweptWriter.prepared(bench, store, WRITERS["insert"], double="none")
    publish = [cut for cut in cuts_of(swept.count()) if "manifest version" in cut.request and cut.moment == "before"]
    found = swept.doubles_at(publish[-1], at_publish)
    results = tried(result for result in found if result.second is not None or result.wrong is not None)
    with proving("REC-18"):
        judge(results)


def at_publish(recovery: tuple[Exchange, ...]) -> list[Cut]:
    """Where a recovery makes its decision visible, in every way; its last request if it publishes nothing."""
    cuts = again_cuts_of(recovery)
    publishes = [cut.nth for cut in cuts if "manifest version" in cut.request] or [cuts[-1].nth]
    return [cut for cut in cuts if cut.nth == publishes[0]]
