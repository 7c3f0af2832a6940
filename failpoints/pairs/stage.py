"""The stage of a pair: its graph, built once by the engine and put up for every schedule, and the processes on it.

with Stage(bench, store, prepare(bench, store, pair)) as stage:
    stage.begin()                         # the graph as it was, where nobody has seen it otherwise
    handle = stage.driver("first").engine.open(stage.uri)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self

from conformance.model import Model
from failpoints.baseline import SetupFailed, build
from failpoints.drivers import Driver
from failpoints.gate import Armed, GateTimeout, Rule
from failpoints.pairs.pairs import Pair
from failpoints.steps import MAIN, Step
from failpoints.workshop import Bench
from failpoints.world import attempt
from fixtures.forge import Forge, Photo
from fixtures.stores.catalog import Store

_WRITES: Final = ("PUT", "COPY", "COMPLETE_UPLOAD")
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Ground:
    """The graph of a pair before it begins. `crashed` is what somebody left who died after that."""

    pair: Pair
    uri: str
    env: Mapping[str, str] = field(repr=False)
    model: Model | None = field(repr=False)
    photo: Photo = field(repr=False)
    crashed: Photo | None = field(default=None, repr=False)

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
        self._put(self.ground.photo)

    def crash(self) -> None:
        """Time goes on: somebody has written and died."""
        if self.ground.crashed is not None:
            self._put(self.ground.crashed)

    def driver(self, role: str) -> Driver:
        """The process that plays a role."""
        if role not in self._drivers:
            self._drivers[role] = self.bench.drivers.take()
        return self._drivers[role]

    def replace(self, role: str) -> None:
        """A process that is of no use any more."""
        driver = self._drivers.pop(role)
        driver.kill()
        self.bench.drivers.done(driver)

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
    if pair.crash is None:
        return ground
    _crash(bench, uri, pair.crash, pair.crash_before)
    return replace(ground, crashed=forge.photograph(""))


def _crash(bench: Bench, uri: str, step: Step, before: tuple[str, int]) -> None:
    """Kill a writer in front of one of its writes."""
    role, nth = before
    with a_driver(bench) as driver, ThreadPoolExecutor(1) as thread:
        handle = driver.engine.open(uri)
        armed = bench.gate.arm(Rule("hold", owner=driver.owner, verbs=_WRITES, roles=(role,), nth=nth))
        ending = thread.submit(attempt, handle, step)
        try:
            if not is_held(armed, ending):
                raise SetupFailed(f"{step['do']} was to die in front of {role} {nth}, and ended {ending.result()}")
            driver.kill()
            armed.drop()
        finally:
            armed.disarm()


@contextmanager
def a_driver(bench: Bench) -> Iterator[Driver]:
    driver = bench.drivers.take()
    try:
        yield driver
    finally:
        driver.kill()
        bench.drivers.done(driver)


def is_held(armed: Armed, lane: Future[Any]) -> bool:
    """Wait until a lane is held; False if it came to its end without the request."""
    while True:
        try:
            armed.wait(_LOOK_SECONDS)
            return True
        except GateTimeout:
            if lane.done():
                return armed.hits > 0
