"""The pair sweep bites: engines that lose a race are caught by one fixed schedule, in which the reference is right.

The graphs are built by the reference, so that what is found is the race and nothing that came before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from failpoints.pairs.pairs import PAIRS, Pair, Side
from failpoints.pairs.schedule import Hold, ScheduleResult, run
from failpoints.pairs.stage import Ground, Stage, prepare
from failpoints.workshop import Bench, bench_at
from fixtures.stores.catalog import Store
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
        "is lost",
    ),
    Caught(
        "lost-writer-drops-its-sidecar",
        "write-open",
        "first",
        Hold(0, "PUT", "table version", 2),
        "PUB-21",
        "no sidecar covers it",
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
        beginnings = repr(pair.setup)
        if beginnings not in self._grounds:
            self._grounds[beginnings] = prepare(self._bench, self._store, pair)
        return replace(self._grounds[beginnings], pair=pair)

    def run(self, caught: Caught) -> ScheduleResult:
        ground = self.ground(PAIRS[caught.pair])
        if self._stage is None:
            self._stage = Stage(self._bench, self._store, ground)
        self._stage.ground = ground
        return run(self._stage, caught.held, caught.hold)


@pytest.fixture(scope="module")
def store(moto_store: MotoStore) -> Store:
    return Store("moto", moto_store.env, moto_store.fresh_root, lambda uri: None)


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
