"""A small sweep on a real store: the reference keeps its promises, and a failure can be seen again from its trace."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from conformance.traces import make_trace
from failpoints.pairs.pairs import PAIRS, Side
from failpoints.pairs.schedule import Hold, ScheduleResult, run
from failpoints.pairs.stage import Stage, prepare
from failpoints.pairs.sweep import Unit, counts_of, replay_pair, run_unit
from failpoints.workshop import Bench, Refused, bench_at
from fixtures.stores.catalog import S3, Store
from fixtures.stores.moto import MotoStore

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def store(moto_store: MotoStore) -> Store:
    return Store("moto", moto_store.env, moto_store.fresh_root, lambda uri: None, frozenset({S3}))


@pytest.fixture(scope="module")
def bench(store: Store) -> Iterator[Bench]:
    with bench_at(store, "reference") as bench:
        yield bench


def results_of(bench: Bench, store: Store, unit: Unit) -> list[ScheduleResult]:
    results = list(run_unit(bench, store, unit))
    refusals = [each for each in results if isinstance(each, Refused)]
    assert refusals == []
    return [each for each in results if isinstance(each, ScheduleResult)]


def test_of_two_appends_of_one_key_exactly_one_wins_wherever_one_is_held(bench: Bench, store: Store) -> None:
    results = results_of(bench, store, Unit(PAIRS["append-append-key"], "first", limit=2))
    assert [(each.verdict, each.reached, each.outcome, each.because) for each in results] == [
        ("ok", True, "one refused", "")
    ] * 2
    assert {each.order for each in results} <= {"A", "B"}
    assert counts_of(results)["append-append-key"]["conflicts"] == 2


def test_a_dead_writer_is_recorded_once_by_two_that_recover_it(bench: Bench, store: Store) -> None:
    """One of them stands still inside the write of its audit row for longer than the other takes it for alive."""
    with Stage(bench, store, prepare(bench, store, PAIRS["open-open"])) as stage:
        result = run(stage, "first", Hold(0, "PUT", "audit transaction", 1))
    assert (result.verdict, result.reached, result.outcome) == ("ok", True, "both done"), result.because


@pytest.mark.parametrize(
    "engines", [("reference", "mutant:blind-manifest-put"), ("mutant:blind-manifest-put", "reference")]
)
def test_of_two_engines_that_race_the_broken_one_is_found_in_either_lane(
    store: Store, engines: tuple[str, str]
) -> None:
    side: Side = "first" if engines[0] != "reference" else "second"
    hold = Hold(0, "PUT", "manifest data", 1, table="__manifest")
    with (
        bench_at(store, engines[0], peer=engines[1]) as bench,
        Stage(bench, store, prepare(bench, store, PAIRS["insert-insert-tables"])) as stage,
    ):
        found = run(stage, side, hold)
        owners = {name: stage.driver(name).owner.partition("-")[0] for name in ("first", "second", "reader")}
    assert (found.verdict, found.reached) == ("wrong", True) and "is lost" in found.because
    assert owners == {"first": "driver", "second": "peer", "reader": "driver"}


def test_a_schedule_is_run_again_from_its_trace(bench: Bench, store: Store) -> None:
    hold = Hold(0, "PUT", "manifest data", 1, table="__manifest")
    with bench_at(store, "mutant:blind-manifest-put") as broken:
        with Stage(broken, store, prepare(broken, store, PAIRS["insert-insert-tables"])) as stage:
            found = run(stage, "first", hold)
        trace = make_trace(found.trace or {}, engine="mutant:blind-manifest-put", store="moto", seed=0)
        bad = replay_pair(json.loads(json.dumps(trace)), broken, store)
    good = replay_pair(json.loads(json.dumps(trace)), bench, store)

    assert (good.verdict, good.reached, good.trace) == ("ok", True, None), good.because
    assert (bad.verdict, bad.reached) == ("wrong", True) and "is lost" in bad.because
    assert (trace["kind"], trace["broke"]) == ("pair", list(bad.ids))
    owners = [each["owner"] for each in trace["requests"]]
    assert len(set(owners)) == 2, "both processes' requests are there"
