"""The stage of a pair: its graph, built once by the engine and put up for every schedule, and the processes on it.

with Stage(bench, store, prepare(bench, store, pair)) as stage:
    stage.begin()                         # the graph as it was, where nobody has seen it otherwise
    handle = stage.driver("first").engine.open(stage.uri)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self

from conformance.model import Model
from failpoints.baseline import build
from failpoints.drivers import Driver, Drivers
from failpoints.gate import WRITE_VERBS, Armed, Exchange, GateBusy, GateTimeout, Rule
from failpoints.oracle import Before, look
from failpoints.pairs.pairs import Pair
from failpoints.steps import MAIN, Step
from failpoints.workshop import Bench
from failpoints.world import attempt
from fixtures.forge import Forge, Photo
from fixtures.stores.catalog import Store

_LOOK_SECONDS: Final = 0.05


class NoSuchMeeting(Exception):
    """What a pair is about does not come to be with this engine, and need not: nobody dies where somebody is to die, or
    whoever comes after waits for a recovery."""


@dataclass(frozen=True)
class Dead:
    """An operation that somebody died in: the step, by its number, and whether a HEAD had moved."""

    operation: str
    number: int
    moved: bool


@dataclass(frozen=True)
class Ground:
    """The graph of a pair before it begins. `crashed` is what those left who died after that.

    `dead` are their operations, by the sidecars that they left.
    """

    pair: Pair
    uri: str
    env: Mapping[str, str] = field(repr=False)
    model: Model | None = field(repr=False)
    photo: Photo = field(repr=False)
    crashed: Photo | None = field(default=None, repr=False)
    dead: tuple[Dead, ...] = ()

    @property
    def is_portable(self) -> bool:
        """Whether a copy elsewhere is the same graph: branches and sidecars hold the address that they were made at."""
        return self.crashed is None and (self.model is None or self.model.branch_list() == [MAIN])


class Stage:
    """A pair on a bench: where its graph is put for every schedule, and the processes that play on it.

    No process may see a graph whose time went back. A graph that is portable is put at a new address every time, and
    the processes stay; any other one is put back where it was, and everybody is new.
    """

    def __init__(self, bench: Bench, store: Store, ground: Ground) -> None:
        self.bench = bench
        self.ground = ground
        self._store = store
        self._uri = ground.uri
        self._drivers: dict[str, Driver] = {}
        # The longest that a lane has taken by itself.
        self.lane_seconds_max = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._dismiss()

    @property
    def uri(self) -> str:
        """Where the graph is now."""
        return self._uri

    def begin(self) -> None:
        """Put the graph as it was, where nobody has seen it otherwise."""
        if self.ground.is_portable:
            self._store.remove(self._uri)
            self._uri = self._store.fresh_root()
        else:
            self._uri = self.ground.uri
            self._dismiss()
        self.bench.gate.settle()
        # What earlier schedules asked for is of no use any more. Whoever is just being started keeps it a while longer.
        with suppress(GateBusy):
            self.bench.gate.reset()
        self._put(self.ground.photo)

    def crash(self) -> None:
        """Time goes on: somebody has written and died."""
        if self.ground.crashed is not None:
            self._put(self.ground.crashed)

    def driver(self, role: str) -> Driver:
        """The process that plays a role."""
        if role not in self._drivers:
            self._drivers[role] = self._supply(role).take()
        return self._drivers[role]

    def _supply(self, role: str) -> Drivers:
        """Where two engines share a graph, the second lane is the peer's."""
        return self.bench.peers if role == "second" else self.bench.drivers

    def replace(self, role: str) -> None:
        """A process that is of no use any more."""
        driver = self._drivers.pop(role)
        driver.kill()
        self._supply(role).done(driver)

    def _put(self, photo: Photo) -> None:
        Forge(self._uri, dict(self.ground.env)).restore(photo)

    def _dismiss(self) -> None:
        for role in list(self._drivers):
            self.replace(role)


# -- preparing ---------------------------------------------------------------------------------------------------------


def prepare(bench: Bench, store: Store, pair: Pair) -> Ground:
    """Have the engine make the graph of a pair, and photograph it."""
    uri = store.fresh_root()
    forge = Forge(uri, dict(store.env))
    if not pair.begins_with_a_graph:
        return Ground(pair, uri, store.env, None, forge.photograph(""))
    with a_driver(bench) as driver:
        baseline = build(driver.engine, uri, store.env, pair.setup, schema=pair.schema)
    ground = Ground(pair, uri, store.env, baseline.model, baseline.photo)
    if not pair.crash:
        return ground
    photos, dead = [], []
    heads = {name: len(baseline.model.commits(name)) for name in baseline.model.branch_list()}
    for number, step in enumerate(pair.crash):
        photos.append(_left_by(bench, ground, step))
        scene = look(Before(uri, store.env, baseline.model, step, heads, frozenset()))
        dead += [Dead(operation, number, operation in scene.moved) for operation in sorted(scene.sidecars)]
    crashed = together(baseline.photo, photos)
    forge.restore(crashed)
    return replace(ground, crashed=crashed, dead=tuple(dead))


def _left_by(bench: Bench, ground: Ground, step: Step) -> Photo:
    """Kill a writer in front of one of its writes; the graph as it leaves it."""
    forge = Forge(ground.uri, dict(ground.env))
    forge.restore(ground.photo)
    role, nth = ground.pair.crash_before
    with a_driver(bench) as driver, ThreadPoolExecutor(1) as thread:
        handle = driver.engine.open(ground.uri)
        armed = bench.gate.arm(Rule("hold", owner=driver.owner, verbs=WRITE_VERBS, roles=(role,), nth=nth))
        ending = thread.submit(attempt, handle, step)
        try:
            if held_in(armed, ending) is None:
                raise NoSuchMeeting(f"{step['do']} was to die in front of {role} {nth}, and ended {ending.result()}")
            driver.kill()
            armed.drop()
        finally:
            armed.disarm()
    return forge.photograph("")


def together(before: Photo, left: Sequence[Photo]) -> Photo:
    """What several writers leave who were at work at the same time, each on objects of its own."""
    stats, contents = dict(before.stats), dict(before.contents)
    changed: set[str] = set()
    for photo in left:
        gone = {name for name in before.contents if name not in photo.contents}
        mine = gone | {name for name, content in photo.contents.items() if before.contents.get(name) != content}
        if mine & changed:
            raise NoSuchMeeting(f"writers of different tables both write {min(mine & changed)}")
        changed |= mine
        for name in mine:
            if name in gone:
                del stats[name], contents[name]
            else:
                stats[name], contents[name] = photo.stats[name], photo.contents[name]
    return Photo(before.prefixes, stats, contents)


@contextmanager
def a_driver(bench: Bench) -> Iterator[Driver]:
    driver = bench.drivers.take()
    try:
        yield driver
    finally:
        driver.kill()
        bench.drivers.done(driver)


def held_in(armed: Armed, lane: Future[Any]) -> Exchange | None:
    """Wait until a lane is held; the request that it is held in, or None if it came to its end without that."""
    while True:
        is_over = lane.done()
        try:
            return armed.wait(_LOOK_SECONDS)
        except GateTimeout:
            if is_over:
                return None
