"""Measures every operation at several depths: each graph grows once, and is measured on its way.

    found = measure(bench, store, FULL)
    found.points["insert-node", "grown"]      at 10, 50, 80 and 200 commits

So a whole measurement costs a few hundred commits, and no graph is built twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cost_budgets.counters import Tally
from cost_budgets.operations import OPERATIONS, Ground, Operation
from cost_budgets.places import GrowingGraph
from failpoints.workshop import Bench, lacking
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


FULL: Final = Profile(depths=(10, 50, 80, 200), merges=(5, 20, 80), crashes=(5, 40), branches=(4, 8, 12))
QUICK: Final = Profile(depths=(5, 15, 30), merges=(5, 15), crashes=(5, 15), branches=(2, 4))
# Two depths are enough to see growth, and few enough for every test run.
SHALLOW: Final = Profile(depths=(4, 14), merges=(4, 12), crashes=(4,), branches=(2, 4))
PROFILES: Final = {"full": FULL, "quick": QUICK}


@dataclass(frozen=True)
class Point:
    """One measurement: the variables as they were, and what was counted."""

    variables: Mapping[str, float]
    tally: Tally


@dataclass
class Measured:
    """Everything that was measured: points by operation and graph, and what the engine cannot do."""

    points: dict[tuple[str, Ground], list[Point]] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)

    def add(self, operation: Operation, ground: Ground, point: Point) -> None:
        self.points.setdefault((operation.name, ground), []).append(point)


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
        if ground == "optimized" and "optimize" in missing:
            continue
        of_ground = [operation for operation in able if ground in operation.grounds]
        if of_ground:
            _measure_on(bench, store, profile, ground, of_ground, found, told)
    return found


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
    try:
        for step in sorted({depth for operation in operations for depth in profile.of(operation)}):
            _grow(graph, step)
            for operation in operations:
                if step in profile.of(operation):
                    told(f"{operation.name}, {ground} at {step}")
                    found.add(operation, ground, Point(*graph.count(operation)))
            if ground == "crashed":
                graph.recovered()
    finally:
        graph.close()


def _grow(graph: GrowingGraph, step: int) -> None:
    match graph.ground:
        case "branched":
            graph.branch_out(step)
        case "crashed":
            graph.crash_at(step)
        case _:
            graph.grow(step)
