"""The reference engine within its budgets, the costly ones not; on moto, behind the gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from conformance.audit.names import RECOVERY_DIR
from cost_budgets.budgets import read_budgets
from cost_budgets.judging import judge
from cost_budgets.measuring import PAGE_KEYS, SHALLOW, Point, measure
from cost_budgets.tripwires import COSTLY, trip
from failpoints.workshop import bench_at
from fixtures.stores.catalog import Store, running

pytestmark = [pytest.mark.s3, pytest.mark.xdist_group("cost")]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running("moto", page_keys=PAGE_KEYS) as found:
        yield found


@pytest.mark.requirement("COST-01", "COST-02", "COST-03", "COST-04", "COST-05", "COST-06", "COST-07", "COST-08")
def test_the_reference_keeps_every_budget_and_costs_the_same_twice(store: Store) -> None:
    chosen = ("cold-insert-node", "insert-node", "warm-read", "merge-fast-forward", "cold-open-pending")
    with bench_at(store, "reference") as bench:
        measured = measure(bench, store, SHALLOW)
        again = measure(bench, store, SHALLOW, names=chosen)
    lines = judge(measured, read_budgets())
    assert [line.as_json() for line in lines if line.verdict != "ok"] == []
    assert {line.operation for line in lines} == read_budgets().keys()
    assert [
        point.tally.unclassified for points in measured.points.values() for point in points if point.tally.unclassified
    ] == []
    same = [key for key in again.points if key[0] in ("warm-read", "cold-open-pending") or key[1] == "optimized"]
    assert {name for name, _ in same} == set(chosen)
    for key in same:
        assert [counted(point) for point in measured.points[key]] == [counted(point) for point in again.points[key]]


def counted(point: Point) -> Counter[tuple[str, str, str]]:
    """What a point is made of, but for sidecars: a writer that is slow puts its own anew, so that nobody takes it for
    dead, and how slow it is depends on the machine."""
    return Counter(
        (each.verb, each.role, each.table)
        for each in point.tally.exchanges
        if each.role != "sidecar" and RECOVERY_DIR not in each.prefix
    )


@pytest.mark.parametrize("name", COSTLY)
def test_a_costly_engine_breaks_the_budgets_that_name_it(store: Store, name: str) -> None:
    budgets = read_budgets()
    named = [operation for operation, budget in budgets.items() if name in budget.tripwires]
    quick = [operation for operation in QUICK_ONES if operation in named]
    assert quick, f"no quick operation has a budget that names {name}"
    spared = [operation for operation in QUICK_ONES if operation not in named]
    tripped = trip(store, name, operations=[*quick, *spared])
    assert tripped.broken == set(quick), tripped


QUICK_ONES = ("warm-read", "repeat-read", "insert-node", "branch-create", "cold-open-read-only")
