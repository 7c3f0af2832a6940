"""A store that fails once is no engine's fault: what was counted meanwhile is counted again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from conformance.adapters import EngineError
from cost_budgets.budgets import read_budgets
from cost_budgets.counters.tests.test_tally import exchange
from cost_budgets.judging import judge
from cost_budgets.measuring import PAGE_KEYS, Profile, counting, measure
from cost_budgets.operations import OPERATIONS
from cost_budgets.places import GrowingGraph, stumble_of
from failpoints.gate import Gate, Rule
from fixtures.stores.catalog import Store, running

pytestmark = [pytest.mark.s3, pytest.mark.xdist_group("cost")]
ONCE_DEEP: Final = Profile(depths=(4,), merges=(4,), crashes=(4,), branches=())


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running("moto", page_keys=PAGE_KEYS) as found:
        yield found


@pytest.fixture
def stumbling(store: Store) -> Iterator[tuple[Gate, Store]]:
    """A store behind a gate that can answer in its place: to whoever counts, it is the store that answers."""
    with Gate(store.env["AWS_ENDPOINT_URL_S3"]) as gate:
        yield gate, replace(store, env=gate.port("store").environment(store.env))


def before_work(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[Any], object]) -> None:
    """Do something right before an operation is counted, on the graph on which it is counted first."""
    operation = OPERATIONS[name]

    def work(place: Any, given: Any) -> object:
        act(place)
        return operation.work(place, given)

    monkeypatch.setitem(OPERATIONS, name, replace(operation, work=work, grounds=operation.grounds[:1]))


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("warm-read", "LIST"),
        ("insert-node", "GET"),
        ("merge-fast-forward", "LIST"),
        ("cold-branch-create", "PUT"),
        ("cold-open-pending", "LIST"),
    ],
)
def test_an_operation_at_which_the_store_stumbles_is_measured_again(
    stumbling: tuple[Gate, Store], monkeypatch: pytest.MonkeyPatch, name: str, verb: str
) -> None:
    gate, store = stumbling
    budgets = read_budgets()
    rules = [Rule("answer", status=503, verbs=(verb,), times=1)]
    before_work(monkeypatch, name, lambda _: rules and gate.arm(rules.pop()))
    with counting(store, "reference", timeout_seconds=20.0) as bench:
        found = measure(bench, store, ONCE_DEEP, names=[name])
    assert any(each.outcome == "injected" for each in gate.exchanges()), "the store did stumble"
    assert found.failed == {}
    ((point,),) = found.points.values()
    assert point.tally.requests and "failed" not in point.tally.outcomes
    assert [line.as_json() for line in judge(found, budgets) if line.verdict != "ok"] == []


def test_a_store_that_stumbles_again_cannot_be_measured_at(
    stumbling: tuple[Gate, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, store = stumbling
    before_work(monkeypatch, "warm-read", lambda _: gate.arm(Rule("answer", status=503, verbs=("LIST",), times=1)))
    with counting(store, "reference", timeout_seconds=20.0) as bench:
        found = measure(bench, store, ONCE_DEEP, names=["warm-read", "commit-page"])
    assert "the store answered 503 to a LIST, and so it did before" in found.failed["warm-read"]
    assert "nothing about the engine" in found.failed["warm-read"]
    assert {name for name, _ in found.points} == {"commit-page"}


def test_an_operation_that_fails_because_the_store_stumbled_is_tried_again(
    stumbling: tuple[Gate, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, store = stumbling
    failures = [EngineError("storage", "lance_error", "503")]

    def fail(place: GrowingGraph) -> None:
        """As an engine does that does not ask again."""
        if failures:
            gate.arm(Rule("answer", status=503, verbs=("LIST",), times=1))
            place.handle.snapshot()
            raise failures.pop()

    before_work(monkeypatch, "update", fail)
    with counting(store, "reference", timeout_seconds=20.0) as bench:
        found = measure(bench, store, ONCE_DEEP, names=["update"])
    assert (found.failed, failures) == ({}, [])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"status": 503, "answered": 503}, "the store answered 503 to a LIST"),
        ({"status": 429, "answered": 429}, "the store answered 429 to a LIST"),
        ({"status": None, "answered": 502, "outcome": "store_gone"}, "the store hung up on a LIST"),
        ({"status": None, "answered": None, "outcome": "client_gone", "ended": 4.0}, "did not answer a LIST in 4 s"),
        ({"status": None, "answered": None, "outcome": "client_gone", "ended": 1.0}, None),
        ({"status": 200, "answered": 200, "ended": 4.0}, None),
        ({"status": None, "answered": None, "outcome": "in_flight", "started": 12.0, "ended": None}, None),
        ({"status": None, "answered": None, "outcome": "cut", "ended": 4.0}, None),
        ({"status": 501, "answered": 501}, None),
        ({"status": 412, "answered": 412}, None),
        ({"status": None, "answered": 503, "outcome": "injected"}, None),
    ],
)
def test_a_store_has_stumbled_when_it_says_so_itself(more: dict[str, Any], words: str | None) -> None:
    found = stumble_of([exchange("GET", "table data"), exchange("LIST", "listing", **more)])
    assert found is None if words is None else words in str(found)
