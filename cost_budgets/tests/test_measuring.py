"""A measurement that cannot go on says why, and whose fault it is."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.adapters import AdapterFault, EngineError
from conformance.judge.engine import Hello
from cost_budgets.budgets import read_budgets
from cost_budgets.judging import FLOOR_POINTS_MIN, judge
from cost_budgets.measuring import (
    FULL,
    SHALLOW,
    Begun,
    Measured,
    Part,
    Point,
    Profile,
    counting,
    measure,
    measure_at_once,
)
from cost_budgets.operations import JUST_OPTIMIZED, OPERATIONS, Ground
from cost_budgets.places import GrowingGraph, MeasuringFailed, WorksLate
from failpoints.gate import GateError
from failpoints.workshop import Bench, SweepBroken
from fixtures.forge import ForgeError
from fixtures.mutants.lawful import lawful
from fixtures.stores import moto
from fixtures.stores.catalog import S3, Store

pytestmark = [pytest.mark.s3, pytest.mark.xdist_group("cost")]
NAMES = ("warm-read", "cold-snapshot")
NOWHERE: Final = Store("nowhere", {}, lambda: "s3://b/nowhere", lambda uri: None)
FEW: Final = Profile(depths=(2, 3), merges=(), crashes=(2,), branches=())


@pytest.fixture
def server() -> Iterator[moto.MotoStore]:
    with moto.running() as running:
        yield running


@pytest.fixture
def store(server: moto.MotoStore) -> Store:
    return Store("moto", server.env, server.fresh_root, lambda uri: None, frozenset({S3}))


def bench_of(store: Store) -> Any:
    return counting(store, "reference", timeout_seconds=20.0)


@pytest.mark.slow
def test_a_store_that_dies_is_the_store_s_fault(server: moto.MotoStore, store: Store) -> None:
    def kill(name: str) -> None:
        if name.startswith("cold-snapshot"):
            os.kill(server.pid, signal.SIGKILL)

    with bench_of(store) as bench, pytest.raises(SweepBroken, match="the store 'moto' broke down: .*nothing about the"):
        measure(bench, store, SHALLOW, names=NAMES, told=kill)


def test_one_operation_that_does_not_work_is_reported_and_the_others_are_measured(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = GrowingGraph.count

    def count(self: GrowingGraph, operation: Any, **how: Any) -> Any:
        if operation is OPERATIONS["warm-read"]:
            raise MeasuringFailed("warm-read on the grown graph: somebody is in its way")
        return right(self, operation, **how)

    monkeypatch.setattr(GrowingGraph, "count", count)
    with bench_of(store) as bench:
        found = measure(bench, store, FEW, names=NAMES)
    assert found.failed == {"warm-read": "warm-read on the grown graph: somebody is in its way"}
    assert {name for name, _ in found.points} == {"cold-snapshot"}


def test_a_writer_that_cannot_be_made_to_die_costs_its_own_measurement_and_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(self: GrowingGraph) -> None:
        raise MeasuringFailed("a writer was to die, and lived")

    monkeypatch.setattr(GrowingGraph, "crash", crash)
    with bench_of(store) as bench:
        found = measure(bench, store, FEW, names=["warm-read", "cold-open-pending"])
    assert found.failed == {
        "cold-open-pending": "the crashed graph could not be made 2 deep: a writer was to die, and lived"
    }
    assert {name for name, _ in found.points} == {"warm-read"}


def test_work_after_the_answer_is_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cost_budgets.places.QUIET_SECONDS", 0.5)  # However busy this machine is.
    few = Profile(depths=(2,), merges=(), crashes=(), branches=())
    listings = {}
    for engine in ("reference", "mutant:works-after-the-answer"):
        with counting(store, engine, timeout_seconds=20.0) as bench:
            found = measure(bench, store, few, names=["insert-node", "cold-insert-node"])
        listings[engine] = [points[0].tally.measure("recovery lists") for points in found.points.values()]
    usual = listings["reference"]
    assert listings["mutant:works-after-the-answer"] == [number + 30 for number in usual]


def test_an_engine_that_does_not_come_to_rest_is_not_measured(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cost_budgets.places.REST_SECONDS_MAX", 0.0)
    few = Profile(depths=(2,), merges=(), crashes=(), branches=())
    with bench_of(store) as bench:
        found = measure(bench, store, few, names=["warm-read"])
    assert "does not come to rest" in found.failed["warm-read"]


@pytest.mark.slow
def test_late_work_is_counted_where_it_belongs_and_nowhere_else(store: Store) -> None:
    few = Profile(depths=(2,), merges=(), crashes=(), branches=(), watched=True)
    counted = {}
    for engine in ("reference", "mutant:works-long-after-the-answer"):
        with counting(store, engine, timeout_seconds=20.0) as bench:
            found = measure(bench, store, few, names=["commit-page", "update", "warm-read"])
        counted[engine] = {name: points[0].tally.measure("recovery lists") for (name, _), points in grown(found)}
    usual = counted["reference"]
    assert counted["mutant:works-long-after-the-answer"] == {**usual, "update": usual["update"] + 30}


@pytest.mark.slow
def test_late_work_that_begins_after_an_optimize_is_counted(store: Store) -> None:
    few = Profile(depths=(2,), merges=(), crashes=(), branches=(), watched=True)
    counted = {}
    for engine in ("reference", "mutant:works-late-once-it-has-optimized"):
        with counting(store, engine, timeout_seconds=20.0) as bench:
            found = measure(bench, store, few, names=["insert-node"])
        counted[engine] = {
            ground: points[0].tally.measure("recovery lists") for (_, ground), points in found.points.items()
        }
    usual, late = counted.values()
    assert late == {"grown": usual["grown"], "optimized": usual["optimized"] + 60}


@pytest.mark.slow
def test_work_that_is_put_off_until_the_next_call_is_paid_by_the_next_call(store: Store) -> None:
    few = Profile(depths=(2,), merges=(), crashes=(), branches=())
    counted = {}
    for engine in ("reference", "mutant:works-at-the-next-call"):
        with counting(store, engine, timeout_seconds=20.0) as bench:
            found = measure(bench, store, few, names=["warm-read", "insert-node", "update"])
        counted[engine] = {name: points[0].tally.measure("recovery lists") for (name, _), points in grown(found)}
    usual = counted["reference"]
    late = {name: usual[name] + 60 for name in ("insert-node", "update")}
    assert counted["mutant:works-at-the-next-call"] == {**usual, **late}


def test_commits_and_branches_are_counted_from_the_bytes_as_an_engine_counts_them(store: Store) -> None:
    with bench_of(store) as bench, closing(GrowingGraph(bench, store, "branched")) as graph:
        graph.begin()
        graph.grow(5)
        graph.branch_out(2)
        variables = graph.variables(OPERATIONS["insert-node"])
        assert (variables["H"], variables["B"]) == (len(graph.handle.commits()), 2)
        assert len(graph.handle.branch_list()) == 3


def test_who_was_written_past_by_another_process_has_caught_up_before_it_is_counted(store: Store) -> None:
    """To make a branch needs no preparation that would look at the graph."""
    few = Profile(depths=(4,), merges=(), crashes=(), branches=())
    requests = []
    for names in (["branch-create"], ["cold-insert-node", "branch-create"]):
        with bench_of(store) as bench:
            found = measure(bench, store, few, names=names)
        requests.append(found.points["branch-create", "grown"][0].tally.verbs)
    assert requests[0] == requests[1]


def grown(found: Measured) -> list[tuple[tuple[str, str], list[Point]]]:
    return [each for each in found.points.items() if each[0][1] == "grown"]


ODD: Final = """
import json, os
from reference.driver import Session, main

def answer(self, line):
    {does}
    return right(self, line)

made = []
right, Session.answer = Session.answer, answer
main()
"""
DIES: Final = 'if json.loads(line)["op"] == "diff": os._exit(3)'
LACKS: Final = """
if json.loads(line)["op"] == "diff":
        return {"seq": json.loads(line)["seq"], "unsupported": "not for this one"}
"""


ALL: Final = ("diff-caught-up", "warm-read", "update")


def measured_with(store: Store, folder: Path, does: str, names: Sequence[str] = ALL) -> Measured:
    """What is found with an engine that does something odd, mostly when it is asked for a difference."""
    (folder / "driver.py").write_text(ODD.replace("{does}", does.strip()))
    few = Profile(depths=(2, 4), merges=(), crashes=(), branches=())
    with counting(store, f"cmd:{sys.executable} {folder / 'driver.py'}", timeout_seconds=20.0) as bench:
        return measure(bench, store, few, names=names)


def test_a_driver_that_dies_in_one_operation_is_started_again_for_the_others(store: Store, tmp_path: Path) -> None:
    found = measured_with(store, tmp_path, DIES)
    assert found.failed.keys() == {"diff-caught-up"} and "exit" in found.failed["diff-caught-up"]
    assert {key: len(points) for key, points in found.points.items()} == {
        ("warm-read", "grown"): 2,
        ("update", "grown"): 2,
        ("update", "optimized"): 2,
    }


def test_an_operation_that_is_answered_with_unsupported_is_listed_and_the_others_are_measured(
    store: Store, tmp_path: Path
) -> None:
    found = measured_with(store, tmp_path, LACKS)
    assert (found.failed, found.unsupported) == (
        {},
        {"diff-caught-up": "diff is unsupported: not for this one"},
    )
    assert {name for name, _ in found.points} == {"warm-read", "update"}


SAYS: Final = """
if json.loads(line)["op"] == "diff":
        os.write(2, b"PUT http://ann:hunter2@host/b failed, aws_secret_access_key=TOP")
        os._exit(3)
"""


def test_what_a_driver_says_at_its_end_is_told_without_secrets(store: Store, tmp_path: Path) -> None:
    found = measured_with(store, tmp_path, SAYS)
    words = found.failed["diff-caught-up"]
    assert "PUT http://…@host/b failed" in words and "hunter2" not in words and "TOP" not in words


STOPS: Final = """
if json.loads(line)["op"] == "mutate":
        made.append(line)
        if len(made) > {most}:
            return {"seq": json.loads(line)["seq"], "unsupported": "enough is enough"}
"""


def test_who_has_done_an_operation_and_then_declines_it_is_not_without_it(store: Store, tmp_path: Path) -> None:
    found = measured_with(store, tmp_path, STOPS.replace("{most}", "1"), names=["warm-read", "commit-page"])
    assert {key: len(points) for key, points in found.points.items()} == {
        ("warm-read", "grown"): 1,
        ("commit-page", "grown"): 1,
    }
    assert found.unsupported == {} and found.failed.keys() == {"warm-read", "commit-page"}
    assert "the grown graph could not be made 4 deep" in found.failed["warm-read"]


def test_who_can_do_it_on_one_graph_is_not_without_it_on_another(store: Store, tmp_path: Path) -> None:
    found = measured_with(store, tmp_path, STOPS.replace("{most}", "2"), names=["update"])
    assert {ground for _, ground in found.points} == {"grown"}
    assert found.unsupported == {} and "is unsupported: enough" in found.failed["update"]


@pytest.mark.parametrize(
    ("engine", "depths", "names"),
    [
        pytest.param(
            *("loads-the-manifest-at-open", (4, 14), ["cold-open-read-only", "cold-open-read-write"]),
            marks=pytest.mark.slow,
        ),
        ("takes-a-lease-at-open", (2,), ["cold-open-read-write"]),
    ],
)
def test_who_does_more_when_it_opens_a_graph_is_not_blamed(
    store: Store, engine: str, depths: tuple[int, ...], names: list[str]
) -> None:
    few = Profile(depths=depths, merges=(), crashes=(), branches=())
    with counting(store, lawful(engine), timeout_seconds=20.0) as bench:
        lines = judge(measure(bench, store, few, names=names), read_budgets())
    assert {line.operation for line in lines} == set(names)
    assert [line.as_json() for line in lines if line.verdict != "ok"] == []


def test_a_graph_that_cannot_be_begun_costs_its_own_operations_and_no_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = GrowingGraph.begin

    def begin(self: GrowingGraph, schema: str | None = None) -> None:
        if self.ground == "payloads":
            raise EngineError("bad_request", "parse_error", "there is no type Blob")
        right(self, schema)

    monkeypatch.setattr(GrowingGraph, "begin", begin)
    few = Profile(depths=(2,), merges=(), crashes=(), branches=(), payloads=(2,))
    with bench_of(store) as bench:
        found = measure(bench, store, few, names=["warm-read", "payload-read"])
    assert found.points.keys() == {("warm-read", "grown")}
    assert "the payloads graph could not be made: bad_request/parse_error" in found.failed["payload-read"]


def test_a_graph_for_which_no_driver_starts_costs_its_own_operations_and_no_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = GrowingGraph.__init__

    def made(self: GrowingGraph, bench: Bench, store: Store, ground: Ground, **how: Any) -> None:
        if ground == "optimized":
            raise AdapterFault("it ended before it said hello")
        right(self, bench, store, ground, **how)

    monkeypatch.setattr(GrowingGraph, "__init__", made)
    few = Profile(depths=(2,), merges=(), crashes=(), branches=())
    with bench_of(store) as bench:
        found = measure(bench, store, few, names=["warm-read", "update"])
    assert found.points.keys() == {("warm-read", "grown"), ("update", "grown")}
    assert found.failed == {"update": "the optimized graph could not be made: it ended before it said hello"}


def test_why_an_operation_cannot_be_measured_is_said_for_each_graph_and_once() -> None:
    whole = Measured()
    for why in ("the grown graph: no", "the grown graph: no", "the wide graph: no"):
        whole.take(Measured(failed={"update": why}))
    assert whole.failed == {"update": "the grown graph: no; the wide graph: no"}


def test_the_full_profile_sees_the_floor_of_whatever_is_bounded() -> None:
    for name, budget in read_budgets().items():
        operation = OPERATIONS[name]
        for ground in operation.grounds if budget.bounded else ():
            if ground not in JUST_OPTIMIZED:
                assert len(FULL.of(operation, ground)) >= FLOOR_POINTS_MIN, (name, ground)


def test_rows_of_a_load_and_tables_of_a_catalog_are_varied(store: Store) -> None:
    few = Profile(depths=(), merges=(), crashes=(), branches=(), loads=(2, 24), tables=(6, 9))
    with bench_of(store) as bench:
        found = measure(bench, store, few, names=["load-rows", "insert-node"])
    assert {
        key: [(each.variables["R"], each.variables["C"]) for each in points] for key, points in found.points.items()
    } == {
        ("load-rows", "loads"): [(2, 6), (24, 6)],
        ("insert-node", "wide"): [(1, 6), (1, 9)],
    }
    assert {(line.ground, line.along) for line in judge(found, read_budgets())} == {("loads", "R"), ("wide", "C")}
    rows = [each.tally.measure("bytes written") for each in found.points["load-rows", "loads"]]
    assert rows[1] > rows[0] + 500, "22 rows more were loaded"


class Silent:
    """A bench on which nothing can be done, of an engine that has said hello."""

    def __init__(self, lacks: Sequence[str] = (), capabilities: Sequence[str] = (S3,)) -> None:
        self.drivers = self.engine = self
        self._lacks = lacks
        self.hello = Hello("silent", "1", 4, frozenset(capabilities))

    def take(self) -> Silent:
        return self

    def done(self, driver: Silent) -> None:
        pass

    def supports(self, operation: str) -> bool:
        return operation not in self._lacks


@pytest.mark.parametrize("error", [ForgeError("no"), GateError("no"), SweepBroken("no")])
def test_whatever_ends_a_measurement_on_a_dead_store_is_the_store_s_fault(
    store: Store, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*_: object, **how: object) -> None:
        raise error

    silent: Any = Silent()
    monkeypatch.setattr("cost_budgets.measuring.GrowingGraph", made)
    found: Measured = measure(silent, store, SHALLOW, names=["warm-read"])
    words = [f"the {ground} graph could not be made: no" for ground in OPERATIONS["warm-read"].grounds]
    assert found.failed == {"warm-read": "; ".join(words)}
    monkeypatch.setattr(Store, "silence", lambda self: "it is gone")
    with pytest.raises(SweepBroken, match="the store 'moto' broke down: it is gone. This says nothing about"):
        measure(silent, store, SHALLOW, names=["warm-read"])


def test_what_cannot_be_measured_after_an_optimize_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    grounds: list[str] = []

    def measured_on(bench: Bench, store: Store, part: Part, operations: Any) -> Generator[Begun, None, Measured]:
        grounds.append(part.ground)
        yield from ()
        return Measured()

    monkeypatch.setattr("cost_budgets.measuring._measured_on", measured_on)
    silent: Any = Silent(["optimize"])
    found: Measured = measure(silent, NOWHERE, SHALLOW, names=["insert-node"])
    assert grounds == ["grown"]
    assert found.unsupported == {
        "insert-node after optimize": "the engine does not declare optimize",
        "insert-node among branches": "the engine does not declare optimize",
        "insert-node in a wide catalog": "the engine does not declare optimize",
    }


def test_an_engine_that_does_not_declare_s3_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take the address of a graph for that of a directory, and write wherever it was started."""
    monkeypatch.delattr("cost_budgets.measuring.GrowingGraph")
    silent: Any = Silent(capabilities=["open", "init"])
    found = measure(silent, NOWHERE, SHALLOW)
    assert found == Measured(unsupported={"every operation": "the engine does not declare s3"})


def test_who_works_late_anywhere_is_measured_once_more_and_patiently_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, bool]] = []

    def measured_on(bench: Bench, store: Store, part: Part, operations: Any) -> Generator[Begun, None, Measured]:
        asked.append((part.ground, part.patient))
        yield from ()
        if part.ground == "optimized" and not part.patient:
            raise WorksLate("update")
        return Measured({("update", part.ground): []})

    monkeypatch.setattr("cost_budgets.measuring._measured_on", measured_on)
    silent: Any = Silent()
    found = measure(silent, NOWHERE, SHALLOW, names=["update"])
    grounds = ["grown", "optimized", "branched", "wide"]
    assert asked == [("grown", False), ("optimized", False), *((ground, True) for ground in grounds)]
    assert [ground for _, ground in found.points] == grounds


@pytest.mark.parametrize("engine", ["reference", "mutant:works-after-the-answer"])
def test_several_processes_find_what_one_finds(engine: str) -> None:
    few = Profile(depths=(2, 3), merges=(2,), crashes=(), branches=(2,))
    names = ("insert-node", "merge-fast-forward", "warm-read")
    told: dict[int, list[str]] = {1: [], 2: []}
    one, two = (measure_at_once(engine, "moto", few, names=names, jobs=jobs, told=told[jobs].append) for jobs in (1, 2))
    assert one[0].name == two[0].name == ("omniref" if engine == "reference" else engine)
    assert list(one[1].points) == list(two[1].points)
    for key, points in one[1].points.items():
        for first, second in zip(points, two[1].points[key], strict=True):
            assert (first.variables, first.tally.verbs) == (second.variables, second.tally.verbs), key
    assert sorted(told[1]) == sorted(told[2]) and len(told[1]) == sum(map(len, one[1].points.values()))


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_engine_that_cannot_be_started_ends_a_measurement_in_words(jobs: int) -> None:
    with pytest.raises((SweepBroken, AdapterFault), match="there is no command"):
        measure_at_once("cmd:./no-such-driver", "moto", FEW, names=NAMES, jobs=jobs)
