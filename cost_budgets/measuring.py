"""Measures every operation at several depths: each graph grows once, and is measured on its way.

    found = measure(bench, store, FULL)
    found.points["insert-node", "grown"]      at 10, 50, 80 and 200 commits

So a whole measurement costs a few hundred commits, and no graph is built twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from conformance.adapters import AdapterFault, EngineError
from conformance.audit.datasets import DatasetMissing, DatasetUnreadable
from cost_budgets.counters import Tally
from cost_budgets.operations import OPERATIONS, Ground, Operation
from cost_budgets.places import GrowingGraph
from failpoints.gate import GateError
from failpoints.workshop import Bench, SweepBroken, bench_at, lacking
from fixtures.forge import ForgeError
from fixtures.stores.catalog import Store


@dataclass(frozen=True)
class Profile:
    """At which depths operations are measured; merges, crashes and numbers of branches have their own."""

    depths: tuple[int, ...]
    merges: tuple[int, ...]
    crashes: tuple[int, ...]
    branches: tuple[int, ...]

    def of(self, operation: Operation) -> tuple[int, ...]:
        places: Mapping[str, tuple[int, ...]] = {
            "depths": self.depths,
            "merges": self.merges,
            "crashes": self.crashes,
            "branches": self.branches,
        }
        return places[operation.depths]


FULL: Final = Profile(depths=(10, 50, 80, 200), merges=(5, 20, 80), crashes=(5, 40, 100), branches=(4, 8, 12))
QUICK: Final = Profile(depths=(5, 15, 30), merges=(5, 15, 30), crashes=(5, 15), branches=(2, 4, 6))
# As few as show growth on a straight line, for every test run.
SHALLOW: Final = Profile(depths=(4, 9, 14), merges=(4, 9, 14), crashes=(4, 9), branches=(2, 4, 6))
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


def counting(store: Store, engine: str, *, timeout_seconds: float = 120.0) -> AbstractContextManager[Bench]:
    """A gate and drivers at a store, for an engine whose requests are counted."""
    return bench_at(replace(store, env={**store.env, **EXACT}), engine, timeout_seconds=timeout_seconds)


def measure(
    bench: Bench,
    store: Store,
    profile: Profile,
    *,
    names: Iterable[str] | None = None,
    told: Callable[[str], object] = lambda name: None,
) -> Measured:
    """Measure operations, all of them by default. `told` hears of each before it is counted."""
    chosen = [OPERATIONS[name] for name in (OPERATIONS if names is None else names)]
    found, able = Measured(), []
    missing = set(lacking(bench, sorted({"optimize", *(need for operation in chosen for need in operation.needs)})))
    for operation in chosen:
        lacked = sorted(missing & set(operation.needs))
        if lacked:
            found.unsupported[operation.name] = f"the engine does not declare {lacked[0]}"
        else:
            able.append(operation)
    for ground in ("grown", "optimized", "crashed", "branched"):
        of_ground = [operation for operation in able if ground in operation.grounds]
        if ground == "optimized" and "optimize" in missing:
            for operation in of_ground:
                found.unsupported[f"{operation.name} after optimize"] = "the engine does not declare optimize"
            continue
        if of_ground:
            with _blaming(store, ground):
                _measure_on(bench, store, profile, ground, of_ground, found, told)
    return found


# What an engine, its adapter or the store can end a measurement with.
_BROKEN: Final = (
    SweepBroken,
    EngineError,
    AdapterFault,
    DatasetMissing,
    DatasetUnreadable,
    ForgeError,
    GateError,
)


@contextmanager
def _blaming(store: Store, ground: Ground) -> Iterator[None]:
    """What ends a measurement: the store, if it does not answer, and else whoever was measured."""
    try:
        yield
    except _BROKEN as error:
        silence = store.silence()
        if silence is None:
            raise SweepBroken(f"the {ground} graph: {error}") from error
        message = f"the store '{store.name}' broke down: {silence}. This says nothing about the engine"
        raise SweepBroken(message) from error


def _measure_on(
    bench: Bench,
    store: Store,
    profile: Profile,
    ground: Ground,
    operations: Sequence[Operation],
    found: Measured,
    told: Callable[[str], object],
) -> None:
    graph = GrowingGraph(bench, store, ground)
    left = list(operations)
    try:
        for step in sorted({depth for operation in operations for depth in profile.of(operation)}):
            try:
                _grow(graph, step)
            except _BROKEN as error:
                _give_up(store, found, left, f"the {ground} graph could not be made {step} deep: {error}", error)
                return
            for operation in [each for each in left if step in profile.of(each)]:
                told(f"{operation.name}, {ground} at {step}")
                try:
                    found.add(operation, ground, Point(*graph.count(operation)))
                except _BROKEN as error:
                    _give_up(store, found, [operation], str(error), error)
                    left.remove(operation)
    finally:
        graph.close()


def _give_up(store: Store, found: Measured, operations: Sequence[Operation], why: str, error: Exception) -> None:
    """Say which operations are not measured any further; what was measured stays. A store that is gone ends it all."""
    if store.silence() is not None:
        raise error
    for operation in operations:
        found.failed.setdefault(operation.name, why)


def _grow(graph: GrowingGraph, step: int) -> None:
    match graph.ground:
        case "branched":
            graph.branch_out(step)
        case "crashed":
            graph.crash_at(step)
        case _:
            graph.grow(step)
