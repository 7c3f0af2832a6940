"""The pair sweep bites: engines that lose a race are caught by one fixed schedule, in which the reference is right.

The graphs are built by the reference, so that what is found is the race and nothing that came before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from conformance.adapters import AdapterFault
from conformance.suites.test_faults_races import SCHEDULES
from failpoints.pairs.gaps import RECLAIM
from failpoints.pairs.pairs import PAIRS, Pair, Side
from failpoints.pairs.schedule import Hold, ScheduleResult, run
from failpoints.pairs.stage import Ground, Stage, prepare
from failpoints.pairs.sweep import Unit, run_unit
from failpoints.pairs.tests.broken import engine
from failpoints.workshop import Bench, bench_at
from fixtures.stores.catalog import S3, Store
from fixtures.stores.moto import MotoStore

pytestmark = pytest.mark.s3
PERSON = "nodes/40d76f1f51639ec0"


@dataclass(frozen=True)
class Caught:
    """A broken engine, and the schedule that shows it."""

    mutant: str
    pair: str
    held: Side
    hold: Hold
    requirement: str
    words: str


def at_sidecar(mutant: str, pair: str, requirement: str, words: str) -> Caught:
    """Held when everything is planned and nothing has moved yet."""
    return Caught(mutant, pair, "first", Hold(0, "PUT", "sidecar", 1), requirement, words)


CAUGHT = (
    Caught(
        "update-lost",
        "update-update-row",
        "first",
        Hold(0, "GET", "table data", 1, table=PERSON),
        "PUB-07",
        "no serial order",
    ),
    at_sidecar("schema-apply-does-not-look-again", "schema-branch-create", "PUB-21", "the graph cannot be read"),
    at_sidecar("edge-without-endpoint-check-at-publish", "edge-endpoint", "PUB-07", "no serial order"),
    Caught(
        "optimize-publishes-over-a-write",
        "insert-optimize",
        "second",
        Hold(0, "PUT", "table index", 1, table=PERSON),
        "PUB-07",
        # Lost, or in no order: that depends on how many commits the optimize made.
        "the mutate of the first lane",
    ),
    Caught(
        "lost-writer-drops-its-sidecar",
        "write-open",
        "first",
        Hold(0, "PUT", "table version", 2),
        "PUB-21",
        "no sidecar covers it",
    ),
    Caught(
        "publish-per-table",
        "write-refresh",
        "first",
        Hold(0, "PUT", "manifest version", 1, when="after", table="__manifest"),
        "PUB-01",
        "a reader meanwhile sees a graph in no order",
    ),
    at_sidecar("merge-does-not-recheck", "merge-endpoint", "PUB-07", "no serial order"),
)


class Reference:
    """The reference on all schedules, with the graphs that it has built; pairs with the same beginnings share one."""

    def __init__(self, bench: Bench, store: Store) -> None:
        self._bench = bench
        self._store = store
        self._grounds: dict[str, Ground] = {}
        self._stage: Stage | None = None

    def ground(self, pair: Pair) -> Ground:
        beginnings = repr((pair.setup, pair.crash, pair.crash_before))
        if beginnings not in self._grounds:
            self._grounds[beginnings] = prepare(self._bench, self._store, pair)
        return replace(self._grounds[beginnings], pair=pair)

    def run(self, caught: Caught) -> ScheduleResult:
        ground = self.ground(PAIRS[caught.pair])
        if self._stage is None:
            self._stage = Stage(self._bench, self._store, ground)
        self._stage.ground = ground
        return run(self._stage, caught.held, caught.hold)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the held lane in these schedules: a slow machine is no reason to let that go on."""
    monkeypatch.setattr("failpoints.pairs.schedule.PATIENCE_SECONDS", 120.0)


@pytest.fixture(scope="module")
def store(moto_store: MotoStore) -> Store:
    return Store("moto", moto_store.env, moto_store.fresh_root, lambda uri: None, frozenset({S3}))


@pytest.fixture(scope="module")
def reference(store: Store) -> Iterator[Reference]:
    with bench_at(store, "reference") as bench:
        yield Reference(bench, store)


@pytest.mark.parametrize("caught", CAUGHT, ids=lambda caught: caught.mutant)
def test_a_broken_engine_is_caught_where_the_reference_is_right(
    store: Store, reference: Reference, caught: Caught
) -> None:
    good = reference.run(caught)
    assert (good.verdict, good.reached) == ("ok", True), good.because

    ground = reference.ground(PAIRS[caught.pair])
    with bench_at(store, f"mutant:{caught.mutant}") as bench, Stage(bench, store, ground) as stage:
        bad = run(stage, caught.held, caught.hold)

    assert (bad.verdict, bad.reached) == ("wrong", True)
    assert caught.words in bad.because and caught.requirement in bad.ids, (bad.ids, bad.because)


@pytest.mark.parametrize("mutant", ["retry-with-the-old-parent", "blind-manifest-put"])
def test_two_schedules_are_enough_for_an_engine_that_loses_its_publish(store: Store, mutant: str) -> None:
    """What `touchstone run --suite faults` says of PUB-08 and LIN-06 rests on these."""
    unit = Unit(PAIRS["insert-insert-tables"], "first", SCHEDULES)
    with bench_at(store, f"mutant:{mutant}") as bench:
        results = [each for each in run_unit(bench, store, unit) if isinstance(each, ScheduleResult)]
    (bad,) = [each for each in results if each.verdict == "wrong"]
    assert len(results) == SCHEDULES and {"PUB-08", "PUB-20"} & set(bad.ids), (bad.ids, bad.because)


def test_of_two_that_open_none_may_fail(store: Store, reference: Reference) -> None:
    pair, hold = PAIRS["open-open"], Hold(0, "PUT", "manifest data", 1, table="__manifest")
    with bench_at(store, engine("losing-open")) as bench, Stage(bench, store, reference.ground(pair)) as stage:
        bad = run(stage, "first", hold)
    assert (bad.verdict, bad.ids) == ("wrong", ("REC-19",)), bad.because
    assert "neither may fail" in bad.because and "the open lost" in bad.because


def test_whoever_looks_and_dies_is_one_wrong_schedule_and_not_the_end(store: Store, reference: Reference) -> None:
    pair, hold = PAIRS["write-refresh"], Hold(0, "PUT", "sidecar", 1)
    with bench_at(store, engine("dying-reader")) as bench, Stage(bench, store, reference.ground(pair)) as stage:
        results = [run(stage, "first", hold) for _ in range(2)]
    assert [(each.verdict, each.ids, each.reached) for each in results] == [("wrong", ("PUB-21",), True)] * 2
    assert all("whoever looks at the graph breaks down" in each.because for each in results)
    roots = {each["key"].partition("/")[0] for each in (results[1].trace or {})["requests"] if each["key"]}
    assert len(roots) == 1, "a trace holds the requests of its own schedule, and of no earlier one"


def test_a_call_that_was_done_and_cannot_be_seen_is_no_failure(store: Store, reference: Reference) -> None:
    pair, hold = PAIRS["insert-insert-tables"], Hold(0, "PUT", "sidecar", 1)
    with bench_at(store, engine("blind-writer")) as bench, Stage(bench, store, reference.ground(pair)) as stage:
        found = run(stage, "first", hold)
    assert (found.verdict, found.outcome) == ("ok", "unknown"), found.because


def test_a_driver_that_gives_up_says_nothing_about_the_engine(store: Store, reference: Reference) -> None:
    pair, hold = PAIRS["write-refresh"], Hold(0, "PUT", "sidecar", 1)
    with (
        bench_at(store, engine("giving-up-reader")) as bench,
        Stage(bench, store, reference.ground(pair)) as stage,
        pytest.raises(AdapterFault) as raised,
    ):
        run(stage, "first", hold)
    assert raised.value.reason == "gave_up"


def test_a_reader_that_is_refused_while_somebody_writes_is_wrong(store: Store, reference: Reference) -> None:
    pair, hold = PAIRS["write-refresh"], Hold(0, "PUT", "table version", 1, when="after")
    with bench_at(store, engine("refusing-reader")) as bench, Stage(bench, store, reference.ground(pair)) as stage:
        bad = run(stage, "first", hold)
    assert (bad.verdict, bad.ids) == ("wrong", ("SNP-09", "PUB-01")), bad.because
    assert "a reader is refused meanwhile: conflict/busy" in bad.because


def test_an_engine_that_reclaims_forks_by_the_manifest_alone_shows_a_gap_and_is_not_blamed(
    store: Store, reference: Reference
) -> None:
    """BRA-15 asks for no more; what that costs a first write of another process, the catalog knows."""
    pair, hold = PAIRS["first-write-cleanup"], Hold(0, "PUT", "table ref", 1, when="after")
    with (
        bench_at(store, "mutant:cleanup-ignores-sidecars") as bench,
        Stage(bench, store, reference.ground(pair)) as stage,
    ):
        lawful = run(stage, "first", hold)
    assert (lawful.verdict, lawful.gap, lawful.reached) == ("gap", RECLAIM, True), lawful.because
