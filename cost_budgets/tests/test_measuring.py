"""A measurement that cannot go on says why, and whose fault it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from cost_budgets.measuring import SHALLOW, Measured, counting, measure
from cost_budgets.operations import OPERATIONS
from cost_budgets.places import GrowingGraph, MeasuringFailed
from failpoints.workshop import Bench, SweepBroken
from fixtures.stores import moto
from fixtures.stores.catalog import S3, Store

pytestmark = [pytest.mark.s3, pytest.mark.xdist_group("cost")]
NAMES = ("warm-read", "cold-snapshot")


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

    def count(self: GrowingGraph, operation: Any) -> Any:
        if operation is OPERATIONS["warm-read"]:
            raise MeasuringFailed("warm-read on the grown graph: somebody is in its way")
        return right(self, operation)

    monkeypatch.setattr(GrowingGraph, "count", count)
    with bench_of(store) as bench:
        found = measure(bench, store, SHALLOW, names=NAMES)
    assert found.failed == {"warm-read": "warm-read on the grown graph: somebody is in its way"}
    assert {name for name, _ in found.points} == {"cold-snapshot"}


def test_what_cannot_be_measured_after_an_optimize_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    grounds: list[str] = []

    def measure_on(bench: Bench, store: Store, profile: Any, ground: str, *rest: Any) -> None:
        grounds.append(ground)

    monkeypatch.setattr("cost_budgets.measuring.lacking", lambda bench, needs: ["optimize"])
    monkeypatch.setattr("cost_budgets.measuring._measure_on", measure_on)
    nowhere: Any = None
    found: Measured = measure(nowhere, nowhere, SHALLOW, names=["insert-node"])
    assert grounds == ["grown"]
    assert found.unsupported == {"insert-node after optimize": "the engine does not declare optimize"}
