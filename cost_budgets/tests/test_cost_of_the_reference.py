"""The reference engine within its budgets, the costly ones not; on moto, behind the gate.

What takes minutes is left to `pytest -m slow cost_budgets` and `tox -e cost`: every operation, every costly engine, and
the depth at which the public engine was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

import pytest

from cost_budgets.budgets import read_budgets
from cost_budgets.counters import Tally
from cost_budgets.judging import Line, judge
from cost_budgets.measuring import PAGE_KEYS, SHALLOW, Measured, Profile, counting, measure
from cost_budgets.tripwires import COSTLY, TRIPPED, trip
from cost_budgets.yardstick import DEPTH, PUBLIC, beside
from fixtures.stores.catalog import Store, StoreUnavailable, kind_of, running

pytestmark = [pytest.mark.s3, pytest.mark.xdist_group("cost")]

QUICK_OPERATIONS: Final = ("warm-read", "repeat-read", "insert-node", "cold-snapshot")
REPEATED: Final = ("cold-insert-edge", "stale-read", "insert-node", "delete-cascade", "merge-three-way", "optimize")
BYTES_TOLERANCE: Final = 0.01
QUICK_ENGINES: Final = ("validates-twice", "probes-nothing")


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running("moto", page_keys=PAGE_KEYS) as found:
        yield found


@pytest.fixture(params=["moto", "seaweedfs", "minio", "minio-container"])
def any_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    reason = kind_of(request.param).missing()
    if reason is not None:
        pytest.skip(f"the store '{request.param}' cannot run here: {reason}")
    with ExitStack() as stack:
        try:
            found = stack.enter_context(running(request.param, page_keys=PAGE_KEYS))
        except StoreUnavailable as error:
            pytest.skip(str(error))
        yield found


def measured(store: Store, names: Sequence[str] | None, profile: Profile = SHALLOW) -> Measured:
    with counting(store, "reference") as bench:
        found = measure(bench, store, profile, names=names)
    assert (found.failed, found.unsupported) == ({}, {})
    return found


def broken(lines: Sequence[Line]) -> list[object]:
    return [line.as_json() for line in lines if line.verdict != "ok"]


@pytest.mark.requirement("COST-01", "COST-02", "COST-03", "COST-04", "COST-08", "COST-09")
def test_the_reference_keeps_its_budgets_and_costs_the_same_twice(store: Store) -> None:
    first = measured(store, QUICK_OPERATIONS, replace(SHALLOW, branches=(), tables=()))
    second = measured(store, QUICK_OPERATIONS, replace(SHALLOW, depths=SHALLOW.depths[:2], branches=(), tables=()))
    assert broken(judge(first, read_budgets())) == []
    assert [
        each.tally.unclassified for points in first.points.values() for each in points if each.tally.unclassified
    ] == []
    same(Measured({key: points[:2] for key, points in first.points.items()}), second)


@pytest.mark.slow
def test_ten_runs_give_the_same_numbers(any_store: Store) -> None:
    """Of every kind of operation: a new process, a read, writes, a merge, maintenance. No store varies by itself."""
    profile = Profile(depths=(4, 9), merges=(4,), crashes=(), branches=())
    first, *others = (measured(any_store, REPEATED, profile) for _ in range(10))
    for other in others:
        same(first, other)


def same(one: Measured, other: Measured) -> None:
    """All that was counted is the same. Hops depend on timing, and bytes a little on the clock: times are in files, and
    a later one may take a digit more."""
    assert one.points.keys() == other.points.keys()
    for key, points in one.points.items():
        for first, second in zip(points, other.points[key], strict=True):
            assert (first.variables, counted(first.tally)) == (second.variables, counted(second.tally)), key
            for name in ("bytes read", "bytes written"):
                assert first.tally.measure(name) == pytest.approx(second.tally.measure(name), rel=BYTES_TOLERANCE), key


def counted(tally: Tally) -> dict[str, Any]:
    return {
        name: value for name, value in tally.as_json().items() if name not in ("hops", "bytes_read", "bytes_written")
    }


@pytest.mark.slow
@pytest.mark.requirement("COST-05", "COST-06", "COST-07")
def test_the_reference_keeps_every_budget(store: Store) -> None:
    found = measured(store, None)
    lines = judge(found, read_budgets())
    assert broken(lines) == []
    assert {line.operation for line in lines} == read_budgets().keys()
    assert [each.tally.unclassified for points in found.points.values() for each in points] == [
        () for points in found.points.values() for _ in points
    ]


@pytest.mark.slow
def test_at_eighty_commits_the_reference_costs_less_than_half_of_the_public_engine(store: Store) -> None:
    """And after an optimize no more than it."""
    profile = Profile(depths=(DEPTH,), merges=(DEPTH,), crashes=(), branches=())
    found = beside(measured(store, tuple(PUBLIC), profile))
    assert len(found) == 2 * len(PUBLIC)
    for each in found:
        assert each.requests <= (each.public / 2 if each.ground == "grown" else each.public), each


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK_ENGINES else pytest.mark.slow) for name in COSTLY]
)
def test_a_costly_engine_breaks_the_budgets_that_name_it_and_no_other(store: Store, name: str) -> None:
    is_quick = name in QUICK_ENGINES
    profile = replace(TRIPPED, branches=(), tables=()) if is_quick else None
    tripped = trip(store, name, profile=profile, operations=QUICK_OPERATIONS if is_quick else tuple(read_budgets()))
    assert tripped.broken
    assert (tripped.missed, tripped.unrelated) == (frozenset(), frozenset())
