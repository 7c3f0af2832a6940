"""FAULTS: two processes meet at the requests where it matters, and several write at once.

The quick selection of `touchstone race`: a few schedules of a few pairs, and one small history.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from conformance.adapters import Unsupported
from conformance.judge import RequirementBroken, current_case, proving
from failpoints.histories.history import run_history
from failpoints.histories.show import lines_of
from failpoints.pairs.pairs import PAIRS, Pair
from failpoints.pairs.schedule import ScheduleResult
from failpoints.pairs.sweep import Unit, run_unit
from failpoints.workshop import Bench, Refused, SweepBroken, lacking
from fixtures.stores.catalog import Store

SCHEDULES: Final = 2
PROCESSES: Final = 3
WRITES: Final = 4
# What a pair shows.
SHOWN: Final = {
    "insert-insert-tables": ("PUB-08", "LIN-06"),
    "append-append-key": ("PUB-07", "LOD-07"),
    "update-update-row": ("PUB-18", "PUB-20"),
    "edge-endpoint": ("VAL-09", "PUB-02"),
    "insert-optimize": ("OPT-06",),
    "merge-write-target": ("MRG-07",),
    "schema-branch-create": ("SCH-02",),
    "open-open": ("REC-19",),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.requirement(*ids), id=name) for name, ids in SHOWN.items()]
)
def test_two_processes_that_meet_leave_a_serial_order_or_a_conflict(bench: Bench, store: Store, name: str) -> None:
    pair: Pair = PAIRS[name]
    missing = lacking(bench, pair.needs)
    if missing:
        raise Unsupported(missing[0], "the engine does not declare it")
    with proving(*SHOWN[name]):
        shown = [judge(result) for result in run_unit(bench, store, Unit(pair, "first", SCHEDULES))]
        if not any(shown):
            pytest.skip("nobody was held in the places where it shows: nothing is proved")


def judge(result: ScheduleResult | Refused) -> bool:
    """Whether a schedule shows something: it came to be, and ended well.

    Fail with one that is wrong, and leave it as a trace. A known gap of the format is no failure, and shows nothing.
    """
    if isinstance(result, Refused):
        if result.unsupported:
            pytest.skip(result.reason)
        raise SweepBroken(result.reason)
    if result.verdict == "wrong":
        keep({} if result.trace is None else dict(result.trace))
        raise RequirementBroken(result.ids, result.because)
    return result.reached and result.verdict == "ok"


def keep(trace: dict[str, Any]) -> None:
    case = current_case()
    if case is not None and trace:
        case.sequence = {name: value for name, value in trace.items() if name not in ("test", "broke", "operations")}


@pytest.mark.requirement("PUB-21", "LIN-06", "PUB-09")
def test_processes_that_write_at_once_leave_one_chain_and_exactly_its_rows(
    store: Store, request: pytest.FixtureRequest
) -> None:
    engine, seed = (request.config.getoption(f"--touchstone-{name}") for name in ("engine", "seed"))
    with proving("PUB-21", "LIN-06", "PUB-09"):
        result = run_history(engine, store, processes=PROCESSES, writes=WRITES, seed=int(seed))
        if not result.holds:
            keep(dict(result.trace or {}))
            raise RequirementBroken(result.ids, "\n".join(lines_of(result)))
