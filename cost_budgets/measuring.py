"""Measures every operation at several depths: each graph grows once, and is measured on its way.

    found = measure(bench, store, FULL)
    found.points["insert-node", "grown"]      at 10, 50, 80 and 200 commits

So a whole measurement costs a few hundred commits, and no graph is built twice. Nor does one depend on another:
`measure_at_once` measures on several of them at the same time, in processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from conformance.adapters import AdapterFault, EngineError, Unsupported
from conformance.adapters.hosting import as_process
from conformance.audit.datasets import DatasetMissing, DatasetMoved, DatasetUnreadable
from conformance.judge.engine import Engine, Hello
from conformance.runner.redaction import words_without_secrets
from cost_budgets.counters import Tally
from cost_budgets.operations import GROUNDS, OPERATIONS, Ground, Operation
from cost_budgets.places import GrowingGraph, WorksLate
from failpoints.gate import GateError
from failpoints.workshop import Bench, SweepBroken, bench_at, blaming, check_store, swept_in_processes
from fixtures.forge import ForgeError
from fixtures.stores.catalog import S3, Store


@dataclass(frozen=True)
class Profile:
    """At which depths operations are measured; merges, crashes and numbers of branches, payloads, rows of a load and
    tables of a catalog have their own. A graph that is never optimized is measured at some depths `more`: what its
    engine tidies up now and then goes up and down there, and several deep points are needed to see the floor of that.

    An operation is `watched` where each graph is deepest: does the engine work on after it was quiet?
    """

    depths: tuple[int, ...]
    merges: tuple[int, ...]
    crashes: tuple[int, ...]
    branches: tuple[int, ...]
    payloads: tuple[int, ...] = ()
    loads: tuple[int, ...] = ()
    tables: tuple[int, ...] = ()
    more: tuple[int, ...] = ()
    watched: bool = False

    def of(self, operation: Operation, ground: Ground) -> tuple[int, ...]:
        usual = {"depths": self.depths, "merges": self.merges, "crashes": self.crashes}[operation.depths]
        match ground:
            case "branched":
                return self.branches
            case "payloads":
                return self.payloads
            case "loads":
                return self.loads
            case "wide":
                return self.tables
            case "grown" if operation.depths == "depths":
                return self.depths + self.more
        return usual


# Loads and catalogs of these sizes, wherever there are any.
_LOADS: Final = (16, 64, 256)
_TABLES: Final = (6, 24)
FULL: Final = Profile(
    (10, 50, 80, 200),
    merges=(5, 20, 50, 80),
    crashes=(5, 20, 60, 100),
    branches=(4, 8, 12),
    payloads=(4, 8, 12, 16),
    loads=_LOADS,
    tables=_TABLES,
    more=(227, 254),
    watched=True,
)
QUICK: Final = Profile((5, 15, 30), (5, 15, 30), (5, 15), (2, 4, 6), (2, 4, 8), _LOADS, _TABLES, watched=True)
# As few as show growth on a straight line, for every test run.
SHALLOW: Final = Profile((4, 9, 14), (4, 9, 14), (4, 9), (2, 4, 6), (2, 4, 6), _LOADS, _TABLES)
# Keys on a page of a listing, where a store can be told: short pages show who lists more with every commit.
PAGE_KEYS: Final = 10
# What an engine does when it is slow must not be counted: the reference puts a sidecar anew that has become old.
EXACT: Final = {"OMNIREF_RENEW_SECONDS": "3600"}
PROFILES: Final = {"full": FULL, "quick": QUICK}


@dataclass(frozen=True)
class Point:
    """One measurement: the variables as they were, and what was counted."""

    variables: Mapping[str, float]
    tally: Tally


@dataclass
class Measured:
    """Everything that was measured: points by operation and graph, what the engine cannot do, and what went wrong."""

    points: dict[tuple[str, Ground], list[Point]] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, operation: Operation, ground: Ground, point: Point) -> None:
        self.points.setdefault((operation.name, ground), []).append(point)

    def take(self, other: Measured) -> None:
        """Add what was found on another graph, and why an operation was given up there."""
        self.points |= other.points
        for mine, theirs in ((self.unsupported, other.unsupported), (self.failed, other.failed)):
            for name, why in theirs.items():
                mine[name] = why if mine.get(name, why) == why else f"{mine[name]}; {why}"


def counting(store: Store, engine: str, *, timeout_seconds: float = 120.0) -> AbstractContextManager[Bench]:
    """A gate and drivers at a store, for an engine whose requests are counted."""
    return bench_at(replace(store, env={**store.env, **EXACT}), engine, timeout_seconds=timeout_seconds)


@dataclass(frozen=True)
class Part:
    """Operations on one graph: nothing of it depends on any other graph."""

    ground: Ground
    profile: Profile
    names: tuple[str, ...]
    patient: bool = False


@dataclass(frozen=True)
class Begun:
    """A measurement that begins now."""

    what: str
    accuses: ClassVar[bool] = False


@dataclass(frozen=True)
class PartMeasured:
    """What was found on one graph, and how the engine calls itself. From one that `works_late` nothing is kept: what
    was counted in haste may be another operation's."""

    ground: Ground
    hello: Hello
    found: Measured = field(default_factory=Measured)
    works_late: bool = False
    accuses: ClassVar[bool] = False  # Whatever could not be measured, the store was asked about already.


Told = Callable[[str], object]
Results = Generator[Begun | PartMeasured, None, None]


def measure(
    bench: Bench,
    store: Store,
    profile: Profile,
    *,
    names: Iterable[str] | None = None,
    told: Told = lambda name: None,
) -> Measured:
    """Measure operations, all of them by default. `told` hears of each before it is counted."""

    def one_after_the_other(parts: Sequence[Part]) -> Results:
        for part in parts:
            yield from measure_part(bench, store, part)

    return _put_together(one_after_the_other, profile, names, told)[1]


def measure_at_once(
    engine: str,
    store: str,
    profile: Profile,
    *,
    names: Iterable[str] | None = None,
    jobs: int,
    timeout_seconds: float = 120.0,
    told: Told = lambda name: None,
) -> tuple[Hello, Measured]:
    """The same in so many processes, each with a store of that name, a gate and drivers of its own.

    The engine is asked who it is before any of that is started: many do not get further.
    """
    check_store(store)
    with closing(Engine.connect(as_process(engine), env={}, timeout_seconds=timeout_seconds)) as connected:
        hello = connected.hello
    if S3 not in hello.capabilities:
        return hello, Measured(unsupported=dict(_NO_S3))

    def in_processes(parts: Sequence[Part]) -> Results:
        how: dict[str, Any] = {"timeout_seconds": timeout_seconds, "page_keys": PAGE_KEYS, "more_env": EXACT}
        processes = min(jobs, len(parts))
        return swept_in_processes(measure_part, parts, engine=engine, store=store, jobs=processes, **how)

    return _put_together(in_processes, profile, names, told)


def _put_together(
    measured: Callable[[Sequence[Part]], Results], profile: Profile, names: Iterable[str] | None, told: Told
) -> tuple[Hello, Measured]:
    """All parts, in the order of the graphs. Who works late anywhere is measured once more, and patiently."""
    chosen = tuple(OPERATIONS if names is None else names)
    grounds = {ground for name in chosen for ground in OPERATIONS[name].grounds}
    parts = [Part(ground, profile, chosen) for ground in GROUNDS if ground in grounds]
    found = _all_of(measured(parts), told)
    if any(part.works_late for part in found.values()):
        found = _all_of(measured([replace(part, patient=True) for part in parts]), told)
    whole = Measured()
    for part in parts:
        whole.take(found[part.ground].found)
    # Who can do it on one graph has an answer to give on the others.
    for name in [name for name, _ in whole.points if name in whole.unsupported]:
        whole.failed.setdefault(name, whole.unsupported.pop(name))
    return found[parts[0].ground].hello, whole


def _all_of(results: Results, told: Told) -> dict[Ground, PartMeasured]:
    """What was found on each graph, until somebody works late."""
    found: dict[Ground, PartMeasured] = {}
    with closing(results):
        for each in results:
            if isinstance(each, Begun):
                told(each.what)
                continue
            found[each.ground] = each
            if each.works_late:
                break
    return found


def measure_part(bench: Bench, store: Store, part: Part) -> Results:
    """Measure on one graph, and say of each operation that it begins."""
    driver = bench.drivers.take()
    hello, supports = driver.engine.hello, driver.engine.supports
    bench.drivers.done(driver)
    found = Measured()
    if S3 not in hello.capabilities:
        # It would take the address for that of a directory, and write wherever it was started.
        yield PartMeasured(part.ground, hello, Measured(unsupported=dict(_NO_S3)))
        return
    able = []
    for operation in [OPERATIONS[name] for name in part.names if part.ground in OPERATIONS[name].grounds]:
        lacked = [need for need in sorted(operation.needs) if not supports(need)]
        lacked_there = [need for need in _NEEDS.get(part.ground, ()) if not supports(need)]
        if lacked:
            found.unsupported[operation.name] = f"the engine does not declare {lacked[0]}"
        elif lacked_there:
            name = f"{operation.name} {_WHERE[part.ground]}"
            found.unsupported[name] = f"the engine does not declare {lacked_there[0]}"
        else:
            able.append(operation)
    if able:
        with blaming(store), _named(part.ground):
            try:
                found.take((yield from _measured_on(bench, store, part, able)))
            except WorksLate:
                yield PartMeasured(part.ground, hello, works_late=True)
                return
    yield PartMeasured(part.ground, hello, found)


_NO_S3: Final[Mapping[str, str]] = {"every operation": "the engine does not declare s3"}
# What a graph is made with, and how it is called where that is missing.
_NEEDS: Final[Mapping[Ground, tuple[str, ...]]] = {
    "optimized": ("optimize",),
    "branched": ("branch_create", "optimize"),
    "loads": ("optimize",),
    "wide": ("optimize",),
}
_WHERE: Final[Mapping[Ground, str]] = {
    "optimized": "after optimize",
    "branched": "among branches",
    "loads": "with more rows",
    "wide": "in a wide catalog",
}


# What an engine, its adapter or the store can end a measurement with.
_BROKEN: Final = (
    SweepBroken,
    EngineError,
    AdapterFault,
    Unsupported,
    DatasetMissing,
    DatasetUnreadable,
    DatasetMoved,
    ForgeError,
    GateError,
)


@contextmanager
def _named(ground: Ground) -> Iterator[None]:
    """What ends a measurement, with the graph on which it was made."""
    try:
        yield
    except _BROKEN as error:
        raise SweepBroken(f"the {ground} graph: {error}") from error


def _measured_on(
    bench: Bench, store: Store, part: Part, operations: Sequence[Operation]
) -> Generator[Begun, None, Measured]:
    found, left, ground, profile = Measured(), list(operations), part.ground, part.profile
    steps = sorted({depth for operation in operations for depth in profile.of(operation, ground)})
    if not steps:
        return found
    with ExitStack() as stack:
        try:
            graph = GrowingGraph(bench, store, ground, patient=part.patient)
            stack.callback(graph.close)
            graph.begin()
        except _BROKEN as error:
            _give_up(store, found, left, f"the {ground} graph could not be made: {error}", error)
            return found
        for step in steps:
            try:
                _grow(graph, step)
            except _BROKEN as error:
                _give_up(store, found, left, f"the {ground} graph could not be made {step} deep: {error}", error)
                break
            for operation in [each for each in left if step in profile.of(each, ground)]:
                yield Begun(f"{operation.name}, {ground} at {step}")
                is_last = step == profile.of(operation, ground)[-1]
                try:
                    variables, tally = graph.count(operation, watched=profile.watched and is_last)
                    found.add(operation, ground, Point({**variables, **graph.sizes()}, tally))
                except _BROKEN as error:
                    _give_up(store, found, [operation], str(error), error)
                    left.remove(operation)
    return found


def _give_up(store: Store, found: Measured, operations: Sequence[Operation], why: str, error: Exception) -> None:
    """Say which operations are not measured any further; what was measured stays. A store that is gone ends it all.

    Who has done something on this graph cannot be without it: `unsupported` is an answer to the first call only.
    """
    if store.silence() is not None:
        raise error
    is_lacking = isinstance(error, Unsupported)
    for operation in operations:
        could = any(name == operation.name for name, _ in found.points)
        where = found.unsupported if is_lacking and not could else found.failed
        where.setdefault(operation.name, words_without_secrets(why))


def _grow(graph: GrowingGraph, step: int) -> None:
    match graph.ground:
        case "branched":
            graph.branch_out(step)
        case "payloads":
            graph.fill(step)
        case "loads":
            graph.load_rows = step
        case "wide":
            graph.widen(step)
        case "crashed":
            graph.crash_at(step)
        case _:
            graph.grow(step)
